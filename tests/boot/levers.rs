//! Levers of a running kernel, set in real guests.

use serde_json::Value;

use super::test;
use crate::builder::{PATIENCE, Test};

/// What each takes; the order is not that in which they can be set.
const SET: &[&str] = &[
    "block.iosched.low_latency=0",
    "block.scheduler=bfq",
    "block.nr-requests=32",
    "block.read-ahead=256K",
    "sysctl.vm.swappiness=10",
    "mm.thp=never",
    "mm.hugepages-2m=8",
    "mm.mglru=off",
    "mm.swap=zram:64M",
    "memory.limit=256M",
    "cpu.pin=0",
    "cpu.sched.preempt=full",
    "fs.mount=data=writeback,lazytime",
    "net.napi-threaded=on",
    "net.gro=on",
    "net.tso=off",
    "sysctl.net.ipv4.tcp_syncookies=0",
];

/// Both arms have clients behind network devices, and little work.
const ALL: &[&str] = &[
    "micro.only=null-call,pread-4k-direct",
    "dbsim.run.network=veth",
    "dbsim.process.user.kind=client",
    "dbsim.process.user.transport=tcp",
    "dbsim.process.user.reply=64K",
    "dbsim.process.foreground.count=0",
    "dbsim.scan=off",
    "dbsim.data=10M",
    "dbsim.cache=8M",
    "dbsim.transactions=40",
];

/// The records of a study. A line without an end is still being written, or was when the study was killed.
fn records(test: &Test, study: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(test.dir().join(study).join("records.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].clone()).collect()
}

/// A study of one pair's length is refused, so it is broken off after its first trials.
#[test]
fn levers_of_a_guest_are_set_and_read_back() {
    let test = test();
    let arm = format!("debian:6.12,{}", SET.join(","));
    let args = ["compare", "debian:6.12", &arm, "micro", "dbsim", "--clock", "exact"];
    let set: Vec<&str> = ALL.iter().flat_map(|setting| ["--set", setting]).collect();
    let mut study = test.start(&[&args[..], &set, &["--jobs", "2", "--out", "levers"]].concat());
    let begun = std::time::Instant::now();
    // The first two to end may be of one arm.
    let has = |name: &str| records(&test, "levers").iter().any(|record| record["arm"] == name);
    while !has(&arm) || !has("debian:6.12") {
        if study.try_wait().unwrap().is_some() {
            let output = study.wait_with_output().unwrap();
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        }
        assert!(begun.elapsed() < PATIENCE, "no records");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    study.kill().unwrap();
    study.wait().unwrap();
    let records = records(&test, "levers");
    let set = records.iter().find(|r| r["arm"] == arm.as_str()).expect("a trial of the arm with levers");
    assert_eq!(set["outcome"]["kind"], "completed", "{set}");
    let after = |end: &str| {
        let changes = set["changes"].as_array().unwrap();
        let change = changes.iter().find(|c| c["path"].as_str().unwrap().ends_with(end));
        change.unwrap_or_else(|| panic!("no change of {end} in {changes:?}"))["after"].as_str().unwrap().to_owned()
    };
    for (file, want) in [
        ("queue/scheduler", "bfq"),
        ("iosched/low_latency", "0"),
        ("nr_requests", "32"),
        ("read_ahead_kb", "256"),
        ("swappiness", "10"),
        ("transparent_hugepage/enabled", "never"),
        ("hugepages-2048kB/nr_hugepages", "8"),
        ("lru_gen/enabled", "0x0000"),
        ("memory.max", "268435456"),
        ("sched/preempt", "full"),
        ("gro of bigiron0 (servers)", "on"),
        ("tso of bigiron1 (clients)", "off"),
        ("bigiron1/threaded (clients)", "1"),
        ("tcp_syncookies", "0"),
        ("tcp_syncookies (clients)", "0"),
    ] {
        assert_eq!(after(file), want, "{file}");
    }
    assert!(after("/proc/swaps").starts_with("/dev/zram0 partition 6553"), "{}", after("/proc/swaps"));
    let plain = records.iter().find(|r| r["arm"] == "debian:6.12").expect("a trial of the arm without");
    assert!(plain["changes"].is_null(), "{plain}");
    // What servers send in one piece is 64 KiB and more where the device cuts it, and a packet where it does not.
    let sent = |record: &Value| {
        let text = record["facts"]["dbsim.network.servers-sent"].as_str().unwrap().to_owned();
        text.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(sent(set) <= 1514 && sent(plain) > 10_000, "{} {}", sent(set), sent(plain));
    // An arm has a lever of its file system, so the first pair tries what all file systems can do.
    for record in [set, plain] {
        let found = |feature: &str| record["facts"][format!("file-system.{feature}")].as_str().unwrap_or("none");
        // With the blocks of 1 KiB that mke2fs takes for a disk so small.
        assert_eq!(found("largest-file"), "4 TiB", "{record}");
        assert_eq!(found("longest-name"), "255 bytes");
        assert_eq!(found("links-to-a-file"), "65000");
        assert_eq!((found("preallocation"), found("reflink"), found("direct-I-O-from")), ("yes", "no", "512 B"));
    }
}

#[test]
fn a_lever_that_does_not_take_stops_the_study_with_the_kernels_offer() {
    let test = test();
    let arm = "debian:6.12,sysctl.vm.nosuchthing=1";
    let args = ["compare", arm, arm, "micro", "--set", "micro.only=pread-4k-direct", "--clock", "exact"];
    let ran = test.run(&[&args[..], &["--jobs", "1", "--out", "none"]].concat()).status(1);
    ran.stderr_has("Lever `sysctl.vm.nosuchthing=1` did not take: this kernel has no `/proc/sys/vm/nosuchthing`");
    assert_eq!(records(&test, "none"), Vec::<Value>::new(), "it is not a failure of the arm");
}
