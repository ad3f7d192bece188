//! The workloads of many processes in a guest: messages, shell scripts and a compiler, with this machine's tools over an image of them.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::test;

/// The record of the first trial; the study is interrupted then.
fn first(args: &[&str]) -> Value {
    let test = test();
    let study =
        ["compare", "debian:6.12", "debian:6.12", "--clock", "exact", "--seed", "7", "--jobs", "1", "--out", "study"];
    let mut child = test.start(&[&study[..], args].concat());
    let begun = Instant::now();
    let record = loop {
        let text = fs::read_to_string(test.dir().join("study/records.jsonl")).unwrap_or_default();
        if let Some(line) = text.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok()) {
            break line["record"].clone();
        }
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            panic!("ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        assert!(begun.elapsed() < Duration::from_secs(600), "no boot is done");
        std::thread::sleep(Duration::from_millis(100));
    };
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap();
    record
}

#[test]
fn messages_scripts_and_a_build_do_their_work_in_a_guest() {
    // What is not installed everywhere is left out; what is left needs the compiler that this test was built with.
    let without = "scripts.without=ed,cpio,nroff,col,make,ps";
    let args = [
        "chat",
        "scripts",
        "build",
        "--set",
        "chat.rooms=1",
        "--set",
        "chat.users=5",
        "--set",
        "scripts.users=1",
        "--set",
        without,
        "--set",
        "build.files=1",
        "--set",
        "build.loads=optimal",
        "--set",
        "build.warmup=0",
    ];
    let record = first(&args);
    assert_eq!(record["outcome"]["kind"], "completed", "{record}");
    let fact = |name: &str| record["facts"][name].as_str().unwrap_or_default().to_owned();
    // One room of five, ten messages of each: said once, relayed four times.
    assert_eq!(fact("chat.messages-checked"), "250", "{record}");
    assert_eq!(fact("chat.carrier"), "tcp");
    assert!(fact("scripts.commands-checked").parse::<u32>().unwrap() > 30);
    assert_eq!(fact("build.builds-checked"), "1");
}
