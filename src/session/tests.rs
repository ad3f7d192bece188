//! The session on a simulated host: order, concurrency, failures, voids, interruption.

mod idle_gap;
mod machines;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::counting_host::CountingHost;
use super::*;
use bigiron_lab::host::sim::{Incident, Script, SimHost, What};
use bigiron_lab::host::{Host, HostError, Phase, Trial, TrialResult};
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;
use bigiron_model::record::{Failure, Outcome, Record};
use bigiron_model::rule::Rule;
use bigiron_model::store::testing::plan;
use bigiron_model::store::{Folder, SlotTally, StoreError};

pub(super) fn incident(what: What) -> Incident {
    Incident { what, arm: None, pair: None, slot: None, attempt: None, machine: None, workload: None }
}

fn at(what: What, slot: u32, attempt: Option<u32>) -> Incident {
    Incident { slot: Some(slot), attempt, ..incident(what) }
}

fn script(incidents: Vec<Incident>) -> Script {
    Script { incidents, ..Script::default() }
}

struct Study {
    _dir: tempfile::TempDir,
    folder: Folder,
}

impl Study {
    fn new(plan: &Plan) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("study"), plan).unwrap();
        Study { _dir: dir, folder }
    }

    /// Runs the session; returns its result and its events.
    fn run(
        &self,
        host: &dyn Host,
        jobs: usize,
        cancel: &AtomicBool,
    ) -> (Result<Summary, SessionError>, Vec<SessionEvent>) {
        let events = Mutex::new(Vec::new());
        let ended = run(self.folder.plan(), &self.folder, host, jobs, cancel, &|e| events.lock().unwrap().push(e));
        (ended, events.into_inner().unwrap())
    }

    fn play(&self, script: Script, jobs: usize) -> (Result<Summary, SessionError>, Vec<SessionEvent>) {
        self.run(&SimHost::new(script), jobs, &AtomicBool::new(false))
    }

    fn records(&self) -> Vec<Record> {
        let read = self.folder.records().unwrap();
        assert_eq!(read.unreadable, []);
        read.records
    }

    /// (slot, attempt) of all records, as written.
    fn written(&self) -> Vec<(u32, u32)> {
        self.records().iter().map(|r| (r.slot, r.attempt)).collect()
    }
}

pub(super) fn by_slot(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|r| (r.slot, r.attempt));
    records
}

fn starts(events: &[SessionEvent]) -> Vec<(u32, u32)> {
    let start = |e: &SessionEvent| match e {
        SessionEvent::SlotStart(t) => Some((t.slot, t.attempt)),
        _ => None,
    };
    events.iter().filter_map(start).collect()
}

/// Runs a study on a host that allows `parallel` trials at once, of which no more and no fewer than `most` are to run.
#[track_caller]
fn at_once(clock: Clock, parallel: usize, jobs: usize, most: usize) {
    let study = Study::new(&plan(8, 2, clock, 3));
    let host = CountingHost::new(Script { delay_ms: 5, parallel, ..Script::default() }, most);
    study.run(&host, jobs, &AtomicBool::new(false)).0.unwrap();
    assert_eq!(host.most(), most);
}

#[test]
fn only_the_exact_clock_runs_trials_side_by_side() {
    at_once(Clock::Wall, 8, 8, 1);
    at_once(Clock::None, 8, 8, 1);
    at_once(Clock::Exact, 8, 3, 3);
    at_once(Clock::Exact, 2, 8, 2);
    at_once(Clock::Exact, 8, 0, 1);
}

/// Holds slot 7 until slot 4 has its record: if the thread of slot 4 were delayed, slot 7 would be the first to run again.
struct InOrder<'a> {
    host: SimHost,
    folder: &'a Folder,
}

impl Host for InOrder<'_> {
    fn parallel(&self) -> usize {
        self.host.parallel()
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        let is_too_early = || self.folder.records().unwrap().records.iter().all(|r| r.slot != 4);
        while trial.slot.slot == 7 && !trial.cancel.load(Ordering::Relaxed) && is_too_early() {
            thread::sleep(Duration::from_millis(1));
        }
        self.host.run(trial, phase)
    }
}

