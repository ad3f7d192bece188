//! A program of the user's in a guest, over an image of what it needs of this machine.

use std::fs;

use serde_json::Value;

use super::test;
use crate::builder::Test;

const SCRIPT: &str = "uname -r; cat input | tr a-z A-Z; echo made > output; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.5 & wait";

/// The record of the first trial and what its command printed. The study is interrupted then.
fn first(test: &Test, out: &str, options: &[&str]) -> (Value, String) {
    let record = super::first(test, out, &[options, &["--set", "command.dir=src", "--", "sh", "-c", SCRIPT]].concat());
    let kept = record["artifacts"].as_array().unwrap().iter().map(|a| a.as_str().unwrap());
    let stdout = kept.filter(|a| a.ends_with("command.run-1.stdout")).map(|a| test.dir().join(out).join(a));
    let stdout = stdout.map(|path| fs::read_to_string(path).unwrap()).collect();
    (record, stdout)
}

#[test]
fn the_users_own_tools_run_in_a_guest_and_take_the_same_time_twice() {
    let test = test().file("src/input", "hello\n");
    // The second time a processor is modelled, which reads the guest's page tables, and changes nothing.
    let trials = [("study", &[][..]), ("again", &["--model"][..])].map(|(out, options)| {
        let (record, stdout) = first(&test, out, options);
        assert_eq!(record["outcome"]["kind"], "completed", "{record}");
        let release = record["guest"]["release"].as_str().unwrap();
        assert_eq!(stdout, format!("{release}\nHELLO\n"));
        // What it wrote is gone with the guest.
        assert!(!test.dir().join("src/output").exists());
        (record["metrics"].clone(), record["environment"].clone())
    });
    let facts = trials[0].1.as_object().unwrap();
    for fact in ["clock-source", "cpu", "memory-kib", "preemption", "vulnerability.spectre_v1"] {
        assert!(facts.contains_key(fact), "{fact}: {facts:?}");
    }
    assert!(facts.keys().any(|fact| fact.starts_with("module.")), "{facts:?}");
    let wall = trials[0].0["command"]["wall"].as_f64().unwrap();
    assert!((0.5e9..5e9).contains(&wall), "{wall} ns of virtual time");
    // The same numbers, and the same facts.
    assert_eq!(trials[0], trials[1]);
    // Beside an image, which QEMU maps too: the guest's memory is told from it.
    let walks = super::modelled(&super::evidence(&test, "again", 0), "tlb-walk");
    assert!(walks > 1000, "{walks} walks of page tables");
}

#[test]
fn a_command_that_takes_all_disk_or_memory_is_reported_as_that() {
    let test = test().file("src/input", "");
    let outcome = |out: &str, args: &[&str]| {
        let args =
            [&["--set", "command.dir=src", "--set", "command.disk=64M", "--memory", "512M", "--"], args].concat();
        let outcome = super::first(&test, out, &args)["outcome"].clone();
        (outcome["failure"].as_str().unwrap().to_owned(), outcome["message"].as_str().unwrap().to_owned())
    };
    let (failure, message) = outcome("disk", &["dd", "if=/dev/zero", "of=x", "bs=1M", "count=400"]);
    assert_eq!(failure, "no-space", "{message}");
    assert!(message.starts_with("command: No space left on the workload's file system, "), "{message}");
    assert!(message.contains("; `command.disk` gives it more: run-1 of `dd "), "{message}");
    let (failure, message) = outcome("memory", &["tail", "/dev/zero"]);
    assert_eq!(failure, "out-of-memory", "{message}");
    assert!(message.starts_with("command: Out of memory: the kernel killed a process (run-1 of `tail "), "{message}");
}
