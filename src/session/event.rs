//! What a session tells its observers: terminal, log, tests.

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
}

impl TrialId {
    pub(super) fn new(plan: &Plan, slot: &Slot, attempt: u32) -> Self {
        let arm = plan.arms[slot.arm].name.clone();
        TrialId { slot: slot.slot, pair: slot.pair, position: slot.position, arm, attempt }
    }
}

/// Something happened. Events of one trial come in order; [`SessionEvent::SlotEnd`] and [`SessionEvent::Void`] come after the trial's record is
/// on stable storage.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    SessionStart {
        /// Slots in the plan, and how many of them have their record already.
        total: u32,
        done: u32,
        pairs: u32,
        /// How many trials will run side by side.
        width: usize,
        /// The same of the trials already recorded, on average.
        mean_wall_s: Option<f64>,
        /// Lines of `records.jsonl` that cannot be read, and why; their trials are run again.
        unreadable: Vec<(usize, String)>,
    },
    SlotStart(TrialId),
    Phase(TrialId, Phase),
    /// The trial completed or failed. `done` slots have their record now.
    SlotEnd {
        trial: TrialId,
        outcome: Outcome,
        /// Real time of the trial and of the idle gap before it, seconds.
        wall_s: f64,
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
    /// The user's interruption was seen, or the session must stop: running trials are being ended.
    Stopping,
    /// No trial is running any more.
    SessionEnd {
        done: u32,
        total: u32,
    },
}