#[test]
fn slots_run_in_the_plans_order_and_side_by_side_gives_the_same_records() {
    let plan = plan(8, 3, Clock::Exact, 5);
    let script = Script {
        delay_ms: 1,
        spread_ms: 4,
        ..script(vec![at(What::Guest(Failure::Panic), 4, None), at(What::Void, 7, Some(0))])
    };
    let serial = Study::new(&plan);
    let (ended, events) = serial.play(script.clone(), 1);
    assert_eq!(ended.unwrap(), Summary { completed: 23, failed: 1, void_pairs: 1, ran: 26 });
    let order: Vec<_> = (0..24).map(|slot| (slot, 0)).chain([(4, 1), (7, 1)]).collect();
    assert_eq!(serial.written(), order);
    assert_eq!(starts(&events), order);

    let parallel = Study::new(&plan);
    let host = InOrder { host: SimHost::new(script), folder: &parallel.folder };
    let (ended, events) = parallel.run(&host, 4, &AtomicBool::new(false));
    ended.unwrap();
    assert_eq!(starts(&events), order);
    let void = |r: &Record| matches!(r.outcome, Outcome::Void { .. });
    let timeless = |mut r: Record| {
        // The cost of a void trial is measured, not scripted.
        if void(&r) {
            r.host.wall_s = 0.0;
        }
        r
    };
    let timeless = |records| by_slot(records).into_iter().map(timeless).collect::<Vec<_>>();
    assert_eq!(timeless(parallel.records()), timeless(serial.records()));
}

#[test]
fn events_of_a_trial_come_in_order_and_its_end_after_its_record() {
    let study = Study::new(&plan(2, 2, Clock::Exact, 5));
    let on_disk = Mutex::new(Vec::new());
    let events = Mutex::new(Vec::new());
    let host = SimHost::new(Script::default());
    run(study.folder.plan(), &study.folder, &host, 2, &AtomicBool::new(false), &|e| {
        if let SessionEvent::SlotEnd { trial, done, .. } = &e {
            let slots: Vec<_> = study.folder.records().unwrap().records.iter().map(|r| r.slot).collect();
            on_disk.lock().unwrap().push(slots.contains(&trial.slot) && slots.len() == *done as usize);
        }
        events.lock().unwrap().push(e);
    })
    .unwrap();
    assert_eq!(on_disk.into_inner().unwrap(), [true; 4]);
    let events = events.into_inner().unwrap();
    assert!(matches!(events[0], SessionEvent::SessionStart { total: 4, done: 0, width: 2, .. }), "{:?}", events[0]);
    assert_eq!(events.last(), Some(&SessionEvent::SessionEnd { done: 4, total: 4 }));
    for slot in 0..4 {
        let of: Vec<_> = events
            .iter()
            .filter_map(|e| match e {
                SessionEvent::SlotStart(t) if t.slot == slot => Some("start"),
                SessionEvent::Phase(t, Phase::Booting) if t.slot == slot => Some("booting"),
                SessionEvent::Phase(t, Phase::Up) if t.slot == slot => Some("up"),
                SessionEvent::Phase(t, Phase::Step { .. }) if t.slot == slot => Some("step"),
                SessionEvent::SlotEnd { trial, .. } if trial.slot == slot => Some("end"),
                _ => None,
            })
            .collect();
        assert_eq!(of, ["start", "booting", "up", "step", "end"]);
    }
}

