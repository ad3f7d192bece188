//! `--on local`: trials on this machine's own kernel.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use bigiron_workload::testing::SmallDisk;

use crate::builder::{PATIENCE, Test, processes_in};
use crate::kills::alone_as_root;

/// The running kernel against itself, without pauses.
const HERE: [&str; 7] = ["compare", "--on", "local", "running", "running", "--idle-gap", "0"];

/// dbsim in moments, on a file system of any kind; `more` follows.
fn compare<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut words = [&HERE[..], &["dbsim", "--pairs", "8", "--seed", "5"]].concat();
    const SMALL: [&str; 6] = [
        "dbsim.data.size=10M",
        "dbsim.cache.size=2M",
        "dbsim.journal.size=2M",
        "dbsim.direct=off",
        "dbsim.io=sync",
        "dbsim.processes=2",
    ];
    words.extend(SMALL.iter().flat_map(|option| ["--set", option]));
    words.extend(more);
    words
}

/// The facts of a trial of `web` with `set`, which completes with `length` requests in the window.
#[track_caller]
fn facts_of_web(set: &[&str], length: u32) -> serde_json::Value {
    let length = format!("web.length={length}");
    let mut words = [&HERE[..], &["web", "--quick", "--seed", "5"]].concat();
    words.extend(set.iter().copied().chain([length.as_str()]).flat_map(|option| ["--set", option]));
    let record = Test::new().first_record("study", &words);
    assert_eq!(record["outcome"]["kind"], "completed", "{set:?}: {record}");
    let facts = record["facts"].clone();
    assert_eq!(length.strip_prefix("web.length="), facts["web.requests-checked"].as_str(), "{record}");
    facts
}

/// A fact that is a number.
#[track_caller]
fn number(facts: &serde_json::Value, name: &str) -> u32 {
    facts[name].as_str().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name}: {facts}"))
}

#[test]
fn a_page_is_made_from_a_database_by_each_gateway() {
    // Windows of half a second or more, so that what reads the servers' CPU time at their start gets a CPU in time.
    for (server, gateway, length) in [("nginx", "fastcgi", 1000), ("apache", "fastcgi", 1000), ("apache", "cgi", 200)] {
        let (server, gateway) = (format!("web.server={server}"), format!("web.gateway={gateway}"));
        let set = ["web.job=cgi-db", &server, &gateway, "web.connections=2", "web.warmup=4"];
        let facts = facts_of_web(&set, length);
        // More than the window and the ramp: what was under way at the end.
        assert!((length + 4..length + 10).contains(&number(&facts, "web.visits-counted")), "{facts}");
    }
}

#[test]
fn pages_of_web99_are_made_and_forms_recorded_by_each_server() {
    // Of Apache's processes one serves each connection, so all are busy.
    let busy = ["web.mpm=prefork", "web.workers=4"];
    for (server, mpm) in [("nginx", &[][..]), ("apache", &[]), ("apache", &busy)] {
        let server = format!("web.server={server}");
        let usual =
            ["web.job=web99", "web.directories=2", "web.line-rate=off", "web.keep-alive=page", "web.connections=4"];
        let set: Vec<&str> = usual.into_iter().chain(["web.warmup=20", &server]).chain(mpm.iter().copied()).collect();
        let facts = facts_of_web(&set, 8000);
        assert!((290..510).contains(&number(&facts, "web.posts-recorded")), "{facts}");
        let pages = facts["web.pages"].as_str().unwrap();
        let words: Vec<_> = pages.strip_suffix(" by CGI programs").unwrap().split(' ').collect();
        // 12 are expected.
        assert!(words.last().unwrap().parse::<u32>().unwrap() >= 2, "{facts}");
    }
}

#[test]
fn a_disk_that_runs_full_under_recorded_forms_fails_the_trial_with_the_cause() {
    for server in ["web.server=nginx", "web.server=apache"] {
        let test = Test::new();
        let Some(disk) = SmallDisk::mount(test.dir(), "400m") else { return };
        let set = [server, "web.job=web99", "web.directories=1", "web.line-rate=off", "web.access-log=no"];
        let more = ["web.connections=4", "web.length=60s", "web.rate=200"];
        let mut words = [&HERE[..], &["web", "--quick", "--out", "disk/study"]].concat();
        words.extend(set.iter().chain(&more).flat_map(|option| ["--set", option]));
        let mut child = test.start(&words);
        let began = Instant::now();
        let records_posts = || {
            let found = Command::new("find").arg(&disk.0).args(["-name", "posts", "-size", "+0"]).output().unwrap();
            !found.stdout.is_empty()
        };
        while !records_posts() {
            assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "{server}");
            std::thread::sleep(Duration::from_millis(5));
        }
        disk.fill(0);
        let output = child.wait_with_output().unwrap();
        let records = fs::read_to_string(disk.0.join("study/records.jsonl")).unwrap();
        let first: serde_json::Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
        let outcome = &first["record"]["outcome"];
        assert_eq!((&outcome["kind"], &outcome["failure"]), (&"failed".into(), &"no-space".into()), "{first}");
        let message = outcome["message"].as_str().unwrap();
        for words in ["The FastCGI application reported: Cannot write the log of POSTs", "No space left on device"] {
            assert!(message.contains(words), "{server}: no `{words}` in {message}");
        }
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("ran out of disk space") && !said.contains(": same"), "{said}");
        assert_eq!((work_folders(&test), processes_in(test.dir())), (0, 0), "{server}");
    }
}

