//! Which window of evidence explains a line: its own, or a substitute for a primary that has none.
//!
//! Invariant: a primary that is better or worse is explained if any window of its workload was profiled in both arms.

use super::Comparison;
use super::causes::differs;
use super::line::Line;
use bigiron_model::evidence::{Evidence, Executed};
use bigiron_model::metric::{Kind, MetricDef, Unit};
use bigiron_model::plan::Plan;
use bigiron_model::waits::TrialWaits;

/// The metric whose window is the whole run, in workloads that run other people's programs.
pub const WHOLE_RUN: &str = "wall";

/// A line and the metric whose window explains it.
#[derive(Clone, Copy, Debug)]
pub struct Explained<'a> {
    pub line: &'a Line,
    pub window: &'a str,
}

/// The windows in the evidence of one trial.
pub trait Windows {
    fn has(&self, workload: &str, metric: &str) -> bool;
}

impl Windows for Evidence {
    fn has(&self, workload: &str, metric: &str) -> bool {
        self.windows.iter().any(|w| w.workload == workload && w.metric == metric)
    }
}

impl Windows for TrialWaits {
    fn has(&self, workload: &str, metric: &str) -> bool {
        self.windows.iter().any(|w| w.workload == workload && w.metric == metric)
    }
}

/// A window in one trial, and the evidence that it is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowEvidence<'a> {
    pub window: &'a Executed,
    pub evidence: &'a Evidence,
}

/// The window of a workload's metric in both arms of each pair, baseline first, where both arms have it and executed something in it.
pub(crate) fn pairs<'a>(
    plan: &Plan,
    arm: usize,
    (workload, metric): (&str, &str),
    evidence: &'a [Evidence],
) -> Vec<[WindowEvidence<'a>; 2]> {
    let of = |pair: u32, arm: usize| {
        let slot = plan.slots.iter().find(|s| s.pair == pair && s.arm == arm)?.slot;
        let evidence = evidence.iter().find(|e| e.slot == slot)?;
        let is_it = |w: &&Executed| w.workload == workload && w.metric == metric;
        let window = evidence.windows.iter().find(is_it).filter(|w| w.operations > 0 && w.ns > 0)?;
        Some(WindowEvidence { window, evidence })
    };
    (0..plan.design.pairs).filter_map(|pair| Some([of(pair, 0)?, of(pair, arm)?])).collect()
}

/// Whether a metric is a time or a rate of the whole run, so that the run's window explains it.
pub fn is_of_whole_run(metric: &MetricDef) -> bool {
    metric.kind == Kind::Throughput || (metric.kind == Kind::Cost && metric.unit == Unit::Ns)
}

/// The lines of a comparison that differ and have a window in `evidence`, in order. For a primary without a window, the whole run is used (and not
/// explained twice); without that window too, and if no other line of the workload differs, the line that changed most.
pub fn explained<'a>(comparison: &'a Comparison, evidence: &[impl Windows]) -> Vec<Explained<'a>> {
    let has = |line: &Line, metric: &str| evidence.iter().any(|e| e.has(&line.workload, metric));
    let mut all: Vec<Explained<'a>> = Vec::new();
    for line in comparison.lines.iter().filter(|line| differs(line)) {
        if has(line, &line.metric.name) {
            all.push(Explained { line, window: &line.metric.name });
        } else if line.metric.primary {
            all.extend(stand_in(comparison, line, &has).map(|window| Explained { line, window }));
        }
    }
    let taken: Vec<(&str, &str)> =
        all.iter().filter(|e| e.window != e.line.metric.name).map(|e| (e.line.workload.as_str(), e.window)).collect();
    all.retain(|e| e.window != e.line.metric.name || !taken.contains(&(e.line.workload.as_str(), e.window)));
    all
}

fn stand_in<'a>(comparison: &'a Comparison, primary: &Line, has: &dyn Fn(&Line, &str) -> bool) -> Option<&'a str> {
    if has(primary, WHOLE_RUN) {
        return Some(WHOLE_RUN);
    }
    let own = |line: &&Line| line.workload == primary.workload && has(line, &line.metric.name);
    let mut others = comparison.lines.iter().filter(own);
    if others.clone().any(differs) {
        return None;
    }
    let change = |line: &&Line| line.estimate.map_or(0.0, |e| e.mean.abs());
    let first = others.next()?;
    let most = others.fold(first, |most, line| if change(&line) > change(&most) { line } else { most });
    Some(&most.metric.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, judge};

    /// Windows of the named metrics.
    struct Of(&'static [&'static str]);

    impl Windows for Of {
        fn has(&self, workload: &str, metric: &str) -> bool {
            workload == "micro" && self.0.contains(&metric)
        }
    }

    /// The windows that explain each line of a study in which B's metrics are `effect` times A's and `metrics` have windows.
    fn explained_by(metrics: &'static [&'static str], effect: fn(&str) -> f64) -> Vec<(String, String)> {
        let mut plan = fixture::plan(&["debian:6.1", "debian:6.12"], 10, vec![fixture::micro()]);
        let wall = MetricDef { name: WHOLE_RUN.to_owned(), ..plan.workloads[0].metrics[1].clone() };
        plan.workloads[0].metrics.push(wall);
        let records = fixture::records(&plan, 1e-4, |_, _, metric| effect(metric));
        let judgement = judge(&plan, &records);
        let all = explained(&judgement.comparisons[0], &[Of(metrics)]);
        all.into_iter().map(|e| (e.line.metric.name.clone(), e.window.to_owned())).collect()
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(x, y)| ((*x).to_owned(), (*y).to_owned())).collect()
    }

    #[test]
    fn the_whole_run_stands_in_for_a_primary_without_a_window() {
        let primary = |metric: &str| if metric == "geomean" { 1.1 } else { 1.0 };
        assert_eq!(explained_by(&["wall"], primary), pairs(&[("geomean", "wall")]));
        // The window explains one line only, even if its own line differs too.
        assert_eq!(explained_by(&["wall"], |_| 1.1), pairs(&[("geomean", "wall")]));
        assert_eq!(explained_by(&["geomean", "wall"], primary), pairs(&[("geomean", "geomean")]));
        assert_eq!(explained_by(&["wall"], |_| 1.0), []);
    }

    #[test]
    fn without_a_whole_run_the_line_that_changed_most_stands_in_unless_one_differs() {
        let windows: &[&str] = &["null-call", "fork-exit"];
        // A real difference within the margin: only the primary counts as different.
        let small = |metric: &str| {
            [("geomean", 1.1), ("fork-exit", 1.005)].iter().find(|(m, _)| *m == metric).map_or(1.0, |(_, e)| *e)
        };
        assert_eq!(explained_by(windows, small), pairs(&[("geomean", "fork-exit")]));
        let large = |metric: &str| if metric == "null-call" { 1.0 } else { 1.1 };
        assert_eq!(explained_by(windows, large), pairs(&[("fork-exit", "fork-exit")]));
        assert_eq!(explained_by(&[], large), []);
    }
}
