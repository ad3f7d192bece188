//! Every row of the table of exit statuses in docs/reference/cli.md.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::builder::{Test, skipped};

const WORSE: [&str; 2] = ["--fail-on", "worse"];
const INCONCLUSIVE: [&str; 2] = ["--fail-on", "inconclusive"];

/// A study of two simulated kernels, of which `script` says what happens.
fn study(script: &str) -> String {
    format!(
        "arms = [\"debian:6.1\", \"debian:6.12\"]\nworkloads = [\"micro\"]\n\n[design]\npairs = 8\nseed = 7\nclock = \"exact\"\n\n\
         [machine]\nhost = \"sim\"\n\n[sim]\n{script}"
    )
}

fn test(script: &str) -> Test {
    Test::new().file("s.toml", study(script))
}

fn run(test: &Test, more: &[&str]) -> i32 {
    test.run(&[&["run", "s.toml", "--out", "out", "--jobs", "1"], more].concat()).status
}

const SLOWER: &str = "noise = 0.0005\n[sim.effects.\"debian:6.12\"]\n\"*\" = 1.1\n";
const FATAL: &str = "noise = 0.0005\n[[sim.incidents]]\nwhat = \"fatal\"\nslot = 9\n";

#[test]
fn success_is_0_whatever_the_verdict_unless_asked_otherwise() {
    let test = test(SLOWER);
    assert_eq!(run(&test, &[]), 0);
    assert_eq!(test.run(&["report", "out"]).status, 0);
}

#[test]
fn failure_is_1() {
    assert_eq!(run(&test(FATAL), &[]), 1);
}

#[test]
fn refusal_is_2() {
    assert_eq!(run(&test("nonsense = 1\n"), &[]), 2);
    assert_eq!(Test::new().run(&["compare", "debian:6.1"]).status, 2);
    assert_eq!(Test::new().run(&["report", "nowhere"]).status, 2);
    assert_eq!(Test::new().run(&["show", "nowhere", "1.A"]).status, 2);
}

#[test]
fn worse_is_3_and_inconclusive_is_4() {
    let slower = test(SLOWER);
    assert_eq!((run(&slower, &WORSE), run(&slower, &INCONCLUSIVE)), (3, 3));
    let noisy = test("noise = 0.2\n");
    assert_eq!((run(&noisy, &WORSE), run(&noisy, &INCONCLUSIVE)), (0, 4));
}

#[test]
fn a_study_without_a_valid_result_is_5_and_never_passes() {
    let unfinished = test(FATAL);
    run(&unfinished, &[]);
    let report = |test: &Test, more: &[&str]| test.run(&[&["report", "out"], more].concat()).status;
    assert_eq!((report(&unfinished, &[]), report(&unfinished, &WORSE), report(&unfinished, &INCONCLUSIVE)), (0, 5, 5));
    // No boot of either kernel completes: nothing was compared.
    let panic = |arm: &str, pair: u32| format!("[[sim.incidents]]\nwhat = \"panic\"\narm = \"{arm}\"\npair = {pair}\n");
    let all: String = (0..8).map(|pair| panic("debian:6.1", pair) + &panic("debian:6.12", pair)).collect();
    let dead = test(&format!("noise = 0.0005\n{all}"));
    assert_eq!((run(&dead, &[]), run(&dead, &WORSE), run(&dead, &INCONCLUSIVE)), (0, 5, 5));
    let invalid = test("noise = 0.0005\n");
    run(&invalid, &[]);
    invalid.edit_plan("out", |plan| format!("{plan}\n[failed_check]\nkernel = \"6.12\"\nreasons = [\"noise\"]\n"));
    assert_eq!((report(&invalid, &[]), report(&invalid, &WORSE), report(&invalid, &INCONCLUSIVE)), (0, 5, 5));
}

/// The status of a study that `signal` reaches while a trial runs.
fn signalled(signal: Signal) -> i32 {
    // The second trial lasts for ever, so that the study cannot end by itself, however late the signal comes.
    let test = test("noise = 0.0005\n[[sim.incidents]]\nwhat = \"stall\"\nslot = 1\n");
    let child = test.start(&["run", "s.toml", "--out", "out", "--jobs", "1"]);
    // Before the first trial, a signal may simply end the process.
    while test.records("out").is_empty() {
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait_with_output().unwrap().status.code().expect("it ended by itself")
}

/// Whether this process was started so that it ignores the end of its terminal, which bigiron inherits and keeps to.
fn is_under_nohup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 << (Signal::HUP.as_raw() - 1) != 0
}

#[test]
fn a_signal_is_128_and_its_number() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        assert_eq!(signalled(signal), status);
    }
    if is_under_nohup() {
        return skipped("these tests run under `nohup`, where bigiron ignores SIGHUP");
    }
    assert_eq!(signalled(Signal::HUP), 129);
}

#[test]
fn a_reader_that_closes_the_pipe_changes_no_status() {
    let test = test(SLOWER);
    run(&test, &[]);
    for (options, status) in [("", 0), ("--format json", 0), ("--format json --fail-on worse", 3)] {
        // No reader is left when the report is written.
        let line = format!(
            "sleep 0.1 | {{ exec 3>&1; {{ sleep 0.3; {} report out {options}; echo $? >&3; }} | true; }}",
            crate::builder::executable().display()
        );
        let ended = Command::new("sh").args(["-c", &line]).current_dir(test.dir()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stdout).trim(), status.to_string(), "{options}: {ended:?}");
    }
}
