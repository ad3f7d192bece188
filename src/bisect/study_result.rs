//! The result of one finished study of a bisection for the metric in question.
//!
//! Invariant: it has every arm of the study; an arm that failed is included with its failure.

use bigiron_stats::Verdict;

use bigiron_judge::Judgement;
use bigiron_judge::line::{Estimate, Line};
use bigiron_model::identity::Identity;
use bigiron_model::plan::Plan;
use bigiron_report::sentence::failures;

/// A study: the baseline, and the arms compared with it.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyResult {
    /// Below the bisection's folder.
    pub folder: String,
    /// The baseline's kernel.
    pub kernel: Identity,
    /// Boots of the baseline.
    pub boots: u32,
    /// How boots of the baseline failed, if any did.
    pub failed: Option<String>,
    pub arms: Vec<ArmResult>,
}

/// One arm against the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmResult {
    pub name: String,
    pub kernel: Identity,
    pub boots: u32,
    /// How boots of it failed, if any did.
    pub failed: Option<String>,
    /// The log ratio of each pair that gave the metric on both sides.
    pub ratios: Vec<f64>,
    pub estimate: Option<Estimate>,
    /// The judge's verdict on this metric alone: the metric was chosen before any boot, so it needs no correction for the others.
    pub verdict: Verdict,
}

impl StudyResult {
    /// Extracts the result from a judged study.
    pub fn of(folder: &str, plan: &Plan, judgement: &Judgement, workload: &str, metric: &str) -> StudyResult {
        let survival = |arm: usize| (judgement.survival[arm].boots, failures(plan, &judgement.survival[arm]));
        let is = |line: &&Line| line.workload == workload && line.metric.name == metric;
        let arms = judgement.comparisons.iter().map(|comparison| {
            let line = comparison.lines.iter().find(is);
            let (boots, failed) = survival(comparison.arm);
            ArmResult {
                name: plan.arms[comparison.arm].name.clone(),
                kernel: plan.arms[comparison.arm].kernel.clone(),
                boots,
                failed,
                ratios: line.map_or_else(Vec::new, |l| l.deltas.iter().map(|d| d.d).collect()),
                estimate: line.and_then(|l| l.estimate),
                verdict: line.map_or(Verdict::Invalid, |l| l.unadjusted.unwrap_or(l.verdict)),
            }
        });
        let (boots, failed) = survival(0);
        StudyResult {
            folder: folder.to_owned(),
            kernel: plan.arms[0].kernel.clone(),
            boots,
            failed,
            arms: arms.collect(),
        }
    }

    /// Boots of all arms.
    pub fn all_boots(&self) -> u32 {
        self.boots + self.arms.iter().map(|arm| arm.boots).sum::<u32>()
    }
}

/// Whether a verdict says that there is a difference.
pub fn differs(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Better | Verdict::SlightlyBetter | Verdict::SlightlyWorse | Verdict::Worse)
}
