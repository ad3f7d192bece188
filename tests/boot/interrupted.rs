//! A study of real guests, half of which panic, that is interrupted, and whose QEMU is killed, in a folder whose name is hostile to QEMU's options.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{boots, test};
use crate::builder::Test;

const OUT: &str = "a, b=ü/c,d";
const STUDY: &[&str] = &[
    "compare",
    "debian:6.12",
    "debian:6.12,fault.inject=panic",
    "micro",
    "--set",
    "micro.only=null-call",
    "--clock",
    "none",
    "--quick",
    "--seed",
    "1",
    "--out",
    OUT,
];

/// The QEMUs at work for this test.
fn qemus(test: &Test) -> Vec<Pid> {
    let dir = test.dir().to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        let args = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let args = String::from_utf8_lossy(&args).into_owned();
        if args.contains("qemu-system-x86_64") && args.contains(dir) {
            found.extend(pid);
        }
    }
    found
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "no {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Starts the study and lets it get as far as a running guest with `records` boots done.
fn underway(test: &Test, records: usize) -> (Child, Pid) {
    let child = test.start(STUDY);
    let pid = until("guest", || {
        let enough = test.records(OUT).len() >= records;
        qemus(test).first().copied().filter(|_| enough)
    });
    (child, pid)
}

/// Kills a QEMU in the middle of its trial. If its guest was done before the signal came, the trial has a result, and the next one is taken.
fn kill_a_qemu(test: &Test) {
    until("void trial", || {
        let qemu = *qemus(test).first()?;
        let before = boots(test, OUT);
        kill_process(qemu, Signal::KILL).ok()?;
        until("record", || (boots(test, OUT) > before).then_some(()));
        let log = fs::read_to_string(test.dir().join(OUT).join("records.jsonl")).unwrap();
        log.contains("\"kind\":\"void\"").then_some(())
    });
}

/// The line of the plan that names QEMU's version.
fn qemu_version(test: &Test) -> String {
    let plan = fs::read_to_string(test.dir().join(OUT).join("plan.toml")).unwrap();
    plan.lines().find(|line| line.starts_with("qemu = ")).unwrap().to_owned()
}

fn artifacts(test: &Test) -> Vec<PathBuf> {
    let trials = test.entries(&format!("{OUT}/artifacts"));
    trials.iter().flat_map(|trial| fs::read_dir(trial).unwrap()).map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn an_interrupted_study_of_panics_ends_at_once_resumes_and_outlives_a_killed_qemu() {
    let test = test();
    // Fetched before anything is timed.
    test.run(&["kernel", "fetch", "debian:6.12"]).status(0);

    for signal in [Signal::INT, Signal::TERM] {
        let (child, _) = underway(&test, 1);
        let begun = Instant::now();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let done = boots(&test, OUT);
        let ended = child.wait_with_output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60), "ended only after {:?}", begun.elapsed());
        // A guest may have been done when the signal came; no other one was waited for.
        assert!(boots(&test, OUT) <= done + 1, "{} boots after {done}", boots(&test, OUT));
        assert_eq!(ended.status.code(), Some(128 + signal.as_raw()));
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("they are kept in `a, b=ü/c,d`, and the same command resumes"), "{said}");
        assert!(qemus(&test).is_empty(), "a QEMU is left");
        let bulk = |p: &PathBuf| p.ends_with("initramfs") || p.extension().is_some_and(|e| e == "disk");
        assert!(!artifacts(&test).iter().any(bulk), "{:?}", artifacts(&test));
    }

    let (ours, other) = (qemu_version(&test), "qemu = \"99.0.0\"");
    test.edit_plan(OUT, |plan| plan.replacen(&ours, other, 1));
    test.run(STUDY).refused("was begun with QEMU 99.0.0");
    test.edit_plan(OUT, |plan| plan.replacen(other, &ours, 1));

    let (mut killed, _) = underway(&test, 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("end of QEMU", || qemus(&test).is_empty().then_some(()));

    let (child, _) = underway(&test, 2);
    kill_a_qemu(&test);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("Resuming after ") && said.contains("void: QEMU was killed by signal 9"), "{said}");
    let report = test
        .run(&["report", OUT])
        .status(0)
        .stdout_has("panicked in 4 of 4 boots")
        .stdout_has("because of the host, run again");
    // Without a clock nothing that is a time may be seen anywhere.
    for unit in [" ns", " µs", " ms", "tx/s"] {
        assert!(!report.stdout.contains(unit), "`{unit}` in {}", report.stdout);
    }
    let json: Value = serde_json::from_str(&test.run(&["report", OUT, "--format", "json"]).stdout).unwrap();
    assert_eq!(json["comparisons"][0]["verdict"], "worse", "{json}");
}
