//! Pairs to rerun with profiling once a study has its verdict: which, why and how.

use std::sync::atomic::AtomicBool;

use bigiron_judge::{Judgement, causes};
use bigiron_lab::host::Host;
use bigiron_model::clock::Clock;
use bigiron_model::host::HostKind;
use bigiron_model::plan::Plan;
use bigiron_model::purpose::Purpose;
use bigiron_model::store::Folder;

use super::{Observer, StudyRequest};
use crate::session::{self, SessionError};

/// Default number of pairs to rerun with profiling: on the exact clock one pair differs little from another.
const PROFILED: u32 = 1;

/// The same with sampling: two pairs give twice the samples and add a sixth to a study of twelve pairs.
const SAMPLED: u32 = 2;

/// The same for locks in guests on the wall clock.
const TRACED: u32 = 2;

/// Default numbers of pairs to rerun for locks and for functions.
fn usual(plan: &Plan) -> (u32, u32) {
    // On one CPU the holder of a contended lock sleeps; spinlocks are never contended.
    let contended = plan.machine.cpus > 1;
    match (plan.machine.host, plan.clock) {
        (HostKind::Vm, Clock::Exact) => (if contended { PROFILED } else { 0 }, PROFILED),
        (HostKind::Vm, Clock::Wall) => (if contended { TRACED } else { 0 }, 0),
        (HostKind::Local, Clock::Wall) => (SAMPLED, SAMPLED),
        _ => (0, 0),
    }
}

/// The slots to rerun that have no evidence yet, and what to record.
pub(super) fn wanted(folder: &Folder, judgement: &Judgement, request: &StudyRequest<'_>) -> Vec<(u32, Purpose)> {
    let plan = folder.plan();
    if plan.machine.host == HostKind::Sim || plan.clock == Clock::None {
        return Vec::new();
    }
    let (locks, functions) = usual(plan);
    let into = if functions == 0 { 0 } else { request.why.unwrap_or(functions) };
    // `--why` without `--locks` sets both.
    let at = request.locks.unwrap_or(if locks == 0 { 0 } else { request.why.unwrap_or(locks) });
    let slots = |pairs| causes::slots(plan, judgement, pairs).into_iter();
    let functions = slots(into).filter(|slot| folder.evidence_of(*slot).is_none()).map(|slot| (slot, Purpose::Profile));
    let locks = slots(at).filter(|slot| folder.waiting_of(*slot).is_none()).map(|slot| (slot, Purpose::Locks));
    functions.chain(locks).collect()
}

/// Reruns slots for evidence. Returns messages about evidence that could not be obtained.
pub(super) fn look(
    folder: &Folder,
    host: &dyn Host,
    slots: &[(u32, Purpose)],
    jobs: usize,
    cancel: &AtomicBool,
    observer: &dyn Observer,
) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    let mut slots = slots.to_vec();
    for (of, what, can) in [
        (Purpose::Profile, "causes", host.supports(Purpose::Profile)),
        (Purpose::Locks, "locks", host.supports(Purpose::Locks)),
    ] {
        if let (Err(why), true) = (can, slots.iter().any(|(_, what)| *what == of)) {
            missing.push(format!("No {what}: {why}"));
            slots.retain(|(_, what)| *what != of);
        }
    }
    let note = |text: &str| observer.note(text);
    let failed = session::rerun(folder, host, &slots, jobs.min(host.parallel()), cancel, &note)?;
    let name = |slot: u32| &folder.plan().arms[folder.plan().slots[slot as usize].arm].name;
    missing.extend(failed.into_iter().map(|(slot, what, why)| {
        let locks = if what == Purpose::Locks { "The locks of trial" } else { "Trial" };
        format!("{locks} {slot} ({}) gave no evidence: {why}", name(slot))
    }));
    Ok(missing)
}

/// A finished study's verdict stands whether or not its causes are found; only an interruption is an error.
pub(super) fn unless_interrupted(looked: anyhow::Result<Vec<String>>) -> anyhow::Result<Vec<String>> {
    match looked {
        Err(e) if matches!(e.downcast_ref(), Some(SessionError::LookInterrupted { .. })) => Err(e),
        Err(e) => Ok(vec![format!("{e:#}")]),
        looked => looked,
    }
}
