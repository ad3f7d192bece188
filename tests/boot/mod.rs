//! Tests that really boot Debian kernels in QEMU. Kernels are fetched once and kept below `target/`.
//!
//! Tests start in the order of their names. The longest are in the modules that sort first, so that none runs alone at the end.

mod again;
mod app;
mod causes;
mod clock;
mod command;
mod crash;
mod interrupted;
mod jvm;
mod levers;
mod loads;
mod machine;
mod multiuser;
mod oltp;
mod qemu;
mod replaced;
mod studies;
mod survival;

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::builder::{PATIENCE, Test};

/// The cache that all boot tests share.
fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("boot-cache")
}

/// A run with the shared cache.
fn test() -> Test {
    Test::new().cache(cache())
}

/// Starts a study and lets it get as far as `records` boots.
fn underway(test: &Test, args: &[&str], records: usize) -> Child {
    underway_until(test, args, || boots(test, args.last().unwrap()) >= records)
}

/// Starts a study and lets it get as far as `there`.
fn underway_until(test: &Test, args: &[&str], there: impl Fn() -> bool) -> Child {
    let mut child = test.start(args);
    let begun = Instant::now();
    while !there() {
        assert!(child.try_wait().unwrap().is_none(), "ended before it was stopped");
        assert!(begun.elapsed() < PATIENCE, "no records");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

/// Boots that are on record, whatever came of them. A line without an end is still being written.
fn boots(test: &Test, study: &str) -> usize {
    let log = std::fs::read_to_string(test.dir().join(study).join("records.jsonl")).unwrap_or_default();
    log.matches('\n').count()
}

/// The record of the first trial of a study of one kernel in `out`, under the exact clock; the study is interrupted then.
fn first(test: &Test, out: &str, args: &[&str]) -> Value {
    let study = ["compare", "debian:6.12", "debian:6.12", "--clock", "exact", "--seed", "7", "--jobs", "1"];
    test.first_record(out, &[&study[..], args].concat())
}

/// What a trial executed.
fn evidence(test: &Test, study: &str, slot: u32) -> Value {
    let path = test.dir().join(format!("{study}/evidence/{slot:04}.json"));
    serde_json::from_slice(&std::fs::read(path).expect("the trial was profiled")).unwrap()
}

/// How often the model counted an event in the first window of what a trial executed.
fn modelled(evidence: &Value, event: &str) -> u64 {
    let place = evidence["places"].as_array().unwrap().iter().position(|name| name == event).expect("an event");
    let functions = evidence["windows"][0]["modelled"].as_array().unwrap().iter();
    let counts = functions.flat_map(|of| of[1].as_array().unwrap()).filter(|count| count[0] == place);
    counts.map(|count| count[1].as_u64().unwrap()).sum()
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

/// Why a metric differs.
fn causes<'a>(report: &'a Value, metric: &str) -> &'a Value {
    let lines = report["causes"]["lines"].as_array().expect("a line that differs was looked into");
    lines.iter().find(|l| l["metric"] == metric).unwrap_or_else(|| panic!("no causes of `{metric}`"))
}
