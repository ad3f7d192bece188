//! The loop that runs missing slots.
//!
//! Invariant: only one thread, the caller's, writes records; a trial's thread only runs its trial. A guest that dies after the
//! session was told to stop may have died because of that: it is not evidence, and its slot is run again. Each of several machines
//! runs its own slots in the plan's order, one at a time, and one that runs no more stops only these.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::check;
use super::error::SessionError;
use super::event::{SessionEvent, TrialId};
use bigiron_lab::host::{Host, HostError, Trial, TrialResult};
use bigiron_model::clock::Clock;
use bigiron_model::plan::{self, Plan};
use bigiron_model::purpose::Purpose;
use bigiron_model::record::{Failure, HostCost, Outcome, Record, SCHEMA};
use bigiron_model::store::{Folder, SlotState, SlotTally, Writer};
use bigiron_model::values::Values;
use bigiron_workload::shortage;

/// Interval at which an interruption is passed on to running trials.
const POLL: Duration = Duration::from_millis(20);

/// The result of a completed session: every slot has its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub completed: u32,
    pub failed: u32,
    /// Number of void pairs, in this session and earlier ones.
    pub void_pairs: u32,
    /// Trials run by this session.
    pub ran: u32,
}

/// Works through the slots of `plan` that have no record in `folder`.
///
/// On the exact clock up to `jobs` trials run in parallel (at most as many as the host allows); on the wall clock, and without a
/// clock, one at a time on each machine. Several threads call `events`.
///
/// # Errors
/// If the session had to stop; finished trials are recorded, and another call resumes.
pub fn run(
    plan: &Plan,
    folder: &Folder,
    host: &dyn Host,
    jobs: usize,
    cancel: &AtomicBool,
    events: &(dyn Fn(SessionEvent) + Sync),
) -> Result<Summary, SessionError> {
    if plan != folder.plan() {
        return Err(SessionError::OtherPlan { dir: folder.dir().to_owned() });
    }
    let read = folder.records()?;
    if SlotTally::of(plan, &read.records).missing().is_empty() {
        folder.not_taken(&read.records)?;
        // Nothing to write: a finished study can be queried again even if its folder is read-only.
        return Ok(summary(plan, &read.records, 0));
    }
    // Read again under the lock: another bigiron may have been running until now.
    let mut writer = folder.writer()?;
    let mut read = folder.records()?;
    if writer.torn() > 0 {
        let why = format!("torn: {} bytes without an end, now in records.torn", writer.torn());
        read.unreadable.push((read.records.len() + read.unreadable.len() + 1, why));
    }
    let delivered = writer.take_deliveries(folder, &read.records)?;
    read.records.extend(delivered);
    let width = width(plan, host, jobs);
    let mut session = Session {
        plan,
        folder,
        tally: SlotTally::of(plan, &read.records),
        records: read.records,
        writer,
        events,
        cancel,
        running: BTreeMap::new(),
        idle_until: vec![Instant::now() + gap(plan); lanes(plan)],
        stopped: BTreeMap::new(),
        ran: 0,
        is_first: false,
        voids_before: 0,
    };
    session.is_first = session.records.is_empty();
    session.voids_before = if plan.clock == Clock::Wall { 0 } else { session.tally.void_pairs };
    events(SessionEvent::SessionStart {
        total: plan.slots.len() as u32,
        done: session.tally.finished(),
        pairs: plan.design.pairs,
        width,
        mean_wall_s: mean_wall_s(&session.records).map(|mean| mean + gap(plan).as_secs_f64()),
        unreadable: read.unreadable,
    });
    // What workers deliver meanwhile to trials that this session ran is compared.
    let ended = session.work(host, width).and_then(|()| session.take_deliveries());
    events(SessionEvent::SessionEnd { done: session.tally.finished(), total: plan.slots.len() as u32 });
    ended.map(|()| summary(plan, &session.records, session.ran))
}

/// How many trials run side by side: on a clock that sees what runs beside a trial, one on each machine.
pub fn width(plan: &Plan, host: &dyn Host, jobs: usize) -> usize {
    if plan.clock.is_exact() { jobs.min(host.parallel()).max(1) } else { lanes(plan) }
}

