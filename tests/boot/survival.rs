//! Guests that panic, hang and lose their agent: each is its arm's outcome. (That it decides the verdict: `interrupted`.)

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
