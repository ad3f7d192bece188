//! Whole studies of real kernels under the exact clock.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{evidence, test, underway};
use crate::builder::Test;

/// Metrics that differ between 6.1 and 6.12, and cost little to measure.
const FEW: &str = "micro.only=fork-exit,fault-private,pipe-rtt";

/// The same, and one that waits for a disk at every operation: thousands of times the guest jumps to its next timer.
const FEW_AND_A_DISK: &str = "micro.only=fork-exit,fault-private,pipe-rtt,pread-4k-direct";

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

fn report(test: &Test, study: &str) -> Value {
    serde_json::from_str(&test.run(&["report", study, "--format", "json"]).status(0).stdout).unwrap()
}

fn line<'a>(report: &'a Value, metric: &str) -> &'a Value {
    let lines = report["comparisons"][0]["lines"].as_array().expect("a finished study has lines");
    lines.iter().find(|l| l["metric"]["name"] == metric).unwrap_or_else(|| panic!("no line `{metric}`"))
}

/// Both ends of the 95 % interval of the change, in percent.
#[track_caller]
fn interval(report: &Value, metric: &str) -> (f64, f64) {
    let ci = &line(report, metric)["ci95"];
    (ci[0]["value"].as_f64().expect("an interval"), ci[1]["value"].as_f64().unwrap())
}

#[test]
fn the_same_study_gives_the_same_numbers_on_a_loaded_machine_and_through_a_kill() {
    let test = test();
    let args = |out| {
        let study = ["compare", "debian:6.1", "debian:6.12", "micro", "--set", FEW_AND_A_DISK];
        [&study[..], &["--clock", "exact", "--quick", "--seed", "7", "--out", out]].concat()
    };
    test.run(&args("quiet")).status(0);

    // The second time both cores are busy, and bigiron is killed, started again and interrupted: a quarter of the boots is enough.
    // A processor is modelled in each of these boots, which changes nothing either.
    let (_one, _two) = (Spinner::start(), Spinner::start());
    let modelled = [&["compare", "--model"], &args("loaded")[1..]].concat();
    let mut killed = underway(&test, &modelled, 2);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let interrupted = underway(&test, &modelled, 4);
    kill_process(Pid::from_child(&interrupted), Signal::INT).unwrap();
    let said = String::from_utf8(interrupted.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("Resuming"), "{said}");

    let (records, again) = (test.records("quiet"), test.records("loaded"));
    assert_eq!(records.len(), 8);
    assert!(records.values().all(|metrics| metrics.len() == 5));
    assert!(again.len() >= 4);
    for (slot, metrics) in &again {
        assert_eq!(metrics, &records[slot], "every digit of every metric");
    }

    for slot in [0, 1] {
        let [rerun, judged] = ["quiet", "loaded"].map(|study| evidence(&test, study, slot));
        assert!(rerun["windows"][0]["modelled"].as_array().is_some_and(|functions| functions.len() > 10));
        assert!(rerun["windows"] == judged["windows"], "every count of trial {slot}");
    }

    let report = report(&test, "quiet");
    for (metric, b_is) in [("fork-exit", 1.0), ("fault-private", 1.0), ("pipe-rtt", -1.0)] {
        let (low, high) = interval(&report, metric);
        assert!(low * b_is > 0.0 && high * b_is > 0.0, "{metric}: {low} … {high} %");
        // Nothing but the marks' own neighbourhood of the clock can be missing.
        let causes = causes(&report, metric);
        assert!((0.95..=1.05).contains(&causes["explained"].as_f64().unwrap()), "{causes}");
    }
    // A fork is a fork in both kernels, whether the kernel counts it or its system calls are counted.
    let counted = report["counters"][0]["lines"].as_array().expect("the kernel counts");
    let is_it = |c: &&Value| c["counter"] == "sched.forks" && c["metrics"] == serde_json::json!(["fork-exit"]);
    let forks = counted.iter().find(is_it).expect("forks");
    let calls = causes(&report, "fork-exit")["system_calls"].as_array().unwrap();
    let exits = calls.iter().find(|c| c["name"] == "exit_group" || c["name"] == "exit").expect("a call");
    for (of, a, b) in [(forks, "baseline_mean", "arm_mean"), (exits, "baseline", "arm")] {
        assert!([a, b].iter().all(|arm| (of[*arm].as_f64().unwrap() - 1.0).abs() < 0.05), "{of}");
    }
    // What was profiled is what was judged.
    let looking = &report["causes"]["looking"];
    assert_eq!((&looking["trials"], &looking["identical"]), (&2.into(), &2.into()), "{}", report["causes"]);
}

