//! Guests that panic, hang and lose their agent: each is its arm's outcome. (That it decides the verdict: `interrupted`.)

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::test;
use crate::builder::PATIENCE;

/// With blocks that are larger than the guest's pages.
#[test]
fn a_file_system_that_does_not_mount_is_its_arms_outcome() {
    let record =
        super::first(&test(), "mount", &["micro", "--set", "micro.only=pread-4k-direct", "--set", "fs.mkfs=-b 65536"]);
    let outcome = &record["outcome"];
    assert_eq!((&outcome["kind"], &outcome["failure"]), (&"failed".into(), &"mount-failed".into()), "{record}");
    let message = outcome["message"].as_str().unwrap();
    assert!(message.starts_with("Cannot mount /dev/") && message.contains(" as ext4: "), "{message}");
}

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
    // A boot takes 3 s of CPU time, and 5 s on a slow machine.
    let how = ["micro", "--set", "micro.only=null-call", "--clock", "none", "--hang-limit", "15", "--out", "survival"];
    // Until each arm has a record: those that hang take longest.
    let mut child = test.start(&[&["compare"], &arms[..], &how[..]].concat());
    let begun = Instant::now();
    let (records, log) = loop {
        let log = std::fs::read_to_string(test.dir().join("survival/records.jsonl")).unwrap_or_default();
        let whole = log.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
        let records: Vec<Value> =
            whole.map(|line| line["record"].clone()).filter(|r| r["outcome"]["kind"] != "void").collect();
        if records.iter().map(|r| r["arm"].as_str()).collect::<BTreeSet<_>>().len() == arms.len() {
            break (records, log);
        }
        assert!(child.try_wait().unwrap().is_none(), "ended before each arm had a record: {log}");
        assert!(begun.elapsed() < PATIENCE, "an arm has no record: {log}");
        std::thread::sleep(Duration::from_millis(50));
    };
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap();
    let outcomes = |fault: &str| -> BTreeSet<&str> {
        let of_arm = records.iter().filter(|r| r["arm"].as_str().unwrap().ends_with(fault));
        of_arm.map(|r| &r["outcome"]).map(|o| o["failure"].as_str().unwrap_or(o["kind"].as_str().unwrap())).collect()
    };
    assert_eq!(outcomes("=panic"), BTreeSet::from(["panic"]), "{log}");
    assert_eq!(outcomes("=hang"), BTreeSet::from(["hang"]), "{log}");
    assert_eq!(outcomes("=kill-agent"), BTreeSet::from(["agent-died"]), "{log}");
    assert_eq!(outcomes("=kill-init"), BTreeSet::from(["panic"]), "{log}");
    assert_eq!(outcomes("debian:6.12"), BTreeSet::from(["completed"]), "{log}");
    // Without a clock nothing that is a time may be kept.
    assert!(records.iter().all(|r| r["metrics"].as_object().unwrap().is_empty()));
}
