//! The suite verdict: one word for one arm against the first.
//!
//! Invariant: the rule is total, and a failed boot never makes a verdict better. A failure of the arm alone makes it `worse`, as do more failures than
//! the baseline's that chance does not explain; otherwise, while either arm fails, no speed makes the verdict better than `inconclusive`. Where no boot
//! of either completed, neither is worse: `inconclusive`.

use bigiron_stats::{Verdict, location};
use serde::Serialize;

use super::line::Line;
use super::survival::Survival;
use super::{ALPHA, Comparison};
use bigiron_model::clock::Clock;
use bigiron_model::plan::Plan;
use bigiron_model::rule::Rule;

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
    /// The arm failed boots, the baseline none or fewer than chance explains: `worse`.
    Failed,
    /// The arm's kernel complained in these classes and the baseline's did not: `worse`.
    Complained { classes: Vec<String> },
    /// On the wall clock, more than a quarter of the pairs became void: `invalid`.
    TooManyVoid,
    /// The machine failed its last A/A check before the study: `invalid`.
    FailedCheck,
    /// Only the baseline failed boots: `inconclusive`.
    BaselineFailed,
    /// Both arms failed boots, neither more than chance explains, and no primary regressed: `inconclusive`.
    BothFailed,
    /// The baseline failed more boots than chance explains, and no primary regressed: `inconclusive`, because the speeds have no valid baseline.
    SurvivesBetter,
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
    if let Some(suite) = without_speed(plan, spoilt, baseline, arm) {
        return suite;
    }
    let verdict = combine(comparison.primaries().map(weight));
    if let Some(reason) = unreliable(plan, verdict, baseline, arm) {
        return Suite { verdict: Verdict::Inconclusive, reason };
    }
    if plan.clock == Clock::None {
        return Suite { verdict: Verdict::Inconclusive, reason: Reason::NoClock };
    }
    let carried = |line: &&Line| match verdict {
        Verdict::Worse => matches!(weight(line), Verdict::Worse | Verdict::SlightlyWorse),
        other => weight(line) == other,
    };
    let workloads = comparison.primaries().filter(carried).map(|l| l.workload.clone()).collect();
    Suite { verdict, reason: Reason::Primaries { workloads } }
}

/// The verdict that survival and the host decide whatever was measured, if they do.
pub fn without_speed(plan: &Plan, spoilt: bool, baseline: &Survival, arm: &Survival) -> Option<Suite> {
    let died = |of: &Survival| of.boots > 0 && of.completed == 0;
    let of = |verdict, reason| Some(Suite { verdict, reason });
    if died(arm) && died(baseline) {
        return of(Verdict::Inconclusive, Reason::NeitherSurvived);
    }
    let fails = match plan.rule {
        Rule::First => arm.failed() > 0,
        Rule::Second => (arm.confirmed() > 0 && baseline.confirmed() == 0) || fails_more(arm, baseline),
    };
    if fails {
        return of(Verdict::Worse, Reason::Failed);
    }
    let new: Vec<String> = arm.new_complaints(baseline).filter(|c| c.decides()).map(|c| c.class.clone()).collect();
    if !new.is_empty() {
        return of(Verdict::Worse, Reason::Complained { classes: new });
    }
    if spoilt {
        return of(Verdict::Invalid, Reason::TooManyVoid);
    }
    plan.failed_check.as_ref().and_then(|_| of(Verdict::Invalid, Reason::FailedCheck))
}

/// Why the speed of the boots that completed, of this `verdict`, is not judged, if failed boots are the reason.
pub fn unreliable(plan: &Plan, verdict: Verdict, baseline: &Survival, arm: &Survival) -> Option<Reason> {
    match plan.rule {
        Rule::First => (baseline.failed() > 0).then_some(Reason::BaselineFailed),
        // A regression of the boots that completed stands.
        Rule::Second if matches!(verdict, Verdict::Worse | Verdict::SlightlyWorse) => None,
        Rule::Second if fails_more(baseline, arm) => Some(Reason::SurvivesBetter),
        Rule::Second if arm.confirmed() > 0 => Some(Reason::BothFailed),
        Rule::Second => (baseline.confirmed() > 0).then_some(Reason::BaselineFailed),
    }
}

/// Whether `one` fails more boots than `other` by more than chance explains. All failures count here, whether they repeated or not.
pub fn fails_more(one: &Survival, other: &Survival) -> bool {
    location::more_often_p((one.failed(), one.boots), (other.failed(), other.boots)) <= ALPHA
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
