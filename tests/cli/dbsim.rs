//! `bigiron dbsim`: jobs on this machine, and as levers of a study.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::builder::Test;

/// A job that is done in moments, on a file system of any kind.
const SMALL: &[&str] = &[
    "--set",
    "data.size=10M",
    "--set",
    "cache.size=2M",
    "--set",
    "journal.size=2M",
    "--set",
    "direct=off",
    "--set",
    "io=sync",
    "--set",
    "processes=2",
    "--set",
    "transactions=200",
];
/// Words at the start of [`SMALL`] that say where the job works, not how much it does.
const PLACE: usize = 10;

fn with<'a>(head: &[&'a str], tail: &[&'a str]) -> Vec<&'a str> {
    head.iter().chain(tail).copied().collect()
}

#[test]
fn every_shipped_job_is_listed_printed_and_explained() {
    let test = Test::new();
    let list = test.run(&["dbsim", "jobs"]).status(0).stdout;
    let names: Vec<&str> = list.lines().map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(names.len(), 12, "{list}");
    for name in names {
        test.run(&["dbsim", "jobs", name]).status(0).stdout_has("dbsim = 1");
        test.run(&["dbsim", "check", name]).status(0).stdout_has("Not tested");
    }
    test.run(&["dbsim", "jobs", "otlp"]).refused("did you mean `oltp`?");
}

#[test]
fn a_job_is_explained_in_words() {
    let ran = Test::new().run(&["dbsim", "check", "orasim-2004", "--set", "process.foreground.count=64"]).status(0);
    for want in [
        "64 × foreground (foreground): executes transactions",
        "a commit waits until log-writer has made its redo durable",
        "10 data files of 12M, 2 journals of 4M",
        "redo: when its write returns (journals opened O_DSYNC)",
        "65536 bytes for each process",
    ] {
        assert!(ran.stdout.contains(want), "no `{want}` in {}", ran.stdout);
    }
}

#[test]
fn what_is_printed_is_the_same_job() {
    let test = Test::new();
    let printed = test.run(&["dbsim", "check", "oltp", "--print"]).status(0).stdout;
    let test = test.file("again.toml", &printed);
    assert_eq!(test.run(&["dbsim", "check", "again.toml", "--print"]).status(0).stdout, printed);
}

#[test]
fn a_job_that_cannot_run_is_refused_with_its_line() {
    let job = |text: &str| Test::new().file("j.toml", text).run(&["dbsim", "check", "j.toml"]);
    let foregrounds =
        "[transaction.t]\nsteps = [\"read 2\", \"dirty 1\", \"commit\"]\n[process.a]\nkind = \"foreground\"\n";
    let crew = "[process.w]\nkind = \"database-writer\"\n[process.l]\nkind = \"log-writer\"\n";
    for (text, want) in [
        ("[run]\n".to_owned(), "j.toml:1: This is not a dbsim job"),
        ("dbsim = 2\n".to_owned(), "j.toml:1: `dbsim` cannot be `2`"),
        ("dbsim = 1\n[cahce]\n".to_owned(), "j.toml:2: Unknown key `cahce`; did you mean `cache`?"),
        ("dbsim = 1\n[cache]\nsise = \"1M\"\n".to_owned(), "j.toml:3: Unknown key `sise`; did you mean `size`?"),
        ("dbsim = 1\n[cache]\nsize = \"1.5M\"\n".to_owned(), "j.toml:3: `size` cannot be `1.5M`"),
        ("dbsim = 1\n".to_owned(), "A job needs at least one process"),
        (format!("dbsim = 1\n{foregrounds}"), "j.toml:5: Process `a` has no log writer"),
        (format!("dbsim = 1\n{foregrounds}[process.l]\nkind = \"log-writer\"\n"), "j.toml:7: Process `l` has no database writer"),
        (format!("dbsim = 1\n{foregrounds}{crew}[process.m]\nkind = \"log-writer\"\n"), "A job has only one log writer, but `m` is another"),
        (format!("dbsim = 1\n{foregrounds}{crew}count = 2\n"), "j.toml:10: A job has only one log writer, not 2"),
        (format!("dbsim = 1\n{foregrounds}count = 500\n{crew}"), "make `journal.size` at least 32M"),
        (format!("dbsim = 1\n[journal]\nsync = \"linked\"\n{foregrounds}{crew}"), "j.toml:3: `linked` requests exist in io_uring only"),
        (format!("dbsim = 1\n[data]\ndirect = false\n{foregrounds}{crew}io = \"uring\"\niopoll = true\n"), "Only direct I/O can be polled"),
        (format!("dbsim = 1\n[data]\nplaces = [\"/dev/sdz\"]\n{foregrounds}{crew}"), "j.toml:3: Everything on `/dev/sdz` would be lost"),
        ("dbsim = 1\n[process.r]\nkind = \"requests\"\nrequest = \"8M\"\n".to_owned(), "j.toml:4: `request` cannot be `8M`"),
        ("dbsim = 1\n[process.r]\nkind = \"requests\"\n".to_owned(), "would never end"),
        ("dbsim = 1\n[transaction.t]\nsteps = [\"dirty 3\"]\n[process.a]\nkind = \"foreground\"\n[process.w]\nkind = \"database-writer\"\n[process.l]\nkind = \"log-writer\"\n".to_owned(), "j.toml:3: `dirty 3` in transaction `t` has no block to change"),
        ("dbsim = 1\n[transaction.t]\nsteps = [\n\"read 3\",\n\"raed 3\"]\n".to_owned(), "j.toml:5: `raed` is not a step; did you mean `read`?"),
    ] {
        job(&text).refused(want);
    }
}

#[test]
fn settings_are_refused_by_their_names() {
    let check = |set: &str| Test::new().run(&["dbsim", "check", "oltp", "--set", set]);
    check("process.foregrond.count=3").refused("did you mean `foreground`?");
    check("cache.sise=1M").refused("did you mean `cache.size`?");
    check("cache.size").refused("write KEY=VALUE");
    check("proceses=3").refused("did you mean `dbsim.processes`?");
    check("io=aio").refused("`dbsim.io` cannot be `aio`");
    check("scan=on").status(0);
    Test::new().run(&["dbsim", "check", "./none.toml"]).refused("Cannot read the job file `./none.toml`");
}

#[test]
fn a_small_job_runs_and_leaves_nothing() {
    let test = Test::new();
    let args = with(&["dbsim", "run", "orasim-2004", "--seed", "7", "--validate", "--format", "json"], SMALL);
    let ran = test.run(&args).status(0);
    let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(result["transactions"], 200);
    assert_eq!(result["valid"], true);
    assert!(result["metrics"]["throughput"].as_f64().unwrap() > 0.0);
    assert!(result["waits"].as_array().unwrap().iter().any(|w| w["event"] == "log file sync"), "{}", ran.stdout);
    let commits = result["latencies"].as_array().unwrap().iter().find(|l| l["of"] == "commit").unwrap();
    assert!(commits["p50-ns"].as_u64().unwrap() <= commits["max-ns"].as_u64().unwrap());
    assert!(ran.stderr.is_empty(), "{}", ran.stderr);
    assert!(test.entries(".").is_empty(), "{:?}", test.entries("."));
}

#[test]
fn a_run_is_kept_verified_and_its_damage_seen() {
    let test = Test::new();
    let ran = test.run(&with(&["dbsim", "run", "orasim-2004", "--keep"], SMALL)).status(0);
    assert!(ran.stdout.contains("Waits for") && ran.stdout.contains("log file sync"), "{}", ran.stdout);
    let dir = ran.stderr.trim().strip_prefix("Kept: ").unwrap().to_owned();
    test.run(&["dbsim", "verify", &dir]).status(0).stdout_has("Valid");
    // A kept run is nobody's leftover.
    let again = test.run(&with(&["dbsim", "run", "orasim-2004"], SMALL)).status(0);
    assert!(!again.stderr.contains("warning"), "{}", again.stderr);
    let data = std::path::Path::new(&dir).join("work/data.004");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[300_000] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    test.run(&["dbsim", "verify", &dir]).status(1).stdout_has("INVALID");
    test.run(&["dbsim", "verify", "."]).refused("is not a directory of a dbsim run");
}

#[test]
fn a_run_that_does_not_fit_is_refused() {
    let test = Test::new();
    let huge = ["--set", "data.size=1000G", "--set", "cache.size=900G"];
    test.run(&with(&["dbsim", "run", "orasim-2004"], &huge)).refused("The job needs");
    test.run(&with(&["dbsim", "run", "orasim-2004", "--dir", "none"], SMALL)).refused("is not a directory");
    assert!(test.entries(".").is_empty());
}

/// Waits until `is` holds; fails after a time that even an overloaded machine needs not.
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupted_run_tidies_up_and_a_killed_one_is_named() {
    let endless = with(&["dbsim", "run", "orasim-2004", "--seconds", "3600"], &SMALL[..PLACE]);
    let test = Test::new();
    let started = |test: &Test| test.entries(".").iter().any(|dir| dir.join("work/journal.1").exists());
    let mut child = test.start(&endless);
    eventually("no run begins", || started(&test));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(test.entries(".").is_empty(), "{:?}", test.entries("."));

    let mut child = test.start(&endless);
    eventually("no run begins", || started(&test));
    child.kill().unwrap();
    child.wait().unwrap();
    let left = test.entries(".");
    assert_eq!(left.len(), 1);
    // Its processes die with it, and with them its lock.
    let next = || test.run(&with(&["dbsim", "run", "orasim-2004"], SMALL)).status(0).stderr;
    eventually("nobody names what was left", || next().contains("is left over from a killed run"));
    assert_eq!(test.entries("."), left);
}

#[test]
fn files_go_where_the_job_says() {
    let test = Test::new().file("a/x", "").file("b/x", "");
    let places = ["--set", "data.places=a; b", "--set", "journal.place=b", "--validate"];
    let ran = test.run(&with(&with(&["dbsim", "run", "orasim-2004"], SMALL), &places)).status(0);
    assert!(ran.stdout.contains("Valid"), "{}", ran.stdout);
    assert_eq!((test.entries("a").len(), test.entries("b").len(), test.entries(".").len()), (1, 1, 2));
    test.run(&["dbsim", "run", "orasim-2004", "--set", "data.places=a/x"])
        .refused("neither a directory nor a block device");
}

#[test]
fn a_fio_job_becomes_a_job_or_is_refused() {
    let fio = "[global]\nioengine=libaio\ndirect=1\nbs=8k\nsize=16m\nfilename=f\nruntime=2\ntime_based\n\n[readers]\nrw=randread\nnorandommap\n\
               iodepth=8\nnumjobs=2\ngroup_reporting\n";
    let test = Test::new().file("r.fio", fio).file("bad.fio", "[a]\nsize=1m\nzonemode=zbd\n");
    let job = test.run(&["dbsim", "import-fio", "r.fio"]).status(0).stdout;
    let test = test.file("r.toml", &job);
    test.run(&["dbsim", "check", "r.toml"])
        .status(0)
        .stdout_has("2 × readers (requests): reads of 8K anywhere in 1 data files with libaio, 8 in flight");
    test.run(&["dbsim", "import-fio", "bad.fio"]).refused("bad.fio:3: `zonemode`: No dbsim job can express it");
}

#[test]
fn a_study_takes_a_job_and_its_keys() {
    let test = Test::new().file("mine.toml", "dbsim = 1\nnonsense = 1\n").file(
        "good.toml",
        "dbsim = 1\n[transaction.t]\nsteps = [\"read 2\", \"dirty 1\", \"commit\"]\n[process]\na = { kind = \"foreground\" }\nl = { kind = \"log-writer\" }\nw = { kind = \"database-writer\" }\n",
    );
    let study = |set: &str, arm: &str| {
        format!(
            "arms = [\"debian:1\", \"debian:1{arm}\"]\nworkloads = [\"dbsim\"]\n[machine]\nhost = \"sim\"\n[design]\npairs = 8\nseed = 1\n[set]\n{set}\n"
        )
    };
    let run = |text: &str| {
        std::fs::write(test.dir().join("s.toml"), text).unwrap();
        test.run(&["run", "s.toml", "--out", "out"])
    };
    run(&study("dbsim.job = \"mine.toml\"", "")).refused("mine.toml:2: Unknown key `nonsense`");
    run(&study("dbsim.job = \"oltp\"", ",dbsim.cache.sise=1M")).refused("did you mean `cache.size`?");
    run(&study("dbsim.job = \"oltp\"", ",dbsim.process.foregrond.count=1")).refused("did you mean `foreground`?");
    run(&study("dbsim.job = \"good.toml\"", ",dbsim.process.a.count=3")).status(0);
    let plan = std::fs::read_to_string(test.dir().join("out/plan.toml")).unwrap();
    assert!(plan.contains("steps = [") && plan.contains("process.a.count"), "{plan}");
    let job = std::fs::read_to_string(test.dir().join("good.toml")).unwrap();
    std::fs::write(test.dir().join("good.toml"), job.replace("read 2", "read 3")).unwrap();
    let changed = run(&study("dbsim.job = \"good.toml\"", ",dbsim.process.a.count=3"));
    changed.refused("`out` holds another study: dbsim.job: the text has changed");
}
