//! The suite verdict: one word for one arm against the first.
//!
//! Invariant: the rule is total, and a failed boot never makes a verdict better: a failure of the arm makes it `worse`, a failure of the baseline
//! alone makes it `inconclusive`. Where no boot of either completed, neither is worse: `inconclusive`.

use bigiron_stats::Verdict;
use serde::Serialize;

use super::Comparison;
use super::line::Line;
use super::survival::Survival;
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;

/// The suite verdict and what decided it.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    pub verdict: Verdict,
    pub reason: Reason,
}

/// What decided a suite verdict, in the order in which the rules apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reason {
    /// No boot of either arm completed: `inconclusive`.
    NeitherSurvived,
    /// The arm failed boots: `worse`.
    Failed,
    /// The arm's kernel complained in these classes and the baseline's did not: `worse`.
    Complained { classes: Vec<String> },
    /// On the wall clock, more than a quarter of the pairs became void: `invalid`.
    TooManyVoid,
    /// The machine failed its last A/A check before the study: `invalid`.
    FailedCheck,
    /// Only the baseline failed boots: `inconclusive`.
    BaselineFailed,
    /// No clock, so only survival was compared, and both arms survived: `inconclusive`.
    NoClock,
    /// The primaries decided: `worse` if any is worse or slightly worse; else `invalid` or `inconclusive` if any is; else the best verdict among them
    /// (no workload regressed). Names the workloads that decided.
    Primaries { workloads: Vec<String> },
}

/// One arm against the first.
///
/// `spoilt`: whether too many pairs became void.
pub fn suite(plan: &Plan, spoilt: bool, comparison: &Comparison, baseline: &Survival, arm: &Survival) -> Suite {
    let died = |of: &Survival| of.boots > 0 && of.completed == 0;
    if died(arm) && died(baseline) {
        return Suite { verdict: Verdict::Inconclusive, reason: Reason::NeitherSurvived };
    }
    if arm.failed() > 0 {
        return Suite { verdict: Verdict::Worse, reason: Reason::Failed };
    }
    let new: Vec<String> = arm.new_complaints(baseline).filter(|c| c.decides()).map(|c| c.class.clone()).collect();
    if !new.is_empty() {
        return Suite { verdict: Verdict::Worse, reason: Reason::Complained { classes: new } };
    }
    if spoilt {
        return Suite { verdict: Verdict::Invalid, reason: Reason::TooManyVoid };
    }
    if plan.failed_check.is_some() {
        return Suite { verdict: Verdict::Invalid, reason: Reason::FailedCheck };
    }
    if baseline.failed() > 0 {
        return Suite { verdict: Verdict::Inconclusive, reason: Reason::BaselineFailed };
    }
    if plan.clock == Clock::None {
        return Suite { verdict: Verdict::Inconclusive, reason: Reason::NoClock };
    }
    let verdict = combine(comparison.primaries().map(weight));
    let carried = |line: &&Line| match verdict {
        Verdict::Worse => matches!(weight(line), Verdict::Worse | Verdict::SlightlyWorse),
        other => weight(line) == other,
    };
    let workloads = comparison.primaries().filter(carried).map(|l| l.workload.clone()).collect();
    Suite { verdict, reason: Reason::Primaries { workloads } }
}

/// The verdict as which a primary's line counts. "No workload regressed" needs no correction for the number of primaries (every line must pass,
/// Berger 1982), so an improvement that the correction withdrew still counts as no regression.
fn weight(line: &Line) -> Verdict {
    match (line.verdict, line.unadjusted) {
        (Verdict::Inconclusive, Some(Verdict::Better | Verdict::SlightlyBetter)) => Verdict::Same,
        (verdict, _) => verdict,
    }
}

/// One verdict for several that must all hold: `worse` if any is worse or slightly worse; else `invalid`, else `inconclusive`, if any is; else (every
/// one is `same` or better) the best of them. No verdicts at all give `inconclusive`.
pub fn combine(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    let verdicts: Vec<Verdict> = verdicts.into_iter().collect();
    let any = |v: Verdict| verdicts.contains(&v);
    if any(Verdict::Worse) || any(Verdict::SlightlyWorse) {
        return Verdict::Worse;
    }
    [Verdict::Invalid, Verdict::Inconclusive, Verdict::Better, Verdict::SlightlyBetter, Verdict::Same]
        .into_iter()
        .find(|v| any(*v))
        .unwrap_or(Verdict::Inconclusive)
}
