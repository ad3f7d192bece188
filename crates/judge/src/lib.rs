//! The judge: plan and records in, comparisons and verdicts out.
//!
//! Invariant: [`judge`] is a pure function and does not depend on the order of the records, so a report can be made again from a study's folder, on
//! another machine, years later. Numbers here are on the log scale; `report` converts them for readers.

pub mod aa;
pub mod calls;
pub mod causes;
pub mod counters;
pub mod family;
pub mod fixture;
pub mod history;
mod inference;
pub mod line;
pub mod locks;
pub mod machines;
pub mod modelled;
pub mod stacks;
pub mod standing;
pub mod suite;
pub mod survival;
#[cfg(test)]
mod tests;
mod units;
pub mod window;
pub mod workers;

use std::sync::atomic::AtomicBool;

use bigiron_stats::suite::too_many_void;
use bigiron_stats::{Designs, Verdict};
use serde::Serialize;

use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;
use family::Family;
use line::{Line, Pair};
use standing::{SetAside, SlotStanding};
use suite::{Reason, Suite};
use survival::Survival;
use workers::Stopped;

use bigiron_model::record::Record;
use bigiron_model::rule::Rule;

/// Family-wise error rate of the primaries (nested Holm) and false discovery rate of the exploratory metrics (Benjamini–Hochberg).
pub const ALPHA: f64 = 0.05;

/// How complete the study is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Every slot has a result.
    Finished,
    /// Some slots have none. Nothing is estimated, so that nobody stops a study because of an interim result.
    Unfinished,
    /// On the wall clock, more than a quarter of the pairs became void: the study is invalid, however often it is resumed. Under another clock a void
    /// trial does not affect the result of the next attempt.
    Spoilt,
}

/// The judge's result for a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub state: State,
    /// Number of slots in the plan, and of slots with a result.
    pub planned: u32,
    pub done: u32,
    /// How often a pair became void because the host spoilt a trial.
    pub void_pairs: u32,
    /// One for each arm, in the plan's order.
    pub survival: Vec<Survival>,
    /// One for each arm after the first.
    pub comparisons: Vec<Comparison>,
    /// Over all arms; `None` while unfinished.
    pub verdict: Option<Verdict>,
    /// Records that do not count, and why.
    pub set_aside: Vec<SetAside>,
}

impl Judgement {
    /// The verdict on which a gate may rely; `None` while unfinished, where no boot of either arm completed, so that nothing was compared, and where
    /// an arm fails boots like the baseline or more rarely: it is not worse, but nothing that fails boots may pass.
    pub fn decision(&self) -> Option<Verdict> {
        let nothing = |c: &Comparison| match c.suite.as_ref().map(|suite| &suite.reason) {
            Some(Reason::NeitherSurvived | Reason::BothFailed) => true,
            Some(Reason::SurvivesBetter) => self.survival[c.arm].confirmed() > 0,
            _ => false,
        };
        match self.verdict {
            Some(Verdict::Worse) => Some(Verdict::Worse),
            _ if self.comparisons.iter().any(nothing) => None,
            verdict => verdict,
        }
    }
}

/// One arm against the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Index into [`Plan::arms`]; never 0.
    pub arm: usize,
    /// Pairs planned.
    pub pairs: u32,
    /// In the plan's order: workloads, then their metrics. Empty unless the study is finished and has a clock.
    pub lines: Vec<Line>,
    /// The metrics behind each primary that is a mean; empty under the first rule.
    pub families: Vec<Family>,
    /// `None` while unfinished.
    pub suite: Option<Suite>,
}

impl Comparison {
    /// The lines that carry the workloads' verdicts.
    pub fn primaries(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|l| l.metric.primary)
    }
}

/// Judges a study. Total: it accepts any plan and any records, and reports what it could not use.
pub fn judge(plan: &Plan, records: &[Record]) -> Judgement {
    judge_until(plan, records, &AtomicBool::new(false)).expect("`stop` is never set")
}

/// Like [`judge`], but ends early if `stop` is set: many metrics of many arms in many pairs take seconds.
pub fn judge_until(plan: &Plan, records: &[Record], stop: &AtomicBool) -> Result<Judgement, Stopped> {
    let standings = standing::standings(plan, records);
    let done = standings.slots.iter().filter(|s| !matches!(s, SlotStanding::Missing)).count();
    let state = if plan.clock == Clock::Wall && too_many_void(standings.void_pairs, plan.design.pairs) {
        State::Spoilt
    } else if done == plan.slots.len() {
        State::Finished
    } else {
        State::Unfinished
    };
    let survival = survival::survival(plan, &standings);

    let pairs: Vec<Vec<Pair<'_>>> = (1..plan.arms.len()).map(|arm| line::pairs(plan, &standings.slots, arm)).collect();
    // Without a clock there are survival and verification, and no numbers to compare.
    let has_lines = state == State::Finished && plan.clock != Clock::None;
    let metrics = || plan.workloads.iter().flat_map(|w| w.metrics.iter().map(move |m| (w.name.as_str(), m)));
    let planned: Vec<_> = pairs.iter().filter(|_| has_lines).flat_map(|p| metrics().map(move |of| (p, of))).collect();
    let designs = Designs::new(plan.flips(), plan.design.seed);
    let mut lines =
        workers::each(&planned, stop, |(pairs, (workload, def))| line::line(plan, &designs, workload, def, pairs))?
            .into_iter();
    let mut comparisons: Vec<Comparison> = (1..plan.arms.len())
        .zip(&pairs)
        .map(|(arm, pairs)| Comparison {
            arm,
            pairs: pairs.len() as u32,
            lines: lines.by_ref().take(metrics().count()).collect(),
            families: Vec::new(),
            suite: None,
        })
        .collect();
    line::adjust(plan, &mut comparisons);
    machines::adjust(&mut comparisons);
    if plan.rule >= Rule::Second {
        for comparison in &mut comparisons {
            comparison.families = family::families(plan, comparison);
        }
    }

    let mut verdict = None;
    if state != State::Unfinished {
        let spoilt = state == State::Spoilt;
        for comparison in &mut comparisons {
            comparison.suite = Some(suite::suite(plan, spoilt, comparison, &survival[0], &survival[comparison.arm]));
        }
        verdict = Some(suite::combine(comparisons.iter().filter_map(|c| c.suite.as_ref()).map(|s| s.verdict)));
    }
    Ok(Judgement {
        state,
        planned: plan.slots.len() as u32,
        done: done as u32,
        void_pairs: standings.void_pairs,
        survival,
        comparisons,
        verdict,
        set_aside: standings.set_aside,
    })
}