#[test]
fn a_failed_trial_is_evidence_and_on_the_exact_clock_run_once_more() {
    let study = Study::new(&plan(8, 2, Clock::Exact, 5));
    let wrong = [
        (What::Guest(Failure::Panic), Failure::Panic),
        (What::Guest(Failure::Hang), Failure::Hang),
        (What::Guest(Failure::EarlyExit), Failure::EarlyExit),
        (What::Guest(Failure::NoAgent), Failure::NoAgent),
        (What::Guest(Failure::AgentDied), Failure::AgentDied),
        (What::Guest(Failure::WorkloadError), Failure::WorkloadError),
        (What::Guest(Failure::VerifyFailed), Failure::VerifyFailed),
        (What::MissingMetric, Failure::WorkloadError),
    ];
    let incidents = (0..).zip(&wrong).map(|(slot, (what, _))| at(*what, slot, None)).collect();
    let summary = study.play(script(incidents), 2).0.unwrap();
    assert_eq!(summary, Summary { completed: 8, failed: 8, void_pairs: 0, ran: 24 });
    assert_eq!(study.written().iter().filter(|(_, attempt)| *attempt == 1).count(), 8);
    for (r, (_, expected)) in by_slot(study.records()).iter().zip(wrong.iter().flat_map(|wrong| [wrong; 2])) {
        let Outcome::Failed { failure, message } = &r.outcome else { panic!("{r:?}") };
        assert_eq!(failure, expected);
        assert!(!message.is_empty() && r.metrics.is_empty());
        assert_eq!(r.guest.is_none(), *failure == Failure::NoAgent);
        // The console is kept.
        assert_eq!(r.artifacts.len(), 1);
        assert!(study.folder.dir().join(&r.artifacts[0]).exists());
    }
    // A second call runs nothing.
    let (summary, events) = study.play(Script::default(), 2);
    assert_eq!((summary.unwrap().ran, events.len()), (0, 0));
}

#[test]
fn a_failure_that_does_not_repeat_stays_a_failure_and_no_other_clock_repeats_it() {
    let once = || script(vec![at(What::Guest(Failure::Panic), 3, Some(0))]);
    for (clock, ran) in [(Clock::Exact, 17), (Clock::Wall, 16), (Clock::None, 16)] {
        let study = Study::new(&plan(8, 2, clock, 5));
        let summary = study.play(once(), 1).0.unwrap();
        assert_eq!(summary, Summary { completed: 15, failed: 1, void_pairs: 0, ran }, "{clock}");
    }
    // A void second run is run again; a session may end between the two runs.
    let study = Study::new(&plan(8, 2, Clock::Exact, 5));
    let void = script(vec![at(What::Guest(Failure::Panic), 3, Some(0)), at(What::Void, 3, Some(1))]);
    study.play(void, 1).0.unwrap();
    assert_eq!(study.written()[15..], [(15, 0), (3, 1), (3, 2)]);
    // A folder of the first rule is resumed by that rule.
    let old = Study::new(&Plan { rule: Rule::First, ..plan(8, 2, Clock::Exact, 5) });
    assert_eq!(old.play(once(), 1).0.unwrap().ran, 16);
}

#[test]
fn a_void_trial_voids_its_pair_on_the_wall_clock() {
    let study = Study::new(&plan(8, 2, Clock::Wall, 5));
    let (ended, events) = study.play(script(vec![at(What::Void, 3, Some(0)), at(What::Void, 6, Some(0))]), 4);
    assert_eq!(ended.unwrap(), Summary { completed: 16, failed: 0, void_pairs: 2, ran: 19 });
    let firsts = (0..16).filter(|&slot| slot != 7).map(|slot| (slot, 0));
    assert_eq!(study.written(), firsts.chain([(2, 1), (3, 1), (6, 1), (7, 1)]).collect::<Vec<_>>());
    let voids: Vec<_> = events
        .iter()
        .filter_map(|e| match e {
            SessionEvent::Void { trial, again, done, .. } => Some((trial.slot, again.clone(), *done)),
            _ => None,
        })
        .collect();
    assert_eq!(voids, [(3, vec![2, 3], 2), (6, vec![6, 7], 4)]);
}

