//! The events that a session reports to its observers: terminal, log, tests.

use bigiron_lab::host::Phase;
use bigiron_model::plan::{Plan, Slot};
use bigiron_model::record::Outcome;

/// Names a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialId {
    pub slot: u32,
    pub pair: u32,
    pub position: u32,
    /// The arm's name.
    pub arm: String,
    pub attempt: u32,
    /// Its machine, if there are several.
    pub machine: Option<String>,
}

impl TrialId {
    pub(super) fn new(plan: &Plan, slot: &Slot, attempt: u32) -> Self {
        let arm = plan.arms[slot.arm].name.clone();
        let machine = plan.machine_of(slot).map(|member| member.name.clone());
        TrialId { slot: slot.slot, pair: slot.pair, position: slot.position, arm, attempt, machine }
    }
}

/// An event. Events of one trial come in order; [`SessionEvent::SlotEnd`] and [`SessionEvent::Void`] come after the trial's
/// record is on stable storage.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    SessionStart {
        /// Number of slots in the plan, and how many have a record already.
        total: u32,
        done: u32,
        pairs: u32,
        /// How many trials will run in parallel.
        width: usize,
        /// The mean of the same for the trials already recorded.
        mean_wall_s: Option<f64>,
        /// Unreadable lines of `records.jsonl`, and why; their trials are run again.
        unreadable: Vec<(usize, String)>,
    },
    SlotStart(TrialId),
    Phase(TrialId, Phase),
    /// The trial completed or failed. `done` slots now have a record.
    SlotEnd {
        trial: TrialId,
        outcome: Outcome,
        /// Real time of the trial and of the idle gap before it, seconds.
        wall_s: f64,
        /// Whether it left artefacts.
        has_artifacts: bool,
        done: u32,
    },
    /// The host failed: the trials of `again` (slots) are run again at the end. `done` may be less than before: on the wall clock
    /// the whole pair is run again.
    Void {
        trial: TrialId,
        cause: String,
        again: Vec<u32>,
        done: u32,
    },
    /// A worker has nothing to run until other workers deliver what they have claimed, or no longer renew their claims.
    Waiting {
        trials: u32,
    },
    /// One of several machines runs no more trials; the others go on.
    MachineStopped {
        machine: String,
        why: String,
    },
    /// The user interrupted the session, or it must stop: running trials are being ended.
    Stopping,
    /// All trials have ended.
    SessionEnd {
        done: u32,
        total: u32,
    },
}
