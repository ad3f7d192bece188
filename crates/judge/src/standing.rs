//! The record that counts for each slot of the plan.
//!
//! Invariant: the answer is the session's own ([`SlotTally`]) and does not depend on the order of the records. No record is silently ignored: each
//! one counts for its slot, is void, was voided with its pair, or is set aside with a reason.

use std::collections::BTreeMap;

use serde::Serialize;

use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;
use bigiron_model::record::{OLDEST, Outcome, Record, SCHEMA};
use bigiron_model::store::SlotTally;
use bigiron_model::store::tally;

/// The standing of a slot.
#[derive(Clone, Copy, Debug)]
pub enum SlotStanding<'a> {
    /// All workloads ran and verified.
    Completed(&'a Record),
    /// The guest did not complete: evidence.
    Failed(&'a Record),
    /// No result yet, or only void ones.
    Missing,
}

/// A record that does not count, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SetAside {
    pub slot: u32,
    pub attempt: u32,
    pub reason: String,
}

/// The standing of every slot, in the plan's order.
pub struct Standings<'a> {
    pub slots: Vec<SlotStanding<'a>>,
    pub set_aside: Vec<SetAside>,
    /// Trials that the host spoilt, in the order of slots and attempts.
    pub void: Vec<&'a Record>,
    /// Results that do not count because they were voided with their pair, in the same order. What their kernels logged is evidence nevertheless.
    pub superseded: Vec<&'a Record>,
    /// How often a pair became void: distinct (pair, attempt) with a void trial.
    pub void_pairs: u32,
    /// The second run of each failed slot that was run again.
    pub repeats: BTreeMap<u32, &'a Record>,
}

impl<'a> Standings<'a> {
    /// The record that counts for `slot`, if that trial completed. Other completed records of the slot were superseded.
    pub fn completed(&self, slot: u32) -> Option<&'a Record> {
        match self.slots.get(slot as usize)? {
            SlotStanding::Completed(record) => Some(record),
            SlotStanding::Failed(_) | SlotStanding::Missing => None,
        }
    }
}

/// Finds the record that counts for each slot.
pub fn standings<'a>(plan: &Plan, records: &'a [Record]) -> Standings<'a> {
    let mut set_aside = Vec::new();
    let mut fitting: Vec<&Record> = Vec::new();
    for record in records {
        match misfit(plan, record) {
            Some(reason) => set_aside.push(SetAside { slot: record.slot, attempt: record.attempt, reason }),
            None => fitting.push(record),
        }
    }
    // The tally takes the first of several records that could count for a slot; sorting makes that the same record in every order.
    let key = |r: &Record| (r.slot, r.attempt, matches!(r.outcome, Outcome::Completed));
    let text = |r: &Record| serde_json::to_string(r).unwrap_or_default();
    fitting.sort_by(|x, y| key(x).cmp(&key(y)).then_with(|| text(x).cmp(&text(y))));
    let tally = SlotTally::of(plan, &fitting);

    let mut counted = vec![false; fitting.len()];
    let is_failed = |r: &Record| matches!(r.outcome, Outcome::Failed { .. });
    let failed = |slot: u32| fitting.iter().position(|r| r.slot == slot && is_failed(r));
    let mut slots = Vec::with_capacity(plan.slots.len());
    for standing in &tally.slots {
        slots.push(match *standing {
            // A failure that is still to be run again is evidence already.
            tally::SlotState::Missing { .. } => match failed(slots.len() as u32) {
                Some(index) => {
                    counted[index] = true;
                    SlotStanding::Failed(fitting[index])
                }
                None => SlotStanding::Missing,
            },
            tally::SlotState::Finished { record } => {
                counted[record] = true;
                match fitting[record].outcome {
                    Outcome::Failed { .. } => SlotStanding::Failed(fitting[record]),
                    _ => SlotStanding::Completed(fitting[record]),
                }
            }
        });
    }
    let mut repeats = BTreeMap::new();
    for standing in &slots {
        let SlotStanding::Failed(first) = standing else { continue };
        if let Some(repeat) = tally::repeat_of(&fitting, first).filter(|_| plan.confirms_failures()) {
            repeats.insert(first.slot, fitting[repeat]);
        }
    }
    let is_repeat = |r: &Record| repeats.get(&r.slot).is_some_and(|repeat| repeat.attempt == r.attempt);
    let void: Vec<&Record> = fitting.iter().copied().filter(|r| matches!(r.outcome, Outcome::Void { .. })).collect();
    // On the wall clock a void trial also voids its partner's result; that is the design and needs no remark.
    let voided =
        |r: &Record| plan.clock == Clock::Wall && void.iter().any(|v| v.pair == r.pair && v.attempt >= r.attempt);
    let mut superseded = Vec::new();
    for (&record, counted) in fitting.iter().zip(counted) {
        if counted || matches!(record.outcome, Outcome::Void { .. }) || is_repeat(record) {
            continue;
        }
        if voided(record) {
            superseded.push(record);
        } else {
            set_aside.push(SetAside {
                slot: record.slot,
                attempt: record.attempt,
                reason: "Another record of the slot counts".to_owned(),
            });
        }
    }
    set_aside.sort();
    Standings { slots, set_aside, void, superseded, void_pairs: tally.void_pairs, repeats }
}

/// Why a record cannot belong to this plan.
fn misfit(plan: &Plan, record: &Record) -> Option<String> {
    if !(OLDEST..=SCHEMA).contains(&record.schema) {
        return Some(format!(
            "Its format is version {}; this bigiron reads versions {OLDEST} to {SCHEMA}",
            record.schema
        ));
    }
    let Some(arm) = plan.arms.iter().position(|a| a.name == record.arm) else {
        return Some(format!("The plan has no arm `{}`", record.arm));
    };
    // A plan numbers its slots from 0 in order; the tally relies on it.
    let Some(slot) = plan.slots.get(record.slot as usize).filter(|s| s.slot == record.slot) else {
        return Some("The plan has no such slot".to_owned());
    };
    if (slot.pair, slot.position, slot.arm) != (record.pair, record.position, arm) {
        return Some(format!(
            "The plan has pair {}, position {}, arm `{}` in this slot; the record says pair {}, position {}, arm `{}`",
            slot.pair, slot.position, plan.arms[slot.arm].name, record.pair, record.position, record.arm
        ));
    }
    if matches!(record.outcome, Outcome::Void { .. }) {
        return None;
    }
    let machine = plan.machine_of(slot).map(|member| member.name.as_str());
    if record.machine.as_deref() != machine {
        return Some(format!(
            "It ran on {}, not on the plan's",
            record.machine.as_deref().unwrap_or("another machine")
        ));
    }
    let kernel = &plan.arms[arm].kernel;
    if record.image_sha256 != plan.image_of(slot) {
        return Some("It booted a kernel image other than the plan's".to_owned());
    }
    match &record.guest {
        Some(guest) if guest.release != kernel.release => {
            Some(format!("The guest ran {}; the plan wants {}", guest.release, kernel.release))
        }
        _ => None,
    }
}
