//! The state of the plan's slots according to the records: which are finished, which must be run, and with which attempt number.
//!
//! Invariant: a pure function of plan and records. The session has no other state, so it can be killed at any moment.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Clock;
use crate::plan::Plan;
use crate::record::{Outcome, Record};

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Still to be run, with this attempt number: for the first time, because its last trial was void, or, where a plan
    /// [confirms failures](Plan::confirms_failures), because its trial failed.
    Missing { attempt: u32 },
    /// Finished: index of the record that counts.
    Finished { record: usize },
}

/// The state of all slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotTally {
    /// By the slot's number.
    pub slots: Vec<SlotState>,
    /// How often a pair became void: distinct (pair, attempt) with a void record.
    pub void_pairs: u32,
}

/// The unit that is run again as a whole if one of its trials is void.
///
/// On the wall clock, the two trials of a pair are comparable because they ran one after the other, under the same drift: a void trial therefore
/// voids its pair. On the exact clock (and without a clock) a trial's result does not depend on when it runs, and a second run of the partner would
/// give the same bytes: only the void slot is run again.
fn unit(plan: &Plan, slot: u32, pair: u32) -> u32 {
    if plan.clock == Clock::Wall { pair } else { slot }
}

/// The index of the record that shows whether the failed trial `first` fails again: the next attempt that was not void.
pub fn repeat_of<R: Borrow<Record>>(records: &[R], first: &Record) -> Option<usize> {
    let is_later =
        |r: &Record| r.slot == first.slot && r.attempt > first.attempt && !matches!(r.outcome, Outcome::Void { .. });
    let later = records.iter().map(R::borrow).enumerate().filter(|(_, r)| is_later(r));
    later.min_by_key(|(_, r)| r.attempt).map(|(index, _)| index)
}

impl SlotTally {
    /// Tallies `records`, which must belong to `plan` (as those of [`super::Folder::records`] do).
    pub fn of<R: Borrow<Record>>(plan: &Plan, records: &[R]) -> Self {
        // The attempt that counts: the last one found, or the one after the last void one.
        let mut attempts: BTreeMap<u32, u32> = BTreeMap::new();
        let mut voids = BTreeSet::new();
        for r in records.iter().map(R::borrow) {
            let void = matches!(r.outcome, Outcome::Void { .. });
            if void {
                voids.insert((r.pair, r.attempt));
            }
            let current = attempts.entry(unit(plan, r.slot, r.pair)).or_default();
            *current = (*current).max(r.attempt.saturating_add(u32::from(void)));
        }
        let mut slots: Vec<SlotState> = plan
            .slots
            .iter()
            .map(|s| SlotState::Missing { attempt: attempts.get(&unit(plan, s.slot, s.pair)).copied().unwrap_or(0) })
            .collect();
        for (index, r) in records.iter().map(R::borrow).enumerate() {
            let standing = &mut slots[r.slot as usize];
            match (&r.outcome, *standing) {
                // A failure is evidence whatever happened to its partner, and no later result replaces it.
                (Outcome::Failed { .. }, SlotState::Missing { .. }) => {
                    *standing = SlotState::Finished { record: index }
                }
                (Outcome::Completed, SlotState::Missing { attempt }) if attempt == r.attempt => {
                    *standing = SlotState::Finished { record: index };
                }
                _ => {}
            }
        }
        if plan.confirms_failures() {
            for standing in &mut slots {
                let SlotState::Finished { record } = *standing else { continue };
                let failed = records[record].borrow();
                if matches!(failed.outcome, Outcome::Failed { .. }) && repeat_of(records, failed).is_none() {
                    let next = attempts.get(&unit(plan, failed.slot, failed.pair)).copied().unwrap_or(0);
                    *standing = SlotState::Missing { attempt: next.max(failed.attempt.saturating_add(1)) };
                }
            }
        }
        SlotTally { slots, void_pairs: voids.len() as u32 }
    }

    /// Slots that must be run, with their attempt numbers, in order: first attempts in the plan's order, then second attempts in the same order, and
    /// so on.
    pub fn missing(&self) -> Vec<(u32, u32)> {
        let mut missing: Vec<_> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(slot, standing)| match *standing {
                SlotState::Missing { attempt } => Some((slot as u32, attempt)),
                SlotState::Finished { .. } => None,
            })
            .collect();
        missing.sort_by_key(|&(slot, attempt)| (attempt, slot));
        missing
    }

    /// Number of finished slots.
    pub fn finished(&self) -> u32 {
        self.slots.iter().filter(|s| matches!(s, SlotState::Finished { .. })).count() as u32
    }

    /// The number of `pairs` that may be void before it is pointless to continue: a quarter.
    pub fn void_limit(pairs: u32) -> u32 {
        pairs / 4
    }
}