#[test]
fn too_many_voids_stop_the_session() {
    // On the wall clock the study is invalid, and stays so.
    let study = Study::new(&plan(8, 2, Clock::Wall, 5));
    let e = study.play(script(vec![incident(What::Void)]), 1).0.unwrap_err();
    let SessionError::TooManyVoid { void: 3, limit: 2, pairs: 8, cause, next } = &e else { panic!("{e}") };
    assert!(cause.contains("script") && next.contains("new folder"), "{e}");
    assert_eq!(study.written(), [(0, 0), (2, 0), (4, 0)]);
    let e = study.play(Script::default(), 1).0.unwrap_err();
    assert!(matches!(&e, SessionError::TooManyVoid { .. }), "{e}");
    assert_eq!(study.records().len(), 3);

    // On the exact clock void pairs do not affect the result: once fixed, the study continues.
    let study = Study::new(&plan(8, 2, Clock::Exact, 5));
    let e = study.play(script(vec![incident(What::Void)]), 1).0.unwrap_err();
    assert!(e.to_string().contains("the same command resumes"), "{e}");
    assert_eq!(study.written().last(), Some(&(4, 0)));
    assert_eq!(study.play(Script::default(), 1).0.unwrap().completed, 16);
    // Slots that were never tried come first.
    assert_eq!(study.written()[5..], (5..16).map(|s| (s, 0)).chain((0..5).map(|s| (s, 1))).collect::<Vec<_>>());
}

#[test]
fn a_host_that_fails_for_good_stops_the_session_and_loses_nothing() {
    let study = Study::new(&plan(8, 2, Clock::Exact, 5));
    let script = Script { delay_ms: 20, ..script(vec![at(What::Fatal, 5, None), at(What::Stall, 4, None)]) };
    // Two at a time: 4 and 5 are running when it happens.
    let (ended, events) = study.play(script, 2);
    let e = ended.unwrap_err();
    assert!(matches!(&e, SessionError::Host { done: 4, total: 16, .. }), "{e}");
    assert!(e.to_string().contains("for good"), "{e}");
    assert!(events.contains(&SessionEvent::Stopping));
    assert_eq!(by_slot(study.records()).iter().map(|r| r.slot).collect::<Vec<_>>(), [0, 1, 2, 3]);
    // Nothing is left of the unfinished trials.
    assert_eq!(fs::read_dir(study.folder.dir().join("artifacts")).unwrap().count(), 4);
    assert_eq!(study.play(Script::default(), 4).0.unwrap().completed, 16);
}

#[test]
fn another_release_is_an_error_and_voids_nothing() {
    let study = Study::new(&plan(8, 2, Clock::Wall, 5));
    let e = study.play(script(vec![at(What::WrongRelease, 2, None)]), 1).0.unwrap_err();
    let SessionError::WrongKernel { asked, said, .. } = &e else { panic!("{e}") };
    assert!(asked.starts_with("6.") && said == "0.0.0-another", "{e}");
    assert_eq!(study.written(), [(0, 0), (1, 0)]);
}

#[test]
fn without_a_clock_no_time_is_recorded() {
    let study = Study::new(&plan(2, 2, Clock::None, 5));
    study.play(Script::default(), 1).0.unwrap();
    for r in study.records() {
        assert_eq!((r.outcome, r.metrics.len(), r.facts.len()), (Outcome::Completed, 0, 1));
    }
}

