//! Runs slots of the plan again for evidence, without adding records.
//!
//! Invariant: a slot's evidence is complete or absent; a failed rerun leaves nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::error::SessionError;
use super::run;
use bigiron_lab::host::{Host, HostError, Trial, TrialEvidence};
use bigiron_model::purpose::Purpose;
use bigiron_model::store::Folder;

/// Runs `slots` again, as many side by side as a session would with these `jobs`; `note` is told of each. Returns the slots that came to nothing, and why.
///
/// # Errors
/// If it had to stop: an interruption, a full disk. Evidence found before that is kept.
pub fn rerun(
    folder: &Folder,
    host: &dyn Host,
    slots: &[(u32, Purpose)],
    jobs: usize,
    cancel: &AtomicBool,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Vec<(u32, Purpose, String)>, SessionError> {
    let (next, failed, stop) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(None));
    let halt = AtomicBool::new(false);
    let work = || {
        while let Some(&(slot, purpose)) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            if cancel.load(Ordering::Relaxed) || halt.load(Ordering::Relaxed) {
                return;
            }
            match one(folder, host, (slot, purpose), cancel, note) {
                Ok(None) => {}
                Ok(Some(why)) => failed.lock().unwrap_or_else(PoisonError::into_inner).push((slot, purpose, why)),
                Err(e) => {
                    halt.store(true, Ordering::Relaxed);
                    stop.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                }
            }
        }
    };
    thread::scope(|scope| {
        // One fewer than are to work, and fewer if no more can be started.
        let width = if folder.plan().clock.is_exact() { run::width(folder.plan(), host, jobs) } else { 1 };
        for _ in 1..width.min(slots.len()) {
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    if cancel.load(Ordering::Relaxed) {
        return Err(SessionError::CausesInterrupted { dir: folder.dir().to_owned() });
    }
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_unstable();
    stop.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(failed), Err)
}

/// Runs one slot again. Returns why it gave no evidence, if it did not.
fn one(
    folder: &Folder,
    host: &dyn Host,
    (number, purpose): (u32, Purpose),
    cancel: &AtomicBool,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Option<String>, SessionError> {
    let plan = folder.plan();
    let slot = &plan.slots[number as usize];
    let (scratch, what) = match purpose {
        Purpose::Locks => (folder.waiting_scratch(number)?, "tracing the locks of"),
        Purpose::Judge | Purpose::Profile => (folder.evidence_scratch(number)?, "profiling"),
    };
    let arm = &plan.arms[slot.arm];
    let trial = Trial { plan, slot, arm, purpose, attempt: 0, artifacts: scratch.dir(), cancel };
    note(&format!("Rerunning pair {}, {what} {}", slot.pair + 1, arm.name));
    let found = host.run(&trial, &|_| {}).and_then(|result| match result.failure {
        Some((failure, message)) => Err(HostError::Void(format!("{}: {message}", failure.verb()))),
        None => Ok(result.evidence),
    });
    match found {
        Ok(Some(TrialEvidence::Executed(evidence))) => {
            folder.keep_evidence(&evidence).map(|_| None).map_err(Into::into)
        }
        Ok(Some(TrialEvidence::Waited(waiting))) => {
            folder.keep_waiting(&waiting, scratch.dir()).map(|_| None).map_err(Into::into)
        }
        Ok(None) => Ok(Some("the host found no evidence".to_owned())),
        Err(HostError::Void(why)) => Ok(Some(why)),
        // The flag distinguishes an interruption.
        Err(HostError::Cancelled) => Ok(None),
        Err(HostError::Fatal(why)) => Err(SessionError::Causes { why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::counting_host::CountingHost;
    use bigiron_lab::host::sim::Script;
    use bigiron_model::clock::Clock;
    use bigiron_model::store::testing::plan;

    #[test]
    fn only_on_the_exact_clock_slots_are_rerun_side_by_side() {
        for (clock, most) in [(Clock::Exact, 3), (Clock::Wall, 1)] {
            let dir = tempfile::tempdir().unwrap();
            let folder = Folder::create(&dir.path().join("study"), &plan(4, 2, clock, 7)).unwrap();
            let host = CountingHost::new(Script { delay_ms: 20, parallel: 3, ..Script::default() }, most);
            let slots: Vec<_> = (0..8).map(|slot| (slot, Purpose::Locks)).collect();
            let failed = rerun(&folder, &host, &slots, 8, &AtomicBool::new(false), &|_| {}).unwrap();
            assert_eq!(failed.len(), 8, "the host `sim` has no evidence");
            assert_eq!(host.most(), most, "{clock}");
        }
    }
}
