//! The session against SIGKILL and full disks, in a separate process: this test executable, started again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::tests::{by_slot, incident};
use super::*;
use bigiron_lab::host::sim::{Incident, Script, SimHost, What};
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;
use bigiron_model::record::{Failure, Outcome, Record};
use bigiron_model::store::testing::plan;
use bigiron_model::store::{Folder, SlotTally, StoreError};

const PAIRS: u32 = 30;

/// Set for a process that must be killed to end, however long the test's own thread is delayed: the last slot's trial lasts for ever.
const ENDLESS: &str = "BIGIRON_TEST_ENDLESS";

/// Boots of 3 to 18 ms, with a panic, a hang and a void among them.
fn script() -> Script {
    let once = |what, slot| Incident { slot: Some(slot), attempt: Some(0), ..incident(what) };
    let mut incidents =
        vec![once(What::Guest(Failure::Panic), 3), once(What::Guest(Failure::Hang), 17), once(What::Void, 8)];
    incidents.extend(std::env::var_os(ENDLESS).map(|_| once(What::Stall, 2 * PAIRS - 1)));
    Script { delay_ms: 3, spread_ms: 15, incidents, ..Script::default() }
}

/// The process that is killed: opens or creates the folder and runs the session, like `bigiron compare`.
#[test]
#[ignore = "started by the tests of this file"]
fn child() {
    let dir = PathBuf::from(std::env::var("BIGIRON_TEST_DIR").expect("set by the test that starts this one"));
    let clock: Clock = std::env::var("BIGIRON_TEST_CLOCK").unwrap().parse().unwrap();
    let plan = plan(PAIRS, 2, clock, 11);
    let folder = match Folder::open(&dir) {
        Err(StoreError::NoStudy { .. }) => Folder::create(&dir, &plan).unwrap(),
        other => other.unwrap(),
    };
    let progress = progress::Progress::stderr(progress::Detail::Trials);
    match run(&plan, &folder, &SimHost::new(script()), 3, &AtomicBool::new(false), &|e| progress.show(&e)) {
        Ok(summary) => println!("ENDED {summary:?}"),
        Err(e) => println!("STOPPED {e}"),
    }
}

fn command(dir: &Path, clock: Clock, setup: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{setup} exec \"$EXE\" --exact session::tests_kill::child --ignored --nocapture")])
        .env("EXE", std::env::current_exe().unwrap())
        .env("BIGIRON_TEST_DIR", dir)
        .env("BIGIRON_TEST_CLOCK", clock.name())
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Kills with SIGKILL; returns whether the child was still running.
fn kill(mut child: Child) -> bool {
    let at_work = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    at_work
}

fn log_bytes(dir: &Path) -> u64 {
    fs::metadata(dir.join("records.jsonl")).map_or(0, |m| m.len())
}

/// A random number without a crate: the moments of killing should differ from run to run.
fn random(below: u64) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish() % below
}

/// The cost of a trial is scripted, except for void trials, whose cost the session measures.
fn comparable(records: Vec<Record>) -> Vec<Record> {
    let timeless = |mut r: Record| {
        if matches!(r.outcome, Outcome::Void { .. }) {
            r.host.wall_s = 0.0;
        }
        r
    };
    by_slot(records.into_iter().map(timeless).collect())
}

fn finished(plan: &Plan, records: &[Record]) -> BTreeSet<(u32, u32)> {
    assert_eq!(SlotTally::of(plan, records).slots.len(), plan.slots.len());
    records.iter().map(|r| (r.slot, r.attempt)).collect()
}

