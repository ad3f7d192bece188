//! The judge: plan and records in, comparisons and verdicts out.
//!
//! Invariant: [`judge`] is a pure function and does not depend on the order of the records, so a report can be made again from a
//! study's folder, on another machine, years later. Numbers here are on the log scale; `report` turns them into what people read.

pub mod aa;
pub mod calls;
pub mod causes;
pub mod counters;
#[cfg(test)]
pub(crate) mod fixture;
mod inference;
pub mod line;
pub mod locks;
pub mod stacks;
pub mod standing;
pub mod suite;
pub mod survival;
#[cfg(test)]
mod tests;

use bigiron_stats::Verdict;
use bigiron_stats::suite::too_many_void;

use crate::clock::Clock;
use crate::study::plan::Plan;
use line::Line;
use standing::{SetAside, Standing};
use suite::Suite;
use survival::Survival;

use crate::store::record::Record;

/// Family-wise error rate of the primaries (Holm) and false discovery rate of the exploratory metrics (Benjamini–Hochberg).
pub const ALPHA: f64 = 0.05;

/// How far the study is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every slot has a result.
    Finished,
    /// Some slots have none: nothing is estimated, so that nobody stops a study because of what it says so far.
    Unfinished,
    /// On the wall clock, more than a quarter of the pairs went void: the study is invalid, however often it is resumed. Under
    /// another clock a void trial leaves no trace in the result of the next attempt.
    Spoilt,
}

/// What the judge makes of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub state: State,
    /// Slots in the plan, and those with a result.
    pub planned: u32,
    pub done: u32,
    /// How often a pair went void through the host's fault.
    pub void_pairs: u32,
    /// One per arm, in the plan's order.
    pub survival: Vec<Survival>,
    /// One per arm after the first.
    pub comparisons: Vec<Comparison>,
    /// Over all arms; `None` while unfinished.
    pub verdict: Option<Verdict>,
    /// Records that stand for nothing, and why.
    pub set_aside: Vec<SetAside>,
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
    /// `None` while unfinished.
    pub suite: Option<Suite>,
}

impl Comparison {
    /// The lines that carry the workloads' verdicts.
    pub fn primaries(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|l| l.metric.primary)
    }
}

/// Judges a study. Total: it answers for any plan and any records, and says what it could not use.
pub fn judge(plan: &Plan, records: &[Record]) -> Judgement {
    let standings = standing::standings(plan, records);
    let done = standings.slots.iter().filter(|s| !matches!(s, Standing::Missing)).count();
    let state = if plan.clock == Clock::Wall && too_many_void(standings.void_pairs, plan.design.pairs) {
        State::Spoilt
    } else if done == plan.slots.len() {
        State::Finished
    } else {
        State::Unfinished
    };
    let survival = survival::survival(plan, &standings);

    let mut comparisons: Vec<Comparison> = (1..plan.arms.len())
        .map(|arm| {
            let pairs = line::pairs(plan, &standings.slots, arm);
            let lines = match (state, plan.clock) {
                // Without a clock there is survival and verification, and no number to compare.
                (State::Unfinished | State::Spoilt, _) | (_, Clock::None) => Vec::new(),
                (State::Finished, Clock::Wall | Clock::Exact) => line::lines(plan, &pairs),
            };
            Comparison { arm, pairs: pairs.len() as u32, lines, suite: None }
        })
        .collect();
    line::adjust(&mut comparisons);

    let mut verdict = None;
    if state != State::Unfinished {
        let spoilt = state == State::Spoilt;
        for comparison in &mut comparisons {
            comparison.suite =
                Some(suite::suite(plan.clock, spoilt, comparison, &survival[0], &survival[comparison.arm]));
        }
        verdict = Some(suite::combine(comparisons.iter().filter_map(|c| c.suite.as_ref()).map(|s| s.verdict)));
    }
    Judgement {
        state,
        planned: plan.slots.len() as u32,
        done: done as u32,
        void_pairs: standings.void_pairs,
        survival,
        comparisons,
        verdict,
        set_aside: standings.set_aside,
    }
}
