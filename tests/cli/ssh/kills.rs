//! bigiron and its trials on another machine killed at random moments: no trial is lost or run twice, and no setting stays changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::simulated::Simulated;
use crate::builder::Test;
use crate::kills::Moments;

/// What is killed, and when.
struct Kills {
    number: usize,
    seed: u64,
    /// Pairs of one study.
    pairs: usize,
    /// Longest time until a kill.
    longest: Duration,
    /// Whether every other study boots.
    boots: bool,
}

/// Trials that may be killed in one study: a quarter of its pairs may be void.
const TRIALS: usize = 2;

const SWAPPINESS: &str = "vm/swappiness";

/// What came of the kills.
#[derive(Debug, Default)]
struct Seen {
    orchestrators: usize,
    trials: usize,
    studies: usize,
    /// Times that `undo` had a setting to restore.
    restored: usize,
    /// Times that the machine ran a kernel of the study's when bigiron was killed.
    in_a_boot: usize,
}

/// The words of the study `name` with this second arm.
fn words(second: &str, pairs: usize, name: &str) -> Vec<String> {
    let pairs = pairs.to_string();
    let mut words = vec!["compare", "--on", "ssh:db3", "running", second, "--pairs", &pairs, "--idle-gap", "0"];
    words.extend(["--seed", "5", "--why", "0", "--no-way-back", "--out", name, "--", "true"]);
    words.into_iter().map(str::to_owned).collect()
}

/// Runs a study until `moment`, or to its end; whether it has ended, and how.
fn until(child: &mut Child, moment: Option<Duration>, mut meanwhile: impl FnMut(Duration)) -> Option<i32> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if moment.is_some_and(|moment| begun.elapsed() >= moment) {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        assert!(begun.elapsed() < Duration::from_secs(900), "the study does not end");
        meanwhile(begun.elapsed());
        thread::sleep(Duration::from_millis(2));
    }
}

/// Complete lines of a study's records.
fn records(test: &Test, study: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(test.dir().join(study).join("records.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["record"].clone()).collect()
}

/// Kills in as many studies as it takes; every sixth time a trial on the machine, else bigiron here.
fn kill(kills: &Kills) -> Option<Seen> {
    let machine = Simulated::start()?;
    let test = &machine.test;
    let swappiness = machine.setting(SWAPPINESS);
    let own = machine.command_line();
    let (mut seen, mut moments) = (Seen::default(), Moments::new(kills.seed));
    while seen.orchestrators + seen.trials < kills.number {
        let name = format!("study-{}", seen.studies);
        let boots = kills.boots && seen.studies % 2 == 1;
        let second = if boots { "running,boot.audit=0" } else { "running,sysctl.vm.swappiness=11" };
        let words = words(second, kills.pairs, &name);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let begun = machine.audit().len();
        let (mut kept, mut killed) = (Vec::new(), 0);
        loop {
            let total = seen.orchestrators + seen.trials;
            let moment = kills.longest.mul_f64(moments.next());
            let of_trial = total % 6 == 5 && killed < TRIALS;
            let mut hit = false;
            let said = test.dir().join("said");
            let mut child =
                test.command(&words).stdout(Stdio::null()).stderr(File::create(&said).unwrap()).spawn().unwrap();
            let status = until(&mut child, (total < kills.number && !of_trial).then_some(moment), |elapsed| {
                if of_trial && !hit && elapsed >= moment {
                    hit = machine.kill_trial();
                }
            });
            killed += usize::from(hit);
            seen.trials += usize::from(hit);
            let now = records(test, &name);
            assert!(now.starts_with(&kept), "a record is lost or changed");
            kept = now;
            if hit {
                // The dead trial's settings are restored, whatever became of bigiron.
                let undone = test.run(&["undo", "--on", "ssh:db3"]);
                assert_eq!(undone.status, 0, "{}{}", undone.stdout, undone.stderr);
                seen.restored += usize::from(undone.stdout.contains("restored"));
                assert_eq!(machine.setting(SWAPPINESS), swappiness);
                assert_eq!(machine.command_line(), own);
            }
            match status {
                None => {
                    seen.orchestrators += 1;
                    seen.in_a_boot += usize::from(machine.command_line().contains("bigiron.id="));
                }
                Some(0) => break,
                Some(_) if hit => {}
                Some(_) => {
                    panic!("{status:?}: {}\n{:?}", fs::read_to_string(said).unwrap(), machine.audit());
                }
            }
        }
        check(&kept, 2 * kills.pairs, &machine.audit()[begun..], killed);
        assert_eq!(machine.setting(SWAPPINESS), swappiness, "a setting leaked");
        assert_eq!(machine.command_line(), own, "the machine does not run its own kernel");
        for left in ["origin.json", "trials/study", "undo.jsonl"] {
            let path = machine.state().join(left);
            assert!(fs::metadata(&path).map_or(true, |meta| meta.len() == 0), "{left} is left");
        }
        seen.studies += 1;
    }
    eprintln!("{seen:?}");
    Some(seen)
}

/// Every slot has a completed record, every attempt at one at most one record, every record one trial on the machine, and no trial was started twice.
fn check(records: &[serde_json::Value], slots: usize, audit: &[String], killed: usize) {
    let slot = |record: &serde_json::Value| (record["slot"].as_u64().unwrap(), record["attempt"].as_u64().unwrap());
    let (mut attempts, mut completed, mut void) = (BTreeSet::new(), BTreeSet::new(), 0);
    for record in records {
        assert!(attempts.insert(slot(record)), "two records of the attempt {:?}", slot(record));
        match record["outcome"]["kind"].as_str().unwrap() {
            "completed" => _ = completed.insert(slot(record).0),
            "void" => void += 1,
            other => panic!("{other}: {record}"),
        }
    }
    assert_eq!(completed.len(), slots, "trials are lost");
    assert!(void <= killed, "{void} void records after {killed} kills of trials");
    // The other trial of a void pair is run again, too.
    assert!(records.len() <= slots + 2 * killed, "{} records after {killed} kills of trials", records.len());
    // `trial SLOT-ATTEMPT-PURPOSE-AGAIN of ARM`
    let started: Vec<&str> = audit.iter().filter_map(|what| what.strip_prefix("trial ")?.split(' ').next()).collect();
    let distinct: BTreeSet<&str> = started.iter().copied().collect();
    assert_eq!(started.len(), distinct.len(), "a trial was started twice: {started:?}");
    let first = |name: &&&str| name.ends_with("-0");
    let recorded: BTreeSet<String> = attempts.iter().map(|(slot, attempt)| format!("{slot}-{attempt}")).collect();
    let ran: BTreeSet<String> =
        distinct.iter().filter(first).map(|name| name.splitn(3, '-').take(2).collect::<Vec<_>>().join("-")).collect();
    assert_eq!(ran, recorded, "what ran is what is recorded");
}

#[test]
fn a_study_on_another_machine_survives_10_kills() {
    let kills = Kills { number: 10, seed: 28, pairs: 8, longest: Duration::from_secs(1), boots: false };
    if let Some(seen) = kill(&kills) {
        assert!(seen.orchestrators >= 8 && seen.trials >= 1, "{seen:?}");
    }
}

#[test]
#[ignore = "takes a quarter of an hour: make test-hosts"]
fn studies_on_another_machine_survive_200_kills() {
    let kills = Kills { number: 200, seed: 2004, pairs: 16, longest: Duration::from_secs(4), boots: true };
    if let Some(seen) = kill(&kills) {
        assert!(seen.trials >= 20 && seen.restored > 0 && seen.in_a_boot > 0, "{seen:?}");
    }
}
