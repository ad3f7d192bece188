//! Which record stands for each slot of the plan.
//!
//! Invariant: the answer does not depend on the order of the records, and no record is passed over in silence: each one stands for
//! its slot, is a void that a later attempt replaced, or is set aside with a reason.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::store::record::{Outcome, Record, SCHEMA};
use crate::study::plan::Plan;

/// What is known of a slot.
#[derive(Clone, Copy, Debug)]
pub enum Standing<'a> {
    /// All workloads ran and verified.
    Completed(&'a Record),
    /// The guest did not complete: evidence.
    Failed(&'a Record),
    /// Every attempt was spoilt by the host.
    Void(&'a Record),
    /// No record.
    Missing,
}

impl<'a> Standing<'a> {
    /// The record of a result that the guest produced, completed or not.
    pub fn result(self) -> Option<&'a Record> {
        match self {
            Standing::Completed(record) | Standing::Failed(record) => Some(record),
            Standing::Void(_) | Standing::Missing => None,
        }
    }
}

/// A record that stands for nothing, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SetAside {
    pub slot: u32,
    pub attempt: u32,
    pub reason: String,
}

/// The standing of every slot, in the plan's order.
pub struct Standings<'a> {
    pub slots: Vec<Standing<'a>>,
    pub set_aside: Vec<SetAside>,
}

/// Finds the record that stands for each slot: the first attempt that the guest brought to an end, completed or failed. A later
/// success never replaces a failure. Void attempts count only where there is nothing else.
pub fn standings<'a>(plan: &Plan, records: &'a [Record]) -> Standings<'a> {
    let mut by_slot: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
    let mut set_aside = Vec::new();
    for record in records {
        match misfit(plan, record) {
            Some(reason) => {
                set_aside.push(SetAside { slot: record.slot, attempt: record.attempt, reason });
            }
            None => by_slot.entry(record.slot).or_default().push(record),
        }
    }
    let mut slots = Vec::with_capacity(plan.slots.len());
    for slot in &plan.slots {
        let mut attempts = by_slot.remove(&slot.slot).unwrap_or_default();
        attempts.sort_by_cached_key(|r| {
            let rank = match r.outcome {
                Outcome::Failed { .. } => 0,
                Outcome::Completed => 1,
                Outcome::Void { .. } => 2,
            };
            // The text settles what nothing else does, so that two records of one attempt are taken in the same order always.
            (rank == 2, r.attempt, rank, serde_json::to_string(r).unwrap_or_default())
        });
        for extra in attempts.iter().skip(1) {
            if !matches!(extra.outcome, Outcome::Void { .. }) {
                set_aside.push(SetAside {
                    slot: extra.slot,
                    attempt: extra.attempt,
                    reason: "The slot already has a result; its first attempt counts".to_owned(),
                });
            }
        }
        slots.push(match attempts.first() {
            None => Standing::Missing,
            Some(record) => match record.outcome {
                Outcome::Completed => Standing::Completed(record),
                Outcome::Failed { .. } => Standing::Failed(record),
                Outcome::Void { .. } => Standing::Void(record),
            },
        });
    }
    set_aside.sort();
    Standings { slots, set_aside }
}

/// Why a record cannot belong to this plan.
fn misfit(plan: &Plan, record: &Record) -> Option<String> {
    if record.schema != SCHEMA {
        return Some(format!("Its format is version {}; this bigiron reads version {SCHEMA}", record.schema));
    }
    let Some(arm) = plan.arms.iter().position(|a| a.name == record.arm) else {
        return Some(format!("The plan has no arm `{}`", record.arm));
    };
    let Some(slot) = plan.slots.iter().find(|s| s.slot == record.slot) else {
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
    let kernel = &plan.arms[arm].kernel;
    if record.image_sha256 != kernel.image_sha256 {
        return Some("It booted another kernel image than the plan's".to_owned());
    }
    match &record.guest {
        Some(guest) if guest.release != kernel.release => {
            Some(format!("The guest said it was {}; the plan wants {}", guest.release, kernel.release))
        }
        _ => None,
    }
}
