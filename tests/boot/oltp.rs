//! Real servers in guests under the exact clock.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::test;
use crate::builder::{PATIENCE, Test};

/// Enough transactions of each kind, and no more: a guest under emulation does some hundred a second.
const STUDY: &[&str] = &[
    "compare",
    "debian:6.1",
    "debian:6.12",
    "oltp",
    "--clock",
    "exact",
    "--seed",
    "7",
    "--jobs",
    "1",
    "--set",
    "oltp.ramp=20",
    "--set",
    "oltp.length=200",
    "--out",
    "study",
];

/// The first record, whole, with these settings besides. The study is interrupted then: nothing is said of its arms here.
fn first_boot(test: &Test, settings: &[&str]) -> Value {
    let mut child = test.start(&[STUDY, settings].concat());
    let begun = Instant::now();
    let record = loop {
        let text = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(line) = lines.find(|line| line["record"]["slot"] == 0) {
            break line["record"].clone();
        }
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            panic!("ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        assert!(begun.elapsed() < PATIENCE, "no boot is done");
        std::thread::sleep(Duration::from_millis(100));
    };
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    record
}

#[test]
fn the_same_transactions_take_the_same_time_twice() {
    let (one, two) = (first_boot(&test(), &[]), first_boot(&test(), &[]));
    assert_eq!(one["outcome"]["kind"], "completed", "{one:#}");
    assert_eq!(one["facts"]["oltp.transactions"], "200");
    assert!(one["facts"]["oltp.agreement"].as_str().unwrap().contains("by the database's"));
    assert!(one["facts"]["oltp.durability"].as_str().unwrap().contains("fsync=on"));
    assert_eq!(one["metrics"], two["metrics"]);
}

#[test]
#[ignore = "two boots of a minute each; that MariaDB's transactions are right is tested without a guest"]
fn mariadb_takes_the_same_time_twice() {
    let [one, two] = [(); 2].map(|()| first_boot(&test(), &["--set", "oltp.engine=mariadb"]));
    assert_eq!(one["outcome"]["kind"], "completed", "{one:#}");
    assert!(one["facts"]["oltp.durability"].as_str().unwrap().contains("innodb_flush_log_at_trx_commit=1"));
    assert_eq!(one["metrics"], two["metrics"]);
}