#[test]
fn an_interruption_ends_running_trials_and_the_next_call_resumes() {
    let plan = plan(8, 2, Clock::Exact, 5);
    let study = Study::new(&plan);
    let cancel = AtomicBool::new(false);
    let host =
        SimHost::new(Script { delay_ms: 10, ..script(vec![at(What::Stall, 6, None), at(What::Stall, 7, None)]) });
    let stalled = AtomicUsize::new(0);
    let ended = run(&plan, &study.folder, &host, 2, &cancel, &|e| {
        let stalls = matches!(&e, SessionEvent::SlotStart(t) if t.slot >= 6);
        if stalls && stalled.fetch_add(1, Ordering::SeqCst) == 1 {
            cancel.store(true, Ordering::SeqCst);
        }
    });
    let e = ended.unwrap_err();
    assert!(matches!(&e, SessionError::Interrupted { done: 6, total: 16, .. }), "{e}");
    assert!(e.to_string().contains("the same command resumes"), "{e}");
    assert_eq!(study.records().len(), 6);
    assert_eq!(fs::read_dir(study.folder.dir().join("artifacts")).unwrap().count(), 6);

    let (ended, events) = study.play(Script { delay_ms: 10, ..Script::default() }, 2);
    assert_eq!(ended.unwrap().ran, 10);
    assert!(matches!(&events[0], SessionEvent::SessionStart { done: 6, mean_wall_s: Some(_), .. }), "{:?}", events[0]);
    let undisturbed = Study::new(&plan);
    undisturbed.play(Script { delay_ms: 10, ..Script::default() }, 1).0.unwrap();
    assert_eq!(by_slot(study.records()), by_slot(undisturbed.records()));
}

/// A guest that dies because the terminal's Ctrl-C reached it too.
struct DiesOfInterrupt<'a>(&'a AtomicBool);

impl Host for DiesOfInterrupt<'_> {
    fn parallel(&self) -> usize {
        1
    }

    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError> {
        self.0.store(true, Ordering::SeqCst);
        SimHost::new(script(vec![incident(What::Guest(Failure::EarlyExit))]))
            .run(&Trial { cancel: &AtomicBool::new(false), ..*trial }, phase)
    }
}

#[test]
fn a_guest_that_the_interruption_killed_is_not_evidence() {
    let study = Study::new(&plan(2, 2, Clock::Wall, 5));
    let cancel = AtomicBool::new(false);
    let ended = study.run(&DiesOfInterrupt(&cancel), 1, &cancel).0;
    assert!(matches!(ended, Err(SessionError::Interrupted { done: 0, .. })), "{ended:?}");
    assert_eq!(study.records(), []);
}

#[test]
fn two_sessions_do_not_share_a_folder() {
    let study = Study::new(&plan(2, 2, Clock::Exact, 5));
    let writer = study.folder.writer().unwrap();
    let e = study.play(Script::default(), 1).0.unwrap_err();
    assert!(matches!(&e, SessionError::Store(StoreError::Busy { .. })), "{e}");
    drop(writer);
    let other = plan(2, 2, Clock::Exact, 6);
    let e = run(&other, &study.folder, &SimHost::default(), 1, &AtomicBool::new(false), &|_| ()).unwrap_err();
    assert!(matches!(e, SessionError::OtherPlan { .. }), "{e}");
}

#[test]
fn a_script_reads_as_toml() {
    let script: Script = toml::from_str(
        r#"
        delay-ms = 3
        noise = 0.01
        [effects."debian:6.1"]
        "micro.fork" = 1.05
        "*" = 0.9
        [[incidents]]
        what = "early-exit"
        arm = "debian:6.1"
        pair = 2
        "#,
    )
    .unwrap();
    assert_eq!(
        script.incidents,
        [Incident { pair: Some(2), arm: Some("debian:6.1".into()), ..incident(What::Guest(Failure::EarlyExit)) }]
    );
    assert!(toml::from_str::<Script>("dealy-ms = 3").unwrap_err().to_string().contains("dealy-ms"));

    let plan = plan(4, 2, Clock::Exact, 5);
    let values = |script: Script| {
        let study = Study::new(&plan);
        study.play(Script { incidents: Vec::new(), ..script }, 1).0.unwrap();
        study.records()
    };
    let plain = values(Script { effects: Default::default(), ..script.clone() });
    for (with, without) in values(script).iter().zip(&plain) {
        let value = |r: &Record, i: usize| r.metrics.get("micro", &plan.workloads[0].metrics[i].name).unwrap();
        let factor = |i: usize| value(with, i) / value(without, i);
        let expected = if with.arm == "debian:6.1" { (0.9, 1.05) } else { (1.0, 1.0) };
        assert!((factor(0) - expected.0).abs() < 1e-12 && (factor(1) - expected.1).abs() < 1e-12);
        // Noise of 1 % on a base of 1000 ns.
        assert!((value(without, 0) / 1000.0).ln().abs() < 0.06 && value(without, 0) != 1000.0);
    }
}