/// Why a metric differs.
fn causes<'a>(report: &'a Value, metric: &str) -> &'a Value {
    let lines = report["causes"]["lines"].as_array().expect("a line that differs was looked into");
    lines.iter().find(|l| l["metric"] == metric).unwrap_or_else(|| panic!("no causes of `{metric}`"))
}

#[test]
fn a_kernel_against_itself_is_the_same() {
    let test = test();
    let args = ["compare", "debian:6.12", "debian:6.12", "micro", "--set", FEW];
    let ran = test.run(&[&args[..], &["--clock", "exact", "--quick", "--seed", "1", "--out", "aa"]].concat()).status(0);
    let report = report(&test, "aa");
    assert_eq!(report["verdict"], "same", "{}", ran.stdout);
    let records = test.records("aa");
    let fork = |slot: u64| records[&slot].iter().find(|(name, _)| name == "fork-exit").unwrap().1;
    assert!((1..8).any(|slot| fork(slot) != fork(0)), "boots differ, else the interval speaks of nothing");
}

#[test]
fn switching_the_mitigations_off_is_seen_and_helps_and_is_named() {
    let test = test();
    let arms = ["compare", "debian:6.12", "debian:6.12,boot.mitigations=off", "micro"];
    let few = ["--set", "micro.only=null-call", "--clock", "exact", "--quick", "--seed", "3", "--locks", "1"];
    let ran = test.run(&[&arms[..], &few[..], &["--out", "control"]].concat()).status(0);
    let report = report(&test, "control");
    assert_eq!(report["verdict"], "better", "{}", ran.stdout);
    assert!(interval(&report, "null-call").1 < -5.0, "fewer instructions per system call: {}", ran.stdout);
    let first = causes(&report, "null-call")["causes"][0]["function"].as_str().unwrap().to_owned();
    assert!(first.starts_with("entry_SYSCALL") || first.contains("untrain") || first.contains("srso"), "{first}");
    // On a processor, too: the returns that the mitigations make it mispredict are gone.
    let modelled = &causes(&report, "null-call")["modelled"];
    assert_eq!(modelled["agreement"], "robust", "{modelled}");
    let parts = modelled["processors"][0]["components"].as_array().unwrap();
    let missed = parts.iter().find(|part| part["component"] == "mispredictions").expect("a part of the cycles");
    let [with, without] = ["baseline_cycles", "arm_cycles"].map(|arm| missed[arm].as_f64().unwrap());
    assert!(with > 100.0 && without < 20.0, "{missed}");
    // A call is one: what the model counts is what was executed.
    let profiled = evidence(&test, "control", 0);
    let window = &profiled["windows"][0];
    for (event, each) in [("syscall", 1.0), ("sysret", 1.0), ("swapgs", 2.0)] {
        let n = super::modelled(&profiled, event);
        let each_has = n as f64 / window["operations"].as_f64().unwrap();
        assert!((each_has - each).abs() < 0.01, "{event}: {each_has}");
    }
    // What was waited for was asked for: with one CPU it may be nothing, but the kernel has told of all of it.
    let traced = &report["locks"]["traced"];
    assert_eq!((&traced["trials"], &traced["lost"]), (&2.into(), &0.into()), "{traced}");
    assert!(
        traced["events"].as_u64().unwrap() > 0 && report["locks"]["untold"] == Value::Array(Vec::new()),
        "{traced}"
    );
    let lines = report["locks"]["lines"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["metric"] == "null-call"), "{}", report["locks"]);
}

#[test]
fn a_parameter_that_the_kernel_does_not_know_is_an_error_and_not_a_result() {
    let test = test();
    let args = ["compare", "debian:6.12", "debian:6.12,boot.nosuchthing=1", "micro", "--set", FEW, "--clock", "exact"];
    let ran = test.run(&[&args[..], &["--jobs", "1", "--out", "unknown"]].concat()).status(1);
    ran.stderr_has("Lever `nosuchthing=1` did not take");
}
