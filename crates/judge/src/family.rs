//! The metrics of which a primary is the mean, as one family: how many changed beyond their margins, whatever their mean did.
//!
//! Invariant: a family is `worse` exactly if at least one of its metrics counts as worse, and counts are those of one procedure
//! (Benjamini–Hochberg at 5 % over the p of "within the margin"). If none is worse beyond its margin, the family is `worse` in at most 5 % of studies,
//! for independent or positively dependent metrics (Simes 1986).

use bigiron_stats::{Verdict, multiplicity};
use serde::{Serialize, Serializer};

use super::line::Line;
use super::{ALPHA, Comparison};
use bigiron_model::metric::Better;
use bigiron_model::plan::Plan;

/// The metrics behind one mean, one arm against the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Family {
    pub workload: String,
    /// Number of metrics with an estimate.
    pub metrics: usize,
    /// Metrics beyond their margin.
    pub better: usize,
    pub worse: usize,
    /// `worse` if any is worse; else, if every metric is shown not to be worse than its margin (90 % interval), `better` if any is better and `same` if
    /// none is; else `inconclusive`. The suite's verdict does not depend on it.
    #[serde(serialize_with = "by_name")]
    pub verdict: Verdict,
}

fn by_name<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(verdict.name())
}

/// The families of a comparison, in the order of the plan's workloads: of those whose primary is the mean of their other metrics.
pub fn families(plan: &Plan, comparison: &Comparison) -> Vec<Family> {
    let means = comparison.primaries().filter(|line| line.metric.is_mean());
    means.filter_map(|mean| family(plan, comparison, &mean.workload)).collect()
}

fn family(plan: &Plan, comparison: &Comparison, workload: &str) -> Option<Family> {
    let is_of = |line: &&Line| line.workload == workload && !line.metric.primary && line.estimate.is_some();
    let lines: Vec<&Line> = comparison.lines.iter().filter(is_of).collect();
    if lines.is_empty() {
        return None;
    }
    let p: Vec<f64> = lines.iter().map(|line| line.claim.within).collect();
    let beyond = multiplicity::benjamini_hochberg(&p);
    let beyond = lines.iter().zip(&beyond).filter(|(_, p)| **p <= ALPHA).map(|(line, _)| improvement(line) > 0.0);
    let (better, worse): (Vec<bool>, Vec<bool>) = beyond.partition(|is_better| *is_better);
    let (better, worse) = (better.len(), worse.len());
    let verdict = match () {
        () if plan.failed_check.is_some() => Verdict::Invalid,
        () if worse > 0 => Verdict::Worse,
        () if !lines.iter().all(|line| is_not_worse(line)) => Verdict::Inconclusive,
        () if better > 0 => Verdict::Better,
        () => Verdict::Same,
    };
    Some(Family { workload: workload.to_owned(), metrics: lines.len(), better, worse, verdict })
}

/// The estimate, positive if it is an improvement.
fn improvement(line: &Line) -> f64 {
    let mean = line.estimate.map_or(0.0, |estimate| estimate.mean);
    if line.metric.better == Better::Higher { mean } else { -mean }
}

/// Whether the 90 % interval shows that the line is not worse than its margin.
fn is_not_worse(line: &Line) -> bool {
    let ci90 = line.estimate.and_then(|estimate| estimate.ci90);
    line.verdict != Verdict::Invalid
        && ci90.is_some_and(|(low, high)| match line.metric.better {
            Better::Higher => low > -line.log_margin,
            Better::Lower => high < line.log_margin,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, judge};
    use bigiron_model::metric::MetricDef;

    /// The family of `micro` with 20 operations, in which B's cost of each is that multiple of A's.
    fn of(pairs: u32, spread: f64, cost: impl Fn(usize) -> f64) -> Family {
        let mut micro = fixture::micro();
        let operation = |i: usize| MetricDef { name: format!("operation-{i}"), ..micro.metrics[1].clone() };
        let operations: Vec<MetricDef> = (0..20).map(operation).collect();
        micro.metrics.splice(1.., operations);
        let plan = fixture::plan(&["debian:6.1", "debian:6.12"], pairs, vec![micro]);
        let number = |metric: &str| metric.strip_prefix("operation-").and_then(|n| n.parse().ok());
        let records = fixture::records(&plan, spread, |_, _, metric| number(metric).map_or(1.0, &cost));
        judge(&plan, &records).comparisons[0].families.pop().unwrap()
    }

    #[test]
    fn a_mean_that_is_the_same_hides_no_operation() {
        let family = of(10, 0.002, |i| [1.1, 1.0, 0.9, 1.0][i % 4]);
        assert_eq!((family.metrics, family.worse, family.better, family.verdict), (20, 5, 5, Verdict::Worse));
        let family = of(10, 0.002, |i| [1.0, 0.9][i % 2]);
        assert_eq!((family.worse, family.better, family.verdict), (0, 10, Verdict::Better));
        assert_eq!(of(10, 0.002, |_| 1.0).verdict, Verdict::Same);
        assert_eq!(of(10, 0.05, |_| 1.0).verdict, Verdict::Inconclusive);
    }

    #[test]
    fn one_operation_needs_the_pairs_of_its_family() {
        // 2/2^8 > .05/20, but 2/2^10 is not. At 8 pairs it is unsettled, because that operation is not shown to be as fast.
        let one = |i| if i == 3 { 1.1 } else { 1.0 };
        assert_eq!((of(8, 0.002, one).verdict, of(8, 0.002, one).worse), (Verdict::Inconclusive, 0));
        assert_eq!((of(10, 0.002, one).verdict, of(10, 0.002, one).worse), (Verdict::Worse, 1));
    }
}