/// The machines whose trials are independent of each other.
fn lanes(plan: &Plan) -> usize {
    plan.machine.members.len().max(1)
}

struct Session<'a> {
    plan: &'a Plan,
    folder: &'a Folder,
    records: Vec<Record>,
    tally: SlotTally,
    writer: Writer,
    events: &'a (dyn Fn(SessionEvent) + Sync),
    cancel: &'a AtomicBool,
    /// Running slots, with their trials' artefacts.
    running: BTreeMap<u32, (TrialId, PathBuf)>,
    /// For each machine, the end of its idle gap before the next boot. The first boot of a session has a gap too, so that all
    /// boots are alike.
    idle_until: Vec<Instant>,
    /// Those of several machines that run no more trials, and why.
    stopped: BTreeMap<usize, String>,
    ran: u32,
    /// Whether it began with no record.
    is_first: bool,
    /// Void pairs that do not count towards the limit. On the wall clock all count: a study with more than a quarter of void
    /// pairs is invalid, however often it is resumed. On other clocks a void trial leaves no trace in the result, and the limit
    /// only stops futile retries.
    voids_before: u32,
}

pub(super) struct FinishedTrial {
    slot: u32,
    pub wall: Duration,
    /// The session was told to stop before this trial ended.
    late: bool,
    pub result: Result<TrialResult, HostError>,
}