#[test]
fn the_documented_script_reads() {
    let doc = include_str!("../../docs/reference/sim.md");
    let example: String = doc.lines().filter_map(|l| l.strip_prefix("    ")).map(|l| format!("{l}\n")).collect();
    let script: Script = toml::from_str(&example).unwrap();
    assert_eq!((script.delay_ms, script.incidents.len(), script.effects["debian:6.12"].len()), (20, 1, 2));
    // Every default in the table equals the actual default.
    let table = |key: &str| {
        let row = doc.lines().find(|l| l.starts_with(&format!("| `{key}` |"))).unwrap();
        row.split('|').nth(2).unwrap().trim().parse::<f64>().unwrap()
    };
    let Script { delay_ms, spread_ms, parallel, noise, pair_noise, drift, position_effect, .. } = Script::default();
    assert_eq!((table("delay-ms"), table("spread-ms")), (delay_ms as f64, spread_ms as f64));
    assert_eq!((table("parallel"), table("noise"), table("pair-noise")), (parallel as f64, noise, pair_noise));
    assert_eq!((table("drift"), table("position-effect")), (drift, position_effect));
}

/// What the disk holds after bytes were cut off, as by a power loss.
fn cut(dir: &Path, by: usize) {
    let log = dir.join("records.jsonl");
    if let Ok(bytes) = fs::read(&log) {
        fs::write(&log, &bytes[..bytes.len().saturating_sub(by)]).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Interrupt after any number of boots, cut any number of bytes, resume, repeatedly: the session runs exactly the missing
    /// slots, and ends with the records of an undisturbed run.
    #[test]
    fn interrupted_and_cut_anywhere(
        stops in prop::collection::vec((0u32..12, 0usize..1500), 1..5),
        jobs in 1usize..4,
        wall in any::<bool>(),
    ) {
        let plan = plan(4, 2, if wall { Clock::Wall } else { Clock::Exact }, 5);
        let played = script(vec![at(What::Guest(Failure::Panic), 1, None)]);
        let study = Study::new(&plan);
        // Slot 1 fails, and on the exact clock runs again after all others.
        let with_repeat = |mut missing: Vec<(u32, u32)>| {
            if !wall && missing.contains(&(1, 0)) {
                missing.push((1, 1));
            }
            missing
        };
        for (boots, bytes) in stops {
            let cancel = AtomicBool::new(boots == 0);
            let ends = AtomicUsize::new(0);
            let before = with_repeat(SlotTally::of(&plan, &study.folder.records().unwrap().records).missing());
            let started = Mutex::new(Vec::new());
            let _ = run(&plan, &study.folder, &SimHost::new(played.clone()), jobs, &cancel, &|e| match e {
                SessionEvent::SlotStart(t) => started.lock().unwrap().push((t.slot, t.attempt)),
                SessionEvent::SlotEnd { .. } => {
                    let done = ends.fetch_add(1, Ordering::SeqCst) + 1;
                    cancel.store(done >= boots as usize, Ordering::SeqCst);
                }
                _ => {}
            });
            let started = started.into_inner().unwrap();
            prop_assert_eq!(&started[..], &before[..started.len()]);
            cut(study.folder.dir(), bytes);
        }
        let missing = with_repeat(SlotTally::of(&plan, &study.folder.records().unwrap().records).missing());
        let (ended, events) = study.play(played.clone(), jobs);
        prop_assert_eq!(ended.unwrap().ran as usize, missing.len());
        prop_assert_eq!(starts(&events), missing);
        let undisturbed = Study::new(&plan);
        undisturbed.play(played, 1).0.unwrap();
        prop_assert_eq!(by_slot(study.records()), by_slot(undisturbed.records()));
    }
}
