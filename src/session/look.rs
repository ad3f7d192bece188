//! Looking into trials: slots of the plan run again for evidence, beside the records and never among them.
//!
//! Invariant: a slot's evidence is there whole or not at all, and what comes to nothing leaves nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::error::SessionError;
use bigiron_lab::host::{Host, HostError, Trial};
use bigiron_model::store::Folder;

/// What a slot is looked into for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// What is executed.
    Functions,
    /// What is waited for.
    Locks,
}

/// Runs `slots` again, up to `jobs` side by side; `note` is told of each. What could not be
/// looked into comes back, and why.
///
/// # Errors
/// If it had to stop: an interruption, a full disk. What was found until then is kept.
pub fn look(
    folder: &Folder,
    host: &dyn Host,
    slots: &[(u32, What)],
    jobs: usize,
    cancel: &AtomicBool,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Vec<(u32, What, String)>, SessionError> {
    let (next, failed, stop) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    let halt = AtomicBool::new(false);
    let work = || {
        while let Some(&(slot, what)) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            if cancel.load(Ordering::Relaxed) || halt.load(Ordering::Relaxed) {
                return;
            }
            match one(folder, host, (slot, what), cancel, note) {
                Ok(None) => {}
                Ok(Some(why)) => failed.lock().unwrap_or_else(PoisonError::into_inner).push((slot, what, why)),
                Err(e) => {
                    halt.store(true, Ordering::Relaxed);
                    stop.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.min(slots.len()) {
            scope.spawn(work);
        }
    });
    if cancel.load(Ordering::Relaxed) {
        return Err(SessionError::LookInterrupted { dir: folder.dir().to_owned() });
    }
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_unstable();
    stop.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(failed), Err)
}

/// Looks into one slot; why it came to nothing, if it did.
fn one(
    folder: &Folder,
    host: &dyn Host,
    (number, what): (u32, What),
    cancel: &AtomicBool,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Option<String>, SessionError> {
    let plan = folder.plan();
    let slot = &plan.slots[number as usize];
    let scratch = match what {
        What::Functions => folder.evidence_scratch(number)?,
        What::Locks => folder.waiting_scratch(number)?,
    };
    let trial = Trial { plan, slot, arm: &plan.arms[slot.arm], attempt: 0, artifacts: scratch.dir(), cancel };
    let at = if what == What::Locks { " at the locks of" } else { " into" };
    note(&format!("Looking{at} pair {}, {}", slot.pair + 1, plan.arms[slot.arm].name));
    let kept = match what {
        What::Functions => host.look(&trial, &|_| {}).map(|evidence| folder.keep_evidence(&evidence)),
        What::Locks => host.look_at_locks(&trial, &|_| {}).map(|waiting| folder.keep_waiting(&waiting, scratch.dir())),
    };
    match kept {
        Ok(kept) => kept.map(|_| None).map_err(Into::into),
        Err(HostError::Void(why)) => Ok(Some(why)),
        // Told apart by the flag.
        Err(HostError::Cancelled) => Ok(None),
        Err(HostError::Fatal(why)) => Err(SessionError::Look { why }),
    }
}
