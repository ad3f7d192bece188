//! A worker: runs trials of a prepared study, alongside other workers, and delivers them to the study's folder.
//!
//! Invariant: a trial that has a result is not run again, and running one twice does no harm. A worker decides nothing: what is missing follows from
//! the plan, the records and the deliveries.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW};

use super::error::SessionError;
use super::event::{SessionEvent, TrialId};
use super::run::{checked, record_of, run_trial};
use bigiron_lab::host::{Host, HostError};
use bigiron_model::record::Record;
use bigiron_model::store::{Delivered, Folder, SlotTally, StoreError};

/// Which trials a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Those of one slot.
    Slot(u32),
    /// One after another, those that no other worker has claimed, until none is missing.
    Claimed,
}

/// How often a claim is renewed, and after how long without that it is void.
const CLAIM_RENEWAL: Duration = Duration::from_secs(5);
const CLAIM_EXPIRY: Duration = Duration::from_secs(60);
const TIME_OF_CALL: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
const NOW: Timestamps = Timestamps { last_access: TIME_OF_CALL, last_modification: TIME_OF_CALL };
/// Time between checks whether other workers have delivered their trials.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a worker's share. Returns how many trials it delivered.
///
/// # Errors
/// The host could not run a trial, or ran one with other results than another machine: both are the host's fault, and nothing is lost.
pub fn work(
    folder: &Folder,
    host: &dyn Host,
    share: Share,
    machine: &str,
    cancel: &AtomicBool,
    events: &(dyn Fn(SessionEvent) + Sync),
) -> Result<u32, SessionError> {
    let (plan, records) = (folder.plan(), all_records(folder)?);
    events(SessionEvent::SessionStart {
        total: plan.slots.len() as u32,
        done: SlotTally::of(plan, &records).finished(),
        pairs: plan.design.pairs,
        width: 1,
        mean_wall_s: None,
        unreadable: Vec::new(),
    });
    let (mut done, mut waited_for) = (0, 0);
    loop {
        let records = all_records(folder)?;
        let missing = SlotTally::of(plan, &records).missing();
        let mine: Vec<_> =
            missing.into_iter().filter(|(slot, _)| share == Share::Claimed || share == Share::Slot(*slot)).collect();
        if mine.is_empty() {
            return Ok(done);
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(interrupted(folder, &records));
        }
        let claim = if share == Share::Claimed { claim(folder, &mine, machine)? } else { None };
        let trial = match share {
            Share::Slot(_) => mine.first().copied(),
            Share::Claimed => claim.as_ref().map(|claim| claim.trial),
        };
        let Some((slot, attempt)) = trial else {
            if waited_for != mine.len() {
                waited_for = mine.len();
                events(SessionEvent::Waiting { trials: mine.len() as u32 });
            }
            thread::sleep(POLL_INTERVAL);
            continue;
        };
        waited_for = 0;
        let delivered = one(folder, host, (slot, attempt), machine, cancel, events);
        drop(claim);
        match delivered? {
            Delivered::Differs(what) => return Err(SessionError::Differs { slot, what, machine: machine.to_owned() }),
            Delivered::First | Delivered::Same => done += 1,
        }
    }
}

/// The records, and what workers have delivered.
///
/// # Errors
/// One cannot be read, or two machines gave a trial different results.
pub fn all_records(folder: &Folder) -> Result<Vec<Record>, SessionError> {
    let mut records = folder.records()?.records;
    records.extend(folder.not_taken(&records)?);
    Ok(records)
}

/// Runs a trial and delivers it.
fn one(
    folder: &Folder,
    host: &dyn Host,
    (slot, attempt): (u32, u32),
    machine: &str,
    cancel: &AtomicBool,
    events: &(dyn Fn(SessionEvent) + Sync),
) -> Result<Delivered, SessionError> {
    let plan = folder.plan();
    let id = TrialId::new(plan, &plan.slots[slot as usize], attempt);
    let delivery = folder.delivery(slot, attempt, machine)?;
    events(SessionEvent::SlotStart(id.clone()));
    let ended = run_trial(plan, host, &id, &delivery.artifacts(), cancel, events);
    let is_late = cancel.load(Ordering::Relaxed);
    let mut result = match ended.result {
        Ok(result) if result.failure.is_none() || !is_late => result,
        Err(HostError::Void(why) | HostError::Fatal(why)) if !is_late => {
            return Err(SessionError::CannotRun { slot, machine: machine.to_owned(), why });
        }
        _ => return Err(interrupted(folder, &all_records(folder)?)),
    };
    let outcome = checked(plan, &id, &mut result)?;
    let mut record = record_of(plan, &id, outcome.clone(), result);
    let delivered = delivery.complete(&mut record, machine)?;
    let done = SlotTally::of(plan, &all_records(folder)?).finished();
    let has_artifacts = !record.artifacts.is_empty();
    events(SessionEvent::SlotEnd { trial: id, outcome, wall_s: ended.wall.as_secs_f64(), has_artifacts, done });
    Ok(delivered)
}

fn interrupted(folder: &Folder, records: &[Record]) -> SessionError {
    let plan = folder.plan();
    let done = SlotTally::of(plan, records).finished();
    SessionError::Interrupted { done, total: plan.slots.len() as u32, dir: folder.dir().to_owned() }
}

/// A claim of one trial, renewed until it is dropped.
struct Claim {
    /// Slot and attempt.
    trial: (u32, u32),
    path: PathBuf,
    stop: mpsc::Sender<()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        let _ = fs::remove_file(&self.path);
    }
}

/// Claims the first trial that nobody has claimed, or whose claim its worker no longer renews. A claim only avoids double work: two workers that claim
/// one trial both run it, and the second one's result is compared.
fn claim(folder: &Folder, missing: &[(u32, u32)], machine: &str) -> Result<Option<Claim>, SessionError> {
    let dir = folder.dir().join("slots");
    let failed = |path: &Path, e| SessionError::Store(StoreError::io("claim a trial in", path, e));
    fs::create_dir_all(&dir).map_err(|e| failed(&dir, e))?;
    let now = file_system_time(&dir, machine).map_err(|e| failed(&dir, e))?;
    for &(slot, attempt) in missing {
        let path = dir.join(format!(".{slot:04}-{attempt}.claim"));
        let age =
            fs::metadata(&path).and_then(|m| m.modified()).ok().map(|t| now.duration_since(t).unwrap_or_default());
        if age.is_some_and(|age| age >= CLAIM_EXPIRY) {
            let _ = fs::remove_file(&path);
        }
        match File::create_new(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(failed(&path, e)),
            Ok(file) => {
                let (stop, stopped) = mpsc::channel();
                let renew = move || {
                    while stopped.recv_timeout(CLAIM_RENEWAL) == Err(RecvTimeoutError::Timeout) {
                        // The file system's own time, as above.
                        let _ = rustix::fs::futimens(&file, &NOW);
                    }
                };
                // Without the thread the claim becomes void early, which costs double work.
                let _ = thread::Builder::new().spawn(renew);
                return Ok(Some(Claim { trial: (slot, attempt), path, stop }));
            }
        }
    }
    Ok(None)
}

/// The time as the folder's file system has it, which may be another machine's.
fn file_system_time(dir: &Path, machine: &str) -> std::io::Result<SystemTime> {
    let path = dir.join(format!(".time.{machine}.{}", std::process::id()));
    File::create(&path)?;
    let time = fs::metadata(&path).and_then(|m| m.modified());
    let _ = fs::remove_file(&path);
    time
}