impl Session<'_> {
    fn work(&mut self, host: &dyn Host, width: usize) -> Result<(), SessionError> {
        self.within_limit()?;
        let (sender, ended) = mpsc::channel::<FinishedTrial>();
        // The flag that trials watch: set by the user's interruption or by the session itself.
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut stop_reason: Option<SessionError> = None;
            let cancel = self.cancel;
            loop {
                if cancel.load(Ordering::Relaxed) && stop_reason.is_none() {
                    stop_reason = Some(self.interrupted());
                }
                if stop_reason.is_some() && !stop.swap(true, Ordering::Relaxed) && !self.running.is_empty() {
                    (self.events)(SessionEvent::Stopping);
                }
                while stop_reason.is_none() && self.running.len() < width {
                    if self.next().is_none() {
                        break;
                    }
                    if let Err(e) = self.take_deliveries() {
                        stop_reason = Some(e);
                        break;
                    }
                    let Some((slot, attempt)) = self.next() else { break };
                    match self.begin(slot, attempt) {
                        Ok((id, artifacts)) => {
                            let (sender, stop, plan, events) = (sender.clone(), &stop, self.plan, self.events);
                            let unstarted = sender.clone();
                            let trial = move || {
                                let mut ended = run_trial(plan, host, &id, &artifacts, stop, events);
                                ended.late = stop.load(Ordering::Relaxed) || cancel.load(Ordering::Relaxed);
                                // The receiver outlives this scope.
                                let _ = sender.send(ended);
                            };
                            if let Err(e) = thread::Builder::new().spawn_scoped(scope, trial) {
                                let why = format!("Cannot start a trial's thread: {}", shortage::no_process(&e));
                                let result = Err(HostError::Fatal(why));
                                let _ =
                                    unstarted.send(FinishedTrial { slot, wall: Duration::ZERO, late: false, result });
                            }
                        }
                        Err(e) => stop_reason = Some(e),
                    }
                }
                if self.running.is_empty() {
                    if stop_reason.is_none() && self.waiting().next().is_some() {
                        thread::sleep(POLL);
                        continue;
                    }
                    return self.verdict(stop_reason);
                }
                match ended.recv_timeout(POLL) {
                    Ok(ended) => {
                        if let Err(e) = self.end(ended) {
                            stop_reason.get_or_insert(e);
                        }
                    }
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
                }
            }
        })
    }

    /// The slot's machine.
    fn lane(&self, slot: u32) -> usize {
        self.plan.slots[slot as usize].machine as usize
    }

    /// The slots that can still be run, and their attempts.
    fn waiting(&self) -> impl Iterator<Item = (u32, u32)> {
        let runs = |slot: u32| !self.running.contains_key(&slot) && !self.stopped.contains_key(&self.lane(slot));
        self.tally.missing().into_iter().filter(move |(slot, _)| runs(*slot))
    }

    /// The next slot to run, and its attempt.
    fn next(&self) -> Option<(u32, u32)> {
        let now = Instant::now();
        let is_busy = |lane: usize| lanes(self.plan) > 1 && self.running.keys().any(|slot| self.lane(*slot) == lane);
        self.waiting().find(|(slot, _)| now >= self.idle_until[self.lane(*slot)] && !is_busy(self.lane(*slot)))
    }

    /// Workers may be running trials of this study, too: what they have delivered need not run here.
    fn take_deliveries(&mut self) -> Result<(), SessionError> {
        let taken = self.writer.take_deliveries(self.folder, &self.records)?;
        if !taken.is_empty() {
            self.records.extend(taken);
            self.tally = SlotTally::of(self.plan, &self.records);
        }
        Ok(())
    }

    fn begin(&mut self, slot: u32, attempt: u32) -> Result<(TrialId, PathBuf), SessionError> {
        let id = TrialId::new(self.plan, &self.plan.slots[slot as usize], attempt);
        self.writer.reserve(self.running.len() + 1)?;
        let artifacts = self.writer.artifacts(slot, &id.arm, attempt)?;
        self.running.insert(slot, (id.clone(), artifacts.clone()));
        (self.events)(SessionEvent::SlotStart(id.clone()));
        Ok((id, artifacts))
    }

    /// Turns a trial's result into a record, if it is to be recorded.
    fn end(&mut self, ended: FinishedTrial) -> Result<(), SessionError> {
        let (id, artifacts) = self.running.remove(&ended.slot).expect("only running trials end");
        let lane = self.lane(ended.slot);
        self.idle_until[lane] = Instant::now() + gap(self.plan);
        self.ran += 1;
        match ended.result {
            Ok(mut result) => {
                let has_failed = result.failure.is_some();
                let outcome = match checked(self.plan, &id, &mut result) {
                    Err(wrong) => return self.discard(&artifacts, Some(wrong)),
                    // A guest may have died because the session was told to stop.
                    Ok(_) if has_failed && ended.late => return self.discard(&artifacts, None),
                    Ok(outcome) => outcome,
                };
                let wall_s = (ended.wall + gap(self.plan)).as_secs_f64();
                self.record(&id, &artifacts, outcome.clone(), result)?;
                let has_artifacts = self.records.last().is_some_and(|record| !record.artifacts.is_empty());
                let done = self.tally.finished();
                (self.events)(SessionEvent::SlotEnd { trial: id, outcome, wall_s, has_artifacts, done });
                self.check_not_all_failed()
            }
            Err(HostError::Void(cause)) if !ended.late => self.void(id, &artifacts, cause, ended.wall),
            Err(HostError::Void(_) | HostError::Cancelled) => self.discard(&artifacts, None),
            Err(HostError::Fatal(why)) if lanes(self.plan) > 1 => {
                let machine = self.plan.machine.members[lane].name.clone();
                (self.events)(SessionEvent::MachineStopped { machine, why: why.clone() });
                self.stopped.insert(lane, why);
                self.discard(&artifacts, None)
            }
            Err(HostError::Fatal(why)) => self.discard(
                &artifacts,
                Some(SessionError::Host { why, done: self.tally.finished(), total: self.plan.slots.len() as u32 }),
            ),
        }
    }

    /// Stops a new study whose workloads fail in the first trials of every arm: the program or its metrics are wrong, and all other trials would fail
    /// too. The same command continues the study nevertheless.
    fn check_not_all_failed(&self) -> Result<(), SessionError> {
        let failed = |r: &Record| match &r.outcome {
            Outcome::Failed { failure: Failure::WorkloadError, message } => Some(message.clone()),
            _ => None,
        };
        let messages: Option<Vec<String>> = self.records.iter().map(failed).collect();
        let has_failed = |arm: &plan::Arm| self.records.iter().any(|r| r.arm == arm.name);
        match messages.as_deref() {
            Some([.., last]) if self.is_first && self.plan.arms.iter().all(has_failed) => {
                Err(SessionError::AllArmsFailed { message: last.clone(), dir: self.folder.dir().to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn void(&mut self, id: TrialId, artifacts: &Path, cause: String, wall: Duration) -> Result<(), SessionError> {
        let before = self.tally.clone();
        let cost = HostCost { wall_s: wall.as_secs_f64(), ..HostCost::default() };
        let outcome = Outcome::Void { cause: cause.clone() };
        let nothing = TrialResult {
            failure: None,
            guest: None,
            metrics: Values::default(),
            facts: BTreeMap::new(),
            environment: BTreeMap::new(),
            counters: None,
            changes: Vec::new(),
            complaints: Vec::new(),
            cost,
            evidence: None,
        };
        self.record(&id, artifacts, outcome, nothing)?;
        let standings = (0..).zip(self.tally.slots.iter().zip(&before.slots));
        let moved = standings.filter(|(_, (now, then))| now != then && matches!(now, SlotState::Missing { .. }));
        let again = moved.map(|(slot, _)| slot).collect();
        (self.events)(SessionEvent::Void { trial: id, cause, again, done: self.tally.finished() });
        self.within_limit()
    }

    /// Whether the number of void pairs is within the limit.
    fn within_limit(&self) -> Result<(), SessionError> {
        let limit = SlotTally::void_limit(self.plan.design.pairs);
        let void = self.tally.void_pairs - self.voids_before;
        if void <= limit {
            return Ok(());
        }
        let next = if self.plan.clock == Clock::Wall {
            "This study is invalid; fix the host (`bigiron doctor` helps) and repeat the study in a new folder"
        } else {
            "Fix the host (`bigiron doctor` helps), and the same command resumes the study"
        };
        let cause = self.records.iter().rev().find_map(|r| match &r.outcome {
            Outcome::Void { cause } => Some(cause.clone()),
            _ => None,
        });
        let cause = cause.unwrap_or_default();
        Err(SessionError::TooManyVoid { void, limit, pairs: self.plan.design.pairs, cause, next })
    }

    fn record(
        &mut self,
        id: &TrialId,
        artifacts: &Path,
        outcome: Outcome,
        result: TrialResult,
    ) -> Result<(), SessionError> {
        let artifacts = self.writer.collect(artifacts)?;
        let record = Record { artifacts, ..record_of(self.plan, id, outcome, result) };
        self.writer.append(&record)?;
        self.records.push(record);
        self.tally = SlotTally::of(self.plan, &self.records);
        Ok(())
    }

    /// Removes all traces of a trial that is not recorded.
    fn discard(&self, artifacts: &Path, why: Option<SessionError>) -> Result<(), SessionError> {
        let cleared = self.writer.discard(artifacts);
        why.map_or(Ok(()), Err)?;
        Ok(cleared?)
    }

    fn interrupted(&self) -> SessionError {
        SessionError::Interrupted {
            done: self.tally.finished(),
            total: self.plan.slots.len() as u32,
            dir: self.folder.dir().to_owned(),
        }
    }

    /// The outcome of the session once no trial is running: it counts the last trials.
    fn verdict(&self, stop_reason: Option<SessionError>) -> Result<(), SessionError> {
        match stop_reason {
            None if !self.tally.missing().is_empty() => Err(self.machines_stopped()),
            None => Ok(()),
            // The interruption came when everything was done: there is nothing to resume.
            Some(SessionError::Interrupted { .. }) if self.tally.missing().is_empty() => Ok(()),
            Some(SessionError::Interrupted { .. }) => Err(self.interrupted()),
            Some(SessionError::Host { why, total, .. }) => {
                Err(SessionError::Host { why, done: self.tally.finished(), total })
            }
            Some(other) => Err(other),
        }
    }
}

impl Session<'_> {
    /// What is missing because machines run no more trials.
    fn machines_stopped(&self) -> SessionError {
        let missing = self.tally.missing();
        let of = |(lane, why): (&usize, &String)| {
            let left = missing.iter().filter(|(slot, _)| self.lane(*slot) == *lane).count();
            format!("`{}` lacks {left} trials: {why}", self.plan.machine.members[*lane].name)
        };
        SessionError::Machines {
            done: self.tally.finished(),
            total: self.plan.slots.len() as u32,
            why: self.stopped.iter().map(of).collect::<Vec<_>>().join("; "),
        }
    }
}

/// Runs one trial, on its own thread.
pub(super) fn run_trial(
    plan: &Plan,
    host: &dyn Host,
    id: &TrialId,
    artifacts: &Path,
    stop: &AtomicBool,
    events: &(dyn Fn(SessionEvent) + Sync),
) -> FinishedTrial {
    let slot = &plan.slots[id.slot as usize];
    let (arm, purpose) = (&plan.arms[slot.arm], Purpose::Judge);
    let trial = Trial { plan, slot, arm, purpose, attempt: id.attempt, artifacts, cancel: stop };
    let start = Instant::now();
    // If a panic unwinds (tests, debug builds), the session must not wait for this trial forever.
    let result =
        catch_unwind(AssertUnwindSafe(|| host.run(&trial, &|phase| events(SessionEvent::Phase(id.clone(), phase)))))
            .unwrap_or_else(|_| Err(HostError::Fatal("bigiron's own code panicked; this is a bug".to_owned())));
    FinishedTrial { slot: id.slot, wall: start.elapsed(), late: false, result }
}

/// The record of a trial, without the names of its artefacts.
pub(super) fn record_of(plan: &Plan, id: &TrialId, outcome: Outcome, result: TrialResult) -> Record {
    let slot = &plan.slots[id.slot as usize];
    Record {
        schema: SCHEMA,
        slot: id.slot,
        pair: id.pair,
        position: id.position,
        arm: id.arm.clone(),
        machine: plan.machine_of(slot).map(|member| member.name.clone()),
        attempt: id.attempt,
        outcome,
        guest: result.guest,
        image_sha256: plan.image_of(slot).to_owned(),
        config_sha256: plan.arms[slot.arm].kernel.config_sha256.clone(),
        metrics: result.metrics,
        facts: result.facts,
        environment: result.environment,
        counters: result.counters,
        changes: result.changes,
        complaints: result.complaints,
        host: result.cost,
        artifacts: Vec::new(),
    }
}

/// The outcome of a trial that ran, after the session's own checks.
///
/// # Errors
/// The guest booted another kernel.
pub(super) fn checked(plan: &Plan, id: &TrialId, result: &mut TrialResult) -> Result<Outcome, SessionError> {
    let slot = &plan.slots[id.slot as usize];
    let kernel = &plan.arms[slot.arm].kernel;
    if let Some(guest) = result.guest.as_ref().filter(|g| g.release != kernel.release) {
        return Err(SessionError::WrongKernel {
            arm: id.arm.clone(),
            spec: kernel.spec.clone(),
            asked: kernel.release.clone(),
            said: guest.release.clone(),
        });
    }
    check::metrics(plan, slot, result);
    check::times(plan.clock, result);
    Ok(match result.failure.take() {
        None => Outcome::Completed,
        Some((failure, message)) => Outcome::Failed { failure, message },
    })
}

/// Idle time before each boot.
fn gap(plan: &Plan) -> Duration {
    Duration::from_secs(plan.design.idle_gap_seconds.into())
}

fn mean_wall_s(records: &[Record]) -> Option<f64> {
    let times: Vec<f64> =
        records.iter().filter(|r| !matches!(r.outcome, Outcome::Void { .. })).map(|r| r.host.wall_s).collect();
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

fn summary(plan: &Plan, records: &[Record], ran: u32) -> Summary {
    let tally = SlotTally::of(plan, records);
    let count = |failed: bool| {
        let counts = |s: &&SlotState| match **s {
            SlotState::Finished { record } => matches!(records[record].outcome, Outcome::Failed { .. }) == failed,
            SlotState::Missing { .. } => false,
        };
        tally.slots.iter().filter(counts).count() as u32
    };
    Summary { completed: count(false), failed: count(true), void_pairs: tally.void_pairs, ran }
}
