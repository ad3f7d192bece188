//! How each arm's boots ended, and which of these outcomes count against the arm.
//!
//! Invariant: every result of a guest is counted exactly once, as completed or under its failure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::standing::{SlotStanding, Standings};
use bigiron_model::plan::Plan;
use bigiron_model::record::{Failure, Outcome, Record};

/// The class of kernel complaint that is reported but does not decide a verdict by itself.
const UNDECIDING: &str = "warning";

/// How one arm's boots ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survival {
    pub arm: String,
    /// Boots planned.
    pub planned: u32,
    /// Boots with a result: completed + failed.
    pub boots: u32,
    pub completed: u32,
    /// Trials that the host spoilt, whether rerun yet or not.
    pub void: u32,
    /// The distinct causes, in the order of slots.
    pub void_causes: Vec<String>,
    /// Slots without a result.
    pub missing: u32,
    /// By failure, most frequent first.
    pub failures: Vec<Failures>,
    /// By class, in alphabetical order.
    pub complaints: Vec<Complaints>,
}

/// The boots that ended in one kind of failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failures {
    pub failure: Failure,
    pub trials: Vec<FailedTrial>,
}

/// One failed boot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailedTrial {
    pub slot: u32,
    pub pair: u32,
    pub message: String,
    /// Its artefacts, relative to the study's folder.
    pub artifacts: Vec<String>,
    /// The second run of its slot on the exact clock; `None` where there was none.
    pub repeat: Option<Repeat>,
}

/// The second run of a failed slot. The exact clock repeats a guest exactly, so a failure that the guest caused repeats too.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeat {
    /// Whether it failed in the same way, with the same message and the same complaints of the kernel.
    pub identical: bool,
    /// How it ended.
    pub outcome: String,
    /// Its artefacts, relative to the study's folder.
    pub artifacts: Vec<String>,
}

impl FailedTrial {
    /// Whether it failed once, but not when it was run again: nothing shows that the guest caused it.
    pub fn is_unconfirmed(&self) -> bool {
        self.repeat.as_ref().is_some_and(|repeat| !repeat.identical)
    }
}

/// The boots whose kernel log has lines of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Complaints {
    /// As in [`bigiron_model::record::Complaint::class`].
    pub class: String,
    pub boots: u32,
    /// The first distinct lines, at most [`Complaints::KEPT`].
    pub lines: Vec<String>,
}

impl Complaints {
    /// Distinct lines kept per class: enough to recognise the defect; the artefacts hold the rest.
    pub const KEPT: usize = 3;

    /// Whether a class that is new in an arm decides against it. Every class except `warning` does, even an unknown one.
    pub fn decides(&self) -> bool {
        self.class != UNDECIDING
    }
}

impl Survival {
    /// Boots that failed.
    pub fn failed(&self) -> u32 {
        self.boots - self.completed
    }

    /// Failed boots that did not fail again in the same way when they were run again.
    pub fn unconfirmed(&self) -> u32 {
        self.failures.iter().flat_map(|f| &f.trials).filter(|trial| trial.is_unconfirmed()).count() as u32
    }

    /// Failed boots that count as the guest's: all but the unconfirmed ones.
    pub fn confirmed(&self) -> u32 {
        self.failed() - self.unconfirmed()
    }

    /// The classes of complaint that this arm has and `baseline` does not.
    pub fn new_complaints<'a>(&'a self, baseline: &Survival) -> impl Iterator<Item = &'a Complaints> {
        let known: BTreeSet<String> = baseline.complaints.iter().map(|c| c.class.clone()).collect();
        self.complaints.iter().filter(move |c| !known.contains(&c.class))
    }
}

/// Counts how the boots of every arm ended.
pub fn survival(plan: &Plan, standings: &Standings<'_>) -> Vec<Survival> {
    (0..plan.arms.len()).map(|arm| of_arm(plan, standings, arm)).collect()
}

fn of_arm(plan: &Plan, standings: &Standings<'_>, arm: usize) -> Survival {
    let mut survival = Survival {
        arm: plan.arms[arm].name.clone(),
        planned: 0,
        boots: 0,
        completed: 0,
        void: 0,
        void_causes: Vec::new(),
        missing: 0,
        failures: Vec::new(),
        complaints: Vec::new(),
    };
    for (_, standing) in plan.slots.iter().zip(&standings.slots).filter(|(slot, _)| slot.arm == arm) {
        survival.planned += 1;
        match standing {
            SlotStanding::Missing => survival.missing += 1,
            SlotStanding::Completed(record) => {
                survival.completed += 1;
                survival.boots += 1;
                complain(&mut survival.complaints, record);
            }
            SlotStanding::Failed(record) => {
                survival.boots += 1;
                fail(&mut survival.failures, record, standings.repeats.get(&record.slot).copied());
                complain(&mut survival.complaints, record);
            }
        }
    }
    for record in standings.void.iter().filter(|r| r.arm == survival.arm) {
        survival.void += 1;
        if let Outcome::Void { cause } = &record.outcome
            && !survival.void_causes.contains(cause)
        {
            survival.void_causes.push(cause.clone());
        }
    }
    survival.failures.sort_by_key(|f| std::cmp::Reverse(f.trials.len()));
    survival.complaints.sort_by(|x, y| x.class.cmp(&y.class));
    survival
}

fn fail(failures: &mut Vec<Failures>, record: &Record, repeat: Option<&Record>) {
    let Outcome::Failed { failure, message } = &record.outcome else { return };
    let trial = FailedTrial {
        slot: record.slot,
        pair: record.pair,
        message: message.clone(),
        artifacts: record.artifacts.clone(),
        repeat: repeat.map(|again| Repeat {
            identical: again.outcome == record.outcome && again.complaints == record.complaints,
            outcome: match &again.outcome {
                Outcome::Completed => "completed".to_owned(),
                Outcome::Failed { failure, message } => format!("{}: {message}", failure.verb()),
                Outcome::Void { cause } => cause.clone(),
            },
            artifacts: again.artifacts.clone(),
        }),
    };
    match failures.iter_mut().find(|f| f.failure == *failure) {
        Some(known) => known.trials.push(trial),
        None => failures.push(Failures { failure: *failure, trials: vec![trial] }),
    }
}

fn complain(complaints: &mut Vec<Complaints>, record: &Record) {
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for complaint in &record.complaints {
        lines.entry(&complaint.class).or_default().push(&complaint.line);
    }
    for (class, lines) in lines {
        let index = complaints.iter().position(|c| c.class == class).unwrap_or_else(|| {
            complaints.push(Complaints { class: class.to_owned(), boots: 0, lines: Vec::new() });
            complaints.len() - 1
        });
        let entry = &mut complaints[index];
        entry.boots += 1;
        for line in lines {
            if entry.lines.len() < Complaints::KEPT && !entry.lines.iter().any(|l| l == line) {
                entry.lines.push(line.to_owned());
            }
        }
    }
}