fn killed_again_and_again(clock: Clock) {
    let plan = plan(PAIRS, 2, clock, 11);
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("study");
    let mut kills = 0;
    let mut before: Vec<Record> = Vec::new();
    // Far more starts than necessary; the loop ends when a child completes, which the first ones cannot.
    for start in 0..200 {
        let mut child = command(&dir, clock, "");
        if start < 6 {
            child.env(ENDLESS, "1");
        }
        let child = child.stdout(Stdio::null()).spawn().unwrap();
        // Kills at times from before the folder exists, through the first boots, to late in the work. The first kills come as
        // soon as there is a new record, so that even a fast machine has not done all of the work before.
        if start < 6 && start % 3 != 0 {
            let (had, patience) = (log_bytes(&dir), Instant::now() + Duration::from_secs(10));
            while log_bytes(&dir) == had && Instant::now() < patience {
                thread::sleep(Duration::from_millis(1));
            }
        } else {
            thread::sleep(Duration::from_millis(random(if start % 3 == 0 { 12 } else { 120 })));
        }
        if !kill(child) {
            break;
        }
        kills += 1;
        if let Ok(folder) = Folder::open(&dir) {
            let read = folder.records().unwrap();
            assert!(read.unreadable.iter().all(|(_, why)| why.starts_with("torn")), "{:?}", read.unreadable);
            // Nothing recorded is ever lost or changed; nothing is recorded twice.
            assert_eq!(read.records[..before.len()], before[..]);
            assert_eq!(finished(&plan, &read.records).len(), read.records.len());
            before = read.records;
        }
    }
    assert!(kills >= 5, "only {kills} kills came before the end");
    assert!(!before.is_empty());
    let out = command(&dir, clock, "").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("ENDED"), "{text}");

    let undisturbed = place.path().join("undisturbed");
    let out = command(&undisturbed, clock, "").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).contains("ENDED"));
    let read = |dir: &Path| Folder::open(dir).unwrap().records().unwrap();
    assert_eq!(read(&dir).unreadable, []);
    assert_eq!(comparable(read(&dir).records), comparable(read(&undisturbed).records));
    // The artefacts too, and none from killed trials.
    let artefacts = |dir: &Path| -> BTreeSet<_> {
        fs::read_dir(dir.join("artifacts")).unwrap().map(|e| e.unwrap().file_name()).collect()
    };
    assert_eq!(artefacts(&dir), artefacts(&undisturbed));
}

#[test]
fn killed_again_and_again_on_the_exact_clock() {
    killed_again_and_again(Clock::Exact);
}

#[test]
fn killed_again_and_again_on_the_wall_clock() {
    killed_again_and_again(Clock::Wall);
}

#[test]
fn a_second_start_while_one_is_at_work_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("study");
    let mut first = command(&dir, Clock::Wall, "").env(ENDLESS, "1").stdout(Stdio::null()).spawn().unwrap();
    while log_bytes(&dir) == 0 {
        assert!(first.try_wait().unwrap().is_none(), "the first never began");
        thread::sleep(Duration::from_millis(2));
    }
    let pid = first.id();
    let out = command(&dir, Clock::Wall, "").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(kill(first));
    // `sh` became the test executable: same process.
    assert!(text.contains(&format!("STOPPED Another bigiron (process {pid} on ")), "{text}");
    // The lock went with the process.
    let out = command(&dir, Clock::Wall, "").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).contains("ENDED"));
}

#[test]
fn a_log_that_is_no_terminal_gets_a_plain_line_per_boot() {
    let place = tempfile::tempdir().unwrap();
    let out = command(&place.path().join("study"), Clock::Wall, "").stderr(Stdio::piped()).output().unwrap();
    let log = String::from_utf8(out.stderr).unwrap();
    let lines: Vec<_> = log.lines().collect();
    // Slot 9 is not run needlessly after slot 8 went void; both are run again.
    assert_eq!(lines.len(), 1 + 2 * PAIRS as usize + 1, "{log}");
    assert_eq!(lines[0], "60 trials in 30 pairs");
    assert!(
        lines[4].starts_with("[ 4/60] pair 2/30, debian:6.") && lines[4].contains(": panicked: Simulated"),
        "{log}"
    );
    assert!(lines[9].ends_with(": void: The script says that the host fails here; 2 trials to run again"), "{log}");
    assert!(lines[61].starts_with("[60/60] pair 5/30, ") && lines[61].ends_with(", attempt 2: completed"), "{log}");
    assert!(!log.contains('\x1b') && !log.contains('\r'), "{log:?}");
}

#[test]
fn a_disk_that_fills_up_stops_the_session_and_it_resumes() {
    let plan = plan(PAIRS, 2, Clock::Exact, 11);
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("study");
    // The plan is larger than the limit on the size of `records.jsonl`.
    Folder::create(&dir, &plan).unwrap();
    let mut done = 0;
    for blocks in [16, 40] {
        let out = command(&dir, Clock::Exact, &format!("trap '' XFSZ; ulimit -f {blocks};")).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(text.contains("STOPPED No room to append a record to ") && text.contains(" free)"), "{text}");
        let read = Folder::open(&dir).unwrap().records().unwrap();
        assert_eq!(read.unreadable, []);
        assert!(read.records.len() > done, "{} after {done}", read.records.len());
        done = read.records.len();
    }
    let out = command(&dir, Clock::Exact, "").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("ENDED"), "{text}");
    let records = Folder::open(&dir).unwrap().records().unwrap().records;
    assert_eq!(SlotTally::of(&plan, &records).missing(), []);
    assert_eq!(finished(&plan, &records).len(), records.len());
}
