//! The clock of a machine that is set while a study measures there: in a guest, whose clock is nobody else's.

use std::fs;

use super::test;
use crate::builder::is_long;

/// Sets the clock forward by a day and back by three, ten times a second, while `$@` runs.
const JUMPS: &str = "(while :; do date -s '+1 day'; sleep 0.1; date -s '-3 days'; sleep 0.1; done) >jumps 2>&1 &
jumps=$!
\"$@\"
ended=$?
kill $jumps
[ $(sort -u jumps | wc -l) -ge 2 ] && exit $ended";

/// A study on the guest's own kernel, as on any machine.
const STUDY: &str = "export BIGIRON_CACHE=/tmp/cache XDG_STATE_HOME=/tmp/state HOME=/tmp
./bigiron compare --on local running running --pairs 8 --idle-gap 0 --seed 5 --out study -- sleep 0.05 >text 2>&1 || { cat text; exit 1; }
grep -c '\"kind\":\"completed\"' study/records.jsonl
grep -o '\"command\":{[^}]*' study/records.jsonl | grep -o '\"wall\":[^,]*'";

/// In full a whole study runs so; else only a program of a known time, which the agent measures.
#[test]
fn a_clock_that_is_set_changes_no_measured_time_and_no_limit() {
    let test = test().file("src/jumps.sh", JUMPS).file("src/study.sh", STUDY);
    let what: &[&str] = if is_long() { &["sh", "study.sh"] } else { &["sleep", "0.5"] };
    if is_long() {
        fs::copy(env!("CARGO_BIN_EXE_bigiron"), test.dir().join("src/bigiron")).unwrap();
    }
    let args = ["--set", "command.dir=src", "--set", "command.disk=1G", "--", "sh", "jumps.sh"];
    let record = super::first(&test, "out", &[&args, what].concat());
    let outcome = &record["outcome"];
    assert_eq!(outcome["kind"], "completed", "{record}");
    if !is_long() {
        let wall = record["metrics"]["command"]["wall"].as_f64().unwrap();
        assert!((0.5e9..5e9).contains(&wall), "{wall} ns");
        return;
    }
    let artifacts = record["artifacts"].as_array().unwrap().iter().filter_map(|name| name.as_str());
    let stdout =
        artifacts.filter(|name| name.ends_with("command.run-1.stdout")).map(|name| test.dir().join("out").join(name));
    let said: String = stdout.map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("16"), "trials completed: {said}");
    let walls: Vec<f64> = lines.map(|line| line.split(':').nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(walls.len(), 16, "{said}");
    assert!(walls.iter().all(|wall| (0.05e9..1e9).contains(wall)), "{said}");
}
