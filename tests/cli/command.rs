//! Workload `command`: any program of the user's, here on this machine itself.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::builder::{PATIENCE, Ran, Test};
use crate::kills::alone_as_root;

/// A comparison in moments; what is to be run follows.
const QUICK: [&str; 11] =
    ["--on", "local", "--pairs", "8", "--idle-gap", "0", "--seed", "5", "--full", "--out", "study"];

fn compare(test: &Test, words: &[&str], rest: &[&str]) -> Ran {
    test.run(&[&["compare"], words, &QUICK, rest].concat())
}

/// Processes whose command line has `mark`.
fn processes_with(mark: &str) -> usize {
    let lines = fs::read_dir("/proc").unwrap().filter_map(|e| fs::read(e.ok()?.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(mark)).count()
}

fn wait_until_gone(mark: &str) {
    let began = Instant::now();
    while processes_with(mark) > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "processes are left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The message of every trial that failed.
fn failures(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("study/records.jsonl")).unwrap();
    let message = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        Some(line["record"]["outcome"]["message"].as_str()?.to_owned())
    };
    text.lines().filter_map(message).collect()
}

const EVER: [&str; 10] = [
    "wall",
    "user",
    "system",
    "max-rss",
    "voluntary-switches",
    "involuntary-switches",
    "minor-faults",
    "major-faults",
    "block-read",
    "block-write",
];

#[test]
fn a_program_is_measured_and_its_own_metrics_are_found() {
    let test = Test::new();
    let metrics = [
        "--metric",
        "rate,unit=op/s,better=higher,of=mean,regex=rate ([0-9.]+)",
        "--metric",
        "score,unit=points,better=higher,from=result.json,json=/score/total",
        "--set",
        "command.repeats=3",
        "--set",
        "command.warmup=1",
        "--set",
        "command.env.RATE=12",
        "--",
        "sh",
        "-c",
        "echo rate $RATE; echo '{\"score\": {\"total\": 7}}' > result.json; (sleep 0.01; true) & wait",
    ];
    let ran = compare(&test, &["running", "running"], &metrics).status(0);
    let ran = ran.stdout_has("command rate ↑").stdout_has("12.00 op/s").stdout_has("7.000 points");
    let ran = ran.stdout_has("--set command.env.RATE=12").stdout_has("-- sh -c 'echo rate $RATE;");
    assert!(!ran.stdout.contains("boots"), "{}", ran.stdout);
    let records = test.records("study");
    assert_eq!(records.len(), 16);
    let mut declared = [&["rate", "score"][..], &EVER].concat();
    declared.sort_unstable();
    for values in records.values() {
        let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, declared);
        let of = |name: &str| values.iter().find(|(n, _)| n == name).unwrap().1;
        assert_eq!((of("rate"), of("score")), (12.0, 7.0));
        assert!(of("wall") >= 10e6 && of("wall") < 60e9, "{}", of("wall"));
        assert!(of("max-rss") > 100e3 && of("minor-faults") > 10.0 && of("voluntary-switches") >= 1.0);
    }
    // The output of every run is kept; what is empty is not.
    let kept = test.entries("study/artifacts");
    let of_first: Vec<_> = test.entries(kept[0].strip_prefix(test.dir()).unwrap().to_str().unwrap());
    let names: Vec<_> = of_first.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(
        names,
        ["command.run-1.stdout", "command.run-2.stdout", "command.run-3.stdout", "command.warmup-1.stdout"]
    );
    assert_eq!(fs::read_to_string(&of_first[0]).unwrap(), "rate 12\n");
}

#[test]
fn two_commands_are_arms_and_the_slower_one_is_worse() {
    let test = Test::new();
    // So far apart that a trial of A that this machine delays does not hide it.
    let arms = ["running,command.run=sleep 0.01", "running,command.run=sleep 0.4"];
    let ran = compare(&test, &arms, &["--fail-on", "worse"]).status(3);
    ran.stdout_has("slower than running,command.run=sleep 0.01").stdout_has("A: sleep 0.01; B: sleep 0.4");
}