fn work_folders(test: &Test) -> usize {
    let find = Command::new("find").arg(test.dir()).args(["-name", "bigiron-work-*"]).output().unwrap();
    find.stdout.iter().filter(|b| **b == b'\n').count()
}

#[test]
fn a_machine_is_compared_with_itself() {
    let test = Test::new();
    let ran = test.run(&compare(&["--set", "dbsim.transactions=200", "--full"])).status(0);
    let ran = ran.stdout_has("host `local`").stdout_has("--on local").stdout_has("dbsim throughput");
    assert!(!ran.stdout.contains("QEMU"), "{}", ran.stdout);
    assert_eq!(work_folders(&test), 0);
    assert_eq!(processes_in(test.dir()), 0);
}

#[test]
fn a_killed_study_leaves_no_process_and_goes_on_where_it_was() {
    let test = Test::new();
    let words = compare(&["--set", "dbsim.run.time=500ms", "--out", "study"]);
    let mut child = test.start(&words);
    let began = Instant::now();
    while processes_in(&test.dir().join("study")) == 0 {
        assert!(began.elapsed() < PATIENCE, "no trial has begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while processes_in(&test.dir().join("study")) > 0 {
        assert!(killed.elapsed() < Duration::from_secs(120), "processes are left");
        std::thread::sleep(Duration::from_millis(20));
    }
    test.run(&words).status(0).stderr_has("Resuming the study");
    assert_eq!(work_folders(&test), 0);
}

/// The program spins in a session of its own: nothing but CPU time shows that it gets nowhere.
#[test]
fn a_trial_that_hangs_is_recorded_and_ended_with_all_its_processes() {
    let test = Test::new();
    let spin = "setsid sh -c 'while :; do :; done' & wait";
    let how = ["--hang-limit", "5", "--idle-gap", "0", "--pairs", "8", "--out", "study", "--", "sh", "-c", spin];
    let words: Vec<&str> = ["compare", "--on", "local", "running", "running"].into_iter().chain(how).collect();
    let child = test.start(&words);
    let records = || fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap_or_default();
    let began = Instant::now();
    while records().is_empty() {
        assert!(began.elapsed() < PATIENCE, "no trial has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    let first: serde_json::Value = serde_json::from_str(records().lines().next().unwrap()).unwrap();
    let outcome = first["record"]["outcome"].to_string();
    assert!(outcome.contains("hang") && outcome.contains("CPU seconds (limit 5) in `command`, step"), "{outcome}");
    let began = Instant::now();
    while processes_in(test.dir()) > 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "processes are left");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(work_folders(&test), 0);
}

#[test]
fn what_belongs_to_guests_is_refused() {
    let test = Test::new();
    let refused = |words: &[&str], want: &str| {
        let all: Vec<&str> = ["compare", "--on", "local"].iter().chain(words).copied().collect();
        test.run(&all).refused(want);
    };
    refused(&["running", "debian:6.12", "dbsim"], "every arm is `running`");
    refused(&["running", "running", "dbsim", "--clock", "exact"], "the only clock is `wall`");
    refused(&["running", "running", "dbsim", "--cpus", "2"], "already has CPUs");
    refused(&["running", "running", "dbsim", "--storage", "nvme"], "already has storage");
    refused(&["running", "running,boot.mitigations=off", "dbsim"], "Lever `boot.mitigations` acts on a guest");
    assert!(test.entries("bigiron-results").is_empty());
}

/// Another build's answer is not this build's; the report still shows it.
#[test]
fn a_finished_study_is_no_answer_of_another_build() {
    let test = Test::new();
    let slower = "running,command.run=sleep 0.4";
    let how = ["--idle-gap", "0", "--pairs", "8", "--seed", "5", "--out", "study"];
    let study = |why: &[&str]| {
        let words =
            [&["compare", "--on", "local", "running", slower], &how[..], why, &["--", "sleep", "0.01"]].concat();
        test.run(&words)
    };
    study(&["--why", "0"]).status(0).stdout_has("worse");
    let marked = "executable = \"";
    test.edit_plan("study", |plan| plan.replacen(marked, &format!("{marked}0"), 1));
    for why in ["0", "1"] {
        study(&["--why", why]).refused("The study in `study` was begun by another build of bigiron");
    }
    assert!(!test.dir().join("study/evidence").exists());
    test.run(&["report", "study"]).status(0).stdout_has("worse");
}

/// One worker in place of two: if that makes a difference, samples say where, as far as this machine lets them be taken.
#[test]
fn what_differs_is_sampled_or_said_to_be_refused() {
    let test = Test::new();
    let more = ["--set", "dbsim.transactions=200", "--why", "1", "--full"];
    let mut words: Vec<String> = compare(&more).into_iter().map(str::to_owned).collect();
    let at = words.iter().rposition(|w| w == "running").unwrap();
    words[at] = "running,dbsim.processes=1".to_owned();
    let out = test.dir().join("study");
    words.extend(["--out".to_owned(), out.display().to_string()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = test.run(&words).status(0);
    let sampled = ran.stdout.contains("CPUs sampled by");
    let evidence = fs::read_dir(out.join("evidence")).map_or(0, Iterator::count);
    if sampled {
        assert!(evidence >= 2, "{}", ran.stdout);
        let graph = test.run(&["report", &out.display().to_string(), "--flame", "diff"]);
        assert!(
            graph.stdout.starts_with("<svg ") || graph.stderr.contains("No stacks were sampled"),
            "{}",
            graph.stderr
        );
    } else {
        // Not told apart, or not permitted.
        assert!(evidence == 0 || ran.stdout.contains("gave no evidence"), "{}", ran.stdout);
        let graph = test.run(&["report", &out.display().to_string(), "--flame", "diff"]).status(2);
        assert!(graph.stderr.contains("No stacks were sampled"), "{}", graph.stderr);
    }
}

#[test]
fn arms_that_this_machine_makes_equal_are_named() {
    let test = Test::new();
    // Other tests change this setting.
    let _alone = alone_as_root();
    let now = fs::read_to_string("/proc/sys/vm/swappiness").unwrap();
    let same = format!("running,sysctl.vm.swappiness={}", now.trim());
    let words = ["compare", "--on", "local", "--pairs", "8", "--idle-gap", "0", "running", &same, "--", "true"];
    let said = format!("warning: `running` and `{same}` are the same: this machine already has these values");
    test.run(&words).status(0).stderr_has(&said);
}

#[test]
fn a_business_in_a_jvm_runs_here_and_both_arms_do_the_same_work() {
    let test = Test::new();
    let set = ["jvm.warehouses=1", "jvm.operations=300", "jvm.warmup=100", "jvm.data=1M", "jvm.collector=g1"];
    let mut words = [&HERE[..], &["jvm", "--quick", "--seed", "5", "--out", "study"]].concat();
    words.extend(set.iter().flat_map(|option| ["--set", option]));
    test.run(&words);
    let records = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    let records: Vec<serde_json::Value> = records
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["record"].clone())
        .collect();
    assert!(records.len() >= 8, "{records:?}");
    for record in &records {
        assert_eq!(record["outcome"]["kind"], "completed", "{record}");
        assert_eq!(number(&record["facts"], "jvm.transactions"), 900);
        assert!(record["metrics"]["jvm"]["operations-2"].as_f64().unwrap() > 0.0, "{record}");
        assert!(record["artifacts"].to_string().contains("gc.log"), "{record}");
    }
    // Both arms of a pair draw the same transactions, which give the same results.
    let digests = |pair: usize| records[2 * pair..2 * pair + 2].iter().map(|r| r["facts"]["jvm.digest"].clone());
    assert!((0..4).all(|pair| digests(pair).all(|d| Some(d) == digests(pair).next())), "{records:?}");
}

#[test]
fn a_business_over_tomcat_and_postgres_runs_here_and_its_data_are_right() {
    let test = Test::new();
    let set = ["app.rate=off", "app.length=400", "app.warmup=50", "app.threads=4", "app.dealers=50"];
    let mut words = [&HERE[..], &["app", "--quick", "--seed", "5"]].concat();
    words.extend(set.iter().flat_map(|option| ["--set", option]));
    let record = test.conforming_record("study", &words);
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    assert_eq!(number(&record["facts"], "app.conditions-checked"), 19);
    assert_eq!(record["facts"]["app.requests-checked"], "400");
    assert!(record["metrics"]["app"]["operations"].as_f64().unwrap() > 0.0, "{record}");
    assert!(record["facts"]["app.cpu-shares"].as_str().unwrap().contains("database"), "{record}");
}
