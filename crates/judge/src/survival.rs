//! How each arm's boots ended, and which of these outcomes count against the arm.
//!
//! Invariant: every result of a guest is counted exactly once: as completed, under its failure or as superseded. No complaint of its kernel is left
//! out, but one that only an unconfirmed failure logged does not decide.

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
    /// Boots beside these, whose results were replaced because the host spoilt their pair. Their kernel logs count.
    pub superseded: u32,
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
    /// Of [`Survival::logs`].
    pub boots: u32,
    /// Those of `boots` in which only an unconfirmed failure logged it.
    pub unconfirmed: u32,
    /// The first distinct lines, at most [`Complaints::KEPT`].
    pub lines: Vec<String>,
}

impl Complaints {
    /// Distinct lines kept per class: enough to recognise the defect; the artefacts hold the rest.
    pub const KEPT: usize = 3;

    /// Whether a class that is new in an arm decides against it. Every class except `warning` does, even an unknown one, if it is confirmed.
    pub fn decides(&self) -> bool {
        self.class != UNDECIDING && !self.is_unconfirmed()
    }

    /// Whether only unconfirmed failures logged it: nothing shows that the guest caused it.
    pub fn is_unconfirmed(&self) -> bool {
        self.unconfirmed == self.boots
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

    /// Boots whose kernel log counts.
    pub fn logs(&self) -> u32 {
        self.boots + self.superseded
    }

    /// Whether any run of this arm logged a complaint of `class`, confirmed or not.
    pub fn has_logged(&self, class: &str) -> bool {
        self.complaints.iter().any(|c| c.class == class)
    }

    /// The classes of complaint that this arm has and `baseline` does not. A class that only unconfirmed failures of the baseline logged is new:
    /// otherwise one fault of the host there would excuse every boot of this arm.
    pub fn new_complaints<'a>(&'a self, baseline: &Survival) -> impl Iterator<Item = &'a Complaints> {
        let confirmed = baseline.complaints.iter().filter(|c| !c.is_unconfirmed());
        let known: BTreeSet<String> = confirmed.map(|c| c.class.clone()).collect();
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
        superseded: 0,
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
                complain(&mut survival.complaints, record, None);
            }
            SlotStanding::Failed(record) => {
                let repeat = standings.repeats.get(&record.slot).copied();
                survival.boots += 1;
                fail(&mut survival.failures, record, repeat);
                complain(&mut survival.complaints, record, repeat);
            }
        }
    }
    // What a kernel logs, like its failure, is true without a partner.
    for record in standings.superseded.iter().filter(|r| r.arm == survival.arm) {
        survival.superseded += 1;
        complain(&mut survival.complaints, record, None);
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
            identical: is_identical(record, again),
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

/// Whether the second run of a slot failed like the `first`: in the same way, with the same message and the same complaints.
fn is_identical(first: &Record, again: &Record) -> bool {
    again.outcome == first.outcome && again.complaints == first.complaints
}

/// Whether a slot whose failure is unconfirmed confirms a complaint of `class`. A second run that completed is a boot like any other, so its log
/// counts. If it failed in another way, only what both runs logged is confirmed.
fn is_confirmed(class: &str, first: &Record, again: &Record) -> bool {
    let has_logged = |run: &Record| run.complaints.iter().any(|c| c.class == class);
    has_logged(again) && (matches!(again.outcome, Outcome::Completed) || has_logged(first))
}

/// Counts the complaints of a boot, and those of its `repeat` if that ended in another way.
fn complain(complaints: &mut Vec<Complaints>, record: &Record, repeat: Option<&Record>) {
    let differing = repeat.filter(|again| !is_identical(record, again));
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for complaint in [Some(record), differing].into_iter().flatten().flat_map(|run| &run.complaints) {
        lines.entry(&complaint.class).or_default().push(&complaint.line);
    }
    for (class, lines) in lines {
        let index = complaints.iter().position(|c| c.class == class).unwrap_or_else(|| {
            complaints.push(Complaints { class: class.to_owned(), boots: 0, unconfirmed: 0, lines: Vec::new() });
            complaints.len() - 1
        });
        let entry = &mut complaints[index];
        entry.boots += 1;
        entry.unconfirmed += u32::from(differing.is_some_and(|again| !is_confirmed(class, record, again)));
        for line in lines {
            if entry.lines.len() < Complaints::KEPT && !entry.lines.iter().any(|l| l == line) {
                entry.lines.push(line.to_owned());
            }
        }
    }
}
