//! Guests that panic, hang and lose their agent: each is its arm's outcome and decides the verdict.

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{test, underway};

#[test]
fn a_guest_that_fails_is_its_arms_outcome() {
    let test = test();
    let arms = [
        "debian:6.12",
        "debian:6.12,fault.inject=panic",
        "debian:6.12,fault.inject=hang",
        "debian:6.12,fault.inject=kill-agent",
        "debian:6.12,fault.inject=kill-init",
    ];
    let how = ["micro", "--set", "micro.only=null-call", "--clock", "none", "--hang-limit", "5", "--out", "survival"];
    // Two boots of each arm.
    let child = underway(&test, &[&["compare"], &arms[..], &how[..]].concat(), 2 * arms.len());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap();
    let log = std::fs::read_to_string(test.dir().join("survival/records.jsonl")).unwrap();
    let records: Vec<Value> =
        log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].clone()).collect();
    let outcomes = |fault: &str| -> BTreeSet<&str> {
        let of_arm = records.iter().filter(|r| r["arm"].as_str().unwrap().ends_with(fault));
        let ended = of_arm.map(|r| &r["outcome"]).filter(|o| o["kind"] != "void");
        ended.map(|o| o["failure"].as_str().unwrap_or(o["kind"].as_str().unwrap())).collect()
    };
    assert_eq!(outcomes("=panic"), BTreeSet::from(["panic"]), "{log}");
    assert_eq!(outcomes("=hang"), BTreeSet::from(["hang"]), "{log}");
    assert_eq!(outcomes("=kill-agent"), BTreeSet::from(["agent-died"]), "{log}");
    assert_eq!(outcomes("=kill-init"), BTreeSet::from(["panic"]), "{log}");
    assert_eq!(outcomes("debian:6.12"), BTreeSet::from(["completed"]), "{log}");
    // Without a clock nothing that is a time may be kept.
    assert!(records.iter().all(|r| r["metrics"].as_array().is_none_or(Vec::is_empty)));
}

#[test]
fn a_guest_that_panics_makes_its_arm_worse() {
    let test = test();
    let arms = ["compare", "debian:6.12", "debian:6.12,fault.inject=panic", "micro", "--set", "micro.only=null-call"];
    let how = ["--clock", "none", "--pairs", "8", "--fail-on", "worse", "--out", "panics"];
    let ran = test.run(&[&arms[..], &how[..]].concat()).status(3).stdout_has("panicked in 8 of 8 boots");
    let report = test.run(&["report", "panics", "--format", "json"]).stdout;
    let json: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(json["comparisons"][0]["verdict"], "worse", "{json}");
    // Without a clock nothing that is a time may be seen anywhere.
    for unit in [" ns", " µs", " ms", "tx/s"] {
        assert!(!ran.stdout.contains(unit), "`{unit}` in {}", ran.stdout);
    }
}
