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

/// The same where functions are sampled, and their locks traced: two pairs give twice the samples and add a sixth to a study of twelve pairs.
const SAMPLED: u32 = 2;

/// Pairs of a plan to rerun for its locks and for its functions, unless options say otherwise.
fn default_pairs(plan: &Plan) -> (u32, u32) {
    // On one CPU the holder of a contended lock sleeps; spinlocks are never contended.
    let contended = plan.machine.cpus > 1;
    match (plan.machine.host, plan.clock) {
        (HostKind::Vm, Clock::Exact | Clock::ExactParallel | Clock::Exact1) => {
            (if contended { PROFILED } else { 0 }, PROFILED)
        }
        (HostKind::Vm, Clock::Wall) => (if contended { SAMPLED } else { 0 }, SAMPLED),
        (HostKind::Local | HostKind::Ssh, Clock::Wall) => (SAMPLED, SAMPLED),
        _ => (0, 0),
    }
}

/// The slots to rerun that have no evidence yet, and what to record.
pub(super) fn wanted(folder: &Folder, judgement: &Judgement, request: &StudyRequest<'_>) -> Vec<(u32, Purpose)> {
    let plan = folder.plan();
    if plan.machine.host == HostKind::Sim || plan.clock == Clock::None {
        return Vec::new();
    }
    let (locks, functions) = default_pairs(plan);
    // Modelled trials already have evidence; those without are rerun and modelled now.
    let all = request.model.then_some(plan.design.pairs);
    let asked = request.why.or(all);
    let into = if functions == 0 { 0 } else { asked.unwrap_or(functions) };
    // A model may tell arms apart that the exact clock calls the same; samples would only be compared where a line differs.
    let of_all_arms = asked.is_some() && plan.clock.is_exact();
    // `--why` without `--locks` sets both.
    let at = request.locks.unwrap_or(if locks == 0 { 0 } else { request.why.unwrap_or(locks) });
    let profiled =
        if of_all_arms { causes::slots_of_all_arms(plan, into) } else { causes::slots(plan, judgement, into) };
    let functions =
        profiled.into_iter().filter(|slot| folder.evidence_of(*slot).is_none()).map(|slot| (slot, Purpose::Profile));
    let traced = causes::slots(plan, judgement, at).into_iter();
    let locks = traced.filter(|slot| folder.waiting_of(*slot).is_none()).map(|slot| (slot, Purpose::Locks));
    functions.chain(locks).collect()
}

/// Reruns slots for evidence. Returns messages about evidence that could not be obtained.
pub(super) fn run(
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
    let failed = session::rerun(folder, host, &slots, jobs, cancel, &note)?;
    let name = |slot: u32| &folder.plan().arms[folder.plan().slots[slot as usize].arm].name;
    missing.extend(failed.into_iter().map(|(slot, what, why)| {
        let locks = if what == Purpose::Locks { "Lock tracing of trial" } else { "Profiling of trial" };
        format!("{locks} {slot} ({}) gave no evidence: {why}", name(slot))
    }));
    Ok(missing)
}

/// A finished study's verdict stands whether or not its causes are found; only an interruption is an error.
pub(super) fn unless_interrupted(looked: anyhow::Result<Vec<String>>) -> anyhow::Result<Vec<String>> {
    match looked {
        Err(e) if matches!(e.downcast_ref(), Some(SessionError::CausesInterrupted { .. })) => Err(e),
        Err(e) => Ok(vec![format!("{e:#}")]),
        looked => looked,
    }
}

#[cfg(test)]
mod tests {
    use bigiron_judge::{fixture, judge};

    use super::super::TrialsBy;
    use super::*;
    use crate::conduct::StudyRequest;
    use crate::study::question::Question;

    struct Silent;

    impl Observer for Silent {
        fn note(&self, _text: &str) {}

        fn warn(&self, _text: &str) {}

        fn session(&self) -> Box<dyn Fn(session::SessionEvent) + Sync> {
            Box::new(|_| {})
        }
    }

    /// The pairs of a study on `host` whose primary is worse that are rerun for what executes and for locks; `why` is what the user asked for.
    fn pairs(host: HostKind, clock: Clock, cpus: u32, why: Option<u32>) -> [usize; 2] {
        pairs_where(1.2, host, clock, cpus, why)
    }

    /// The same where each metric of the second arm is `factor` times that of the first.
    fn pairs_where(factor: f64, host: HostKind, clock: Clock, cpus: u32, why: Option<u32>) -> [usize; 2] {
        let mut plan = fixture::plan(&["debian:6.1", "debian:6.12"], 8, vec![fixture::micro()]);
        (plan.machine.host, plan.machine.cpus, plan.clock) = (host, cpus, clock);
        let records = fixture::records(&plan, 1e-3, |_, _, _| factor);
        let judgement = judge(&plan, &records);
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("study"), &plan).unwrap();
        let request = StudyRequest {
            question: Question::default(),
            file: None,
            script: None,
            out: None,
            fresh: false,
            jobs: None,
            why,
            model: false,
            locks: None,
            trials: TrialsBy::This,
            part: None,
            observer: &Silent,
        };
        let wanted = wanted(&folder, &judgement, &request);
        [Purpose::Profile, Purpose::Locks].map(|purpose| wanted.iter().filter(|(_, of)| *of == purpose).count() / 2)
    }

    #[test]
    fn a_primary_that_is_worse_is_looked_into_on_every_host_and_clock_that_can() {
        assert_eq!(pairs(HostKind::Vm, Clock::Exact, 1, None), [1, 0]);
        assert_eq!(pairs(HostKind::Vm, Clock::Exact, 2, None), [1, 1]);
        assert_eq!(pairs(HostKind::Vm, Clock::Wall, 1, None), [2, 0]);
        assert_eq!(pairs(HostKind::Vm, Clock::Wall, 4, None), [2, 2]);
        assert_eq!(pairs(HostKind::Local, Clock::Wall, 2, None), [2, 2]);
        assert_eq!(pairs(HostKind::Vm, Clock::Wall, 2, Some(5)), [5, 5]);
        assert_eq!(pairs(HostKind::Vm, Clock::Wall, 2, Some(0)), [0, 0]);
        assert_eq!(pairs(HostKind::Vm, Clock::None, 2, None), [0, 0]);
        assert_eq!(pairs(HostKind::Sim, Clock::Exact, 1, None), [0, 0]);
    }

    #[test]
    fn arms_that_are_the_same_are_modelled_only_if_the_user_asks() {
        assert_eq!(pairs_where(1.0, HostKind::Vm, Clock::Exact, 1, None), [0, 0]);
        assert_eq!(pairs_where(1.0, HostKind::Vm, Clock::Exact, 1, Some(2)), [2, 0]);
        assert_eq!(pairs_where(1.0, HostKind::Vm, Clock::ExactParallel, 2, Some(2)), [2, 0]);
        assert_eq!(pairs_where(1.0, HostKind::Vm, Clock::Wall, 1, Some(2)), [0, 0]);
        assert_eq!(pairs_where(1.0, HostKind::Local, Clock::Wall, 2, Some(2)), [0, 0]);
    }
}