#[test]
fn a_run_that_ends_badly_fails_its_trial_and_says_what_it_said() {
    for (script, want) in [
        ("echo going; echo 'no room' >&2; exit 3", "ended with status 3; standard error ends:\nno room"),
        ("kill -9 $$", "was killed by signal 9; standard error is empty"),
        ("echo rate: none", "The metric `rate` is missing: nothing in standard output matches `rate ([0-9]+)`"),
    ] {
        let test = Test::new();
        let metric = ["--metric", "rate,unit=op/s,better=higher,regex=rate ([0-9]+)", "--", "sh", "-c", script];
        // The first pair stops the study; asked again, it goes on.
        compare(&test, &["running", "running"], &metric).status(1).stderr_has("nothing can be compared");
        let ran = compare(&test, &["running", "running"], &metric).status(0).stdout_has("failed its workload");
        assert!(!ran.stdout.contains("boots"), "{}", ran.stdout);
        let failures = failures(test.dir());
        assert_eq!(failures.len(), 16);
        for failure in failures {
            assert!(failure.contains("run-1 of `sh -c") && failure.contains(want), "{failure}");
        }
        // What it printed is evidence.
        assert!(!test.entries("study/artifacts").is_empty());
    }
}

#[test]
fn a_limit_ends_a_run_with_all_that_it_started() {
    let test = Test::new();
    let mark = format!("{}", 86_000 + std::process::id() % 1000);
    let script = format!("setsid sleep {mark}.25 & sleep {mark}.25");
    let rest = ["--set", "command.limit=50ms", "--", "sh", "-c", &script];
    compare(&test, &["running", "running"], &rest).status(1);
    assert!(failures(test.dir()).iter().all(|f| f.contains("took longer than its limit of 0.05 s and was killed")));
    assert_eq!(processes_with(&format!("{mark}.25")), 0);
}

#[test]
fn what_a_command_leaves_running_is_killed_and_counted() {
    let test = Test::new();
    let mark = format!("{}.5", 87_000 + std::process::id() % 1000);
    // A daemon as daemons are made: in a session of its own, its parent gone.
    let script = format!("(setsid sleep {mark} & ) ; exit 0");
    compare(&test, &["running", "running"], &["--", "sh", "-c", &script])
        .status(0)
        .stdout_has("command.left-running: 1");
    assert_eq!(processes_with(&mark), 0);
}

#[test]
fn a_killed_study_leaves_nothing_of_its_command() {
    for signal in ["-INT", "-KILL"] {
        let test = Test::new();
        let mark = format!("{}{signal}", 88_000 + std::process::id() % 1000);
        let script = format!("setsid sh -c 'sleep 600; : {mark}' & sleep 600; : {mark}");
        let mut child =
            test.start(&[&["compare", "running", "running"], &QUICK[..], &["--", "sh", "-c", &script]].concat());
        let began = Instant::now();
        // bigiron itself, the shell and what it put into a session of its own.
        while processes_with(&mark) < 3 {
            assert!(began.elapsed() < PATIENCE, "no trial has begun");
            std::thread::sleep(Duration::from_millis(20));
        }
        let killed = std::process::Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let status = child.wait().unwrap();
        if signal == "-INT" {
            assert_eq!(status.code(), Some(130));
            // Ctrl-C waits for the end of all of it.
            assert_eq!(processes_with(&mark), 0);
        }
        wait_until_gone(&mark);
    }
}

