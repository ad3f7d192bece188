//! A study that is repeated on a loaded machine, through a kill and an interrupt.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{causes, evidence, interval, report, test, underway, underway_until};

/// Metrics that differ between 6.1 and 6.12 and cost little to measure; one that moves a page each time, at once or in parts; and one that waits for a disk at every operation: thousands of times the guest jumps to its next timer.
const FEW_AND_A_DISK: &str = "micro.only=fork-exit,mmap,fault-private,pipe-rtt,pread-4k-direct";

/// A process that keeps one core busy until dropped; below the tests beside it, which it would only delay.
struct Spinner(Child);

impl Spinner {
    fn start() -> Self {
        let spin =
            Command::new("nice").args(["-n", "19", "sh", "-c", "while :; do :; done"]).stdin(Stdio::null()).spawn();
        Spinner(spin.unwrap())
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the windows of two trials' evidence differ.
fn differences(a: &Value, b: &Value) -> Vec<String> {
    let [one, other] = [a, b].map(|evidence| evidence["windows"].as_array().unwrap());
    assert_eq!(one.len(), other.len());
    let mut found = Vec::new();
    for (x, y) in one.iter().zip(other).filter(|(x, y)| x != y) {
        let window = &x["metric"];
        let before = found.len();
        for (kind, rows) in x.as_object().unwrap() {
            let both = (rows.as_array(), y[kind].as_array());
            let (Some(these), Some(those)) = both else { continue };
            let only =
                |of: &[Value], all: &[Value]| of.iter().filter(|row| !all.contains(row)).cloned().collect::<Vec<_>>();
            let (ours, theirs) = (only(these, those), only(those, these));
            if !ours.is_empty() || !theirs.is_empty() {
                found.push(format!("{window} {kind}: {ours:?} and {theirs:?}"));
            }
        }
        if found.len() == before {
            found.push(format!("{window}: other fields, or another order"));
        }
    }
    found
}

#[test]
fn the_same_study_gives_the_same_numbers_on_a_loaded_machine_and_through_a_kill() {
    let test = test();
    let args = |out| {
        let study = ["compare", "debian:6.1", "debian:6.12", "micro", "--set", FEW_AND_A_DISK];
        [&study[..], &["--clock", "exact", "--quick", "--seed", "7", "--out", out]].concat()
    };
    test.run(&args("quiet")).status(0);

    // The second time both cores are busy, and bigiron is killed, started again and interrupted once the first pair is done.
    // A processor is modelled in each of these boots, which changes nothing either. They run one after the other, so that each end takes at most
    // one of them along: the first time they ran side by side.
    let (_one, _two) = (Spinner::start(), Spinner::start());
    let modelled = [&["compare", "--model", "--jobs", "1"], &args("loaded")[1..]].concat();
    let mut killed = underway(&test, &modelled, 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let pair = [0u32, 1];
    let interrupted = underway_until(&test, &modelled, || {
        pair.iter().all(|slot| test.records("loaded").contains_key(&u64::from(*slot)))
    });
    kill_process(Pid::from_child(&interrupted), Signal::INT).unwrap();
    let said = String::from_utf8(interrupted.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("Resuming"), "{said}");

    let log = |study| std::fs::read_to_string(test.dir().join(study).join("records.jsonl")).unwrap();
    let (records, again) = (test.records("quiet"), test.records("loaded"));
    assert_eq!(records.len(), 8);
    assert!(records.values().all(|metrics| metrics.len() == 6));
    for (slot, metrics) in &again {
        assert_eq!(metrics, &records[slot], "every digit of every metric, trial {slot} of {}", log("loaded"));
    }

    for slot in pair {
        let [rerun, judged] = ["quiet", "loaded"].map(|study| evidence(&test, study, slot));
        assert!(rerun["windows"][0]["modelled"].as_array().is_some_and(|functions| functions.len() > 10));
        assert_eq!(differences(&rerun, &judged), Vec::<String>::new(), "Every count of trial {slot}");
    }

    let report = report(&test, "quiet");
    for (metric, b_is) in [("mmap", -1.0), ("fault-private", 1.0), ("pipe-rtt", -1.0)] {
        let (low, high) = interval(&report, metric);
        assert!(low * b_is > 0.0 && high * b_is > 0.0, "{metric}: {low} … {high} %");
        // Nothing but the marks' own neighbourhood of the clock can be missing.
        let causes = causes(&report, metric);
        assert!((0.95..=1.05).contains(&causes["explained"].as_f64().unwrap()), "{causes}");
    }
    // A fork is a fork in both kernels, and so is a system call.
    let counted = report["counters"][0]["lines"].as_array().expect("the kernel counts");
    let is_it = |c: &&Value| c["counter"] == "sched.forks" && c["metrics"] == serde_json::json!(["fork-exit"]);
    let forks = counted.iter().find(is_it).expect("forks");
    let calls = causes(&report, "mmap")["system_calls"].as_array().unwrap();
    let mapped = calls.iter().find(|c| c["name"] == "munmap").expect("a call");
    for (of, a, b) in [(forks, "baseline_mean", "arm_mean"), (mapped, "baseline", "arm")] {
        assert!([a, b].iter().all(|arm| (of[*arm].as_f64().unwrap() - 1.0).abs() < 0.05), "{of}");
    }
    // What was profiled is what was judged.
    let looking = &report["causes"]["looking"];
    assert_eq!((&looking["trials"], &looking["identical"]), (&2.into(), &2.into()), "{}", report["causes"]);
}