#[test]
fn the_machine_is_graded_and_every_trial_says_what_disturbed_it() {
    let test = Test::new();
    let card = test.run(&["doctor", "--on", "local"]).status(0).stdout;
    for what in [
        "governor",
        "boost",
        "SMT",
        "steal",
        "foreign CPU",
        "throttling",
        "swap",
        "memory",
        "NUMA",
        "THP",
        "machine",
        "clock source",
    ] {
        let line = card.lines().find(|l| l[9..].starts_with(what)).unwrap_or_else(|| panic!("no {what}: {card}"));
        assert!(["ok ", "noisy ", "unknown "].iter().any(|grade| line.starts_with(grade)), "{line}");
    }
    // Long enough for shares to be told, and busy beside it.
    let script = "setsid sleep 0.3 & sleep 0.3";
    let ran = compare(&test, &["running", "running"], &["--", "sh", "-c", script]).status(0);
    ran.stdout_has("host.foreign-cpu-percent: ").stdout_has("host.throttles: 0").stdout_has("host.steal-percent: ");
    let text = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap();
    for line in text.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let facts = &record["record"]["facts"];
        assert!(facts["host.settings"].as_str().unwrap().contains("governor: "), "{facts}");
        // Whoever was busy, nobody's share is more than all.
        let share: f64 = facts["host.foreign-cpu-percent"].as_str().unwrap().parse().unwrap();
        assert!((0.0..=100.0).contains(&share), "{share}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_runs() {
    let test = Test::new().file("study.toml", "arms = [\"running\", \"running\"]\n[machine]\nhost = \"local\"\n[command]\nrun = \"true\"\n[[command.metric]]\nname = \"t\"\nunit = \"s\"\nbetter = \"lower\"\nregex = \"took (\"\n");
    let both = ["running", "running"];
    for (rest, want) in [
        (&["--", "no-such-program"][..], "Arm `running` cannot be run: there is no program `no-such-program` in PATH"),
        (&["--", "./bench"], "there is no program `./bench`"),
        (&["command"], "has no program; write it after `--`"),
        (&["--set", "command.dir=nowhere", "--", "true"], "there is no folder `nowhere`"),
        (&["--set", "command.repeats=0", "--", "true"], "`command.repeats` must be from 1 to 10000"),
        (&["--set", "command.limit=soon", "--", "true"], "`command.limit` must be a time such as"),
        (&["--set", "command.rn=true"], "did you mean `command.run`?"),
        (
            &["--metric", "t,unit=s,better=lower,regex=took (", "--", "true"],
            "--metric: Metric `t`: `took (` is not a regular",
        ),
        (&["--metric", "wall,unit=s,better=lower,json=/t", "--", "true"], "is always measured"),
    ] {
        test.run(&[&["compare"], &both[..], &QUICK, rest].concat()).refused(want);
    }
    test.run(&["run", "study.toml"]).refused("study.toml:10: Metric `t`: `took (` is not a regular expression");
    assert!(test.entries("study").is_empty() && test.entries("bigiron-results").is_empty());
}

#[test]
fn a_program_that_has_changed_is_not_answered_for() {
    let test = Test::new().file("prog.sh", "#!/bin/sh\ntrue\n");
    let again = || compare(&test, &["running", "running"], &["--", "sh", "./prog.sh"]);
    again().status(0);
    again().status(0).stderr_has("already answers this question");
    let test = &test;
    fs::write(test.dir().join("prog.sh"), "#!/bin/sh\nfalse || true\n").unwrap();
    again().refused("The inputs of the study in `study` have changed since it began: `command.file ./prog.sh`: ");
    test.run(&["report", "study"]).status(0);
    let fresh = compare(test, &["running", "running"], &["--fresh", "--", "sh", "./prog.sh"]).status(0);
    assert!(fresh.stderr.contains("study-2"), "{}", fresh.stderr);
    // The old study is still there, and the new one is the answer to nothing but its own question.
    assert_ne!(test.records("study"), test.records("study-2"));
}

#[test]
fn a_program_that_fails_everywhere_stops_the_study_after_the_first_trials() {
    let test = Test::new();
    let script = "echo missing library >&2; exit 3";
    let alone = alone_as_root();
    let ran = compare(&test, &["running", "running,mm.thp=always"], &["--", "sh", "-c", script]).status(1);
    let ran = ran.stderr_has("The workload failed in the first trial of every arm").stderr_has("missing library");
    assert!(ran.stderr.contains("`--fresh`"), "{}", ran.stderr);
    drop(alone);
    assert_eq!(failures(test.dir()).len(), 2);
    // A metric that the program does not print.
    let metric = ["--fresh", "--metric", "rate,unit=op/s,better=higher,regex=rate ([0-9.]+)", "--", "true"];
    let ran = compare(&test, &["running", "running"], &metric).status(1);
    ran.stderr_has("failed in the first trial of every arm").stderr_has("rate");
    // A failure of one arm alone is what a study is for.
    let one = ["running", "running,command.run=false"];
    let test = Test::new();
    compare(&test, &one, &["--set", "command.run=true"]).status(0).stdout_has("worse");
    assert_eq!(failures(test.dir()).len(), 8);
}
