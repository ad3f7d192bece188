//! System calls by name per operation of a profiled line. Where every instruction is counted, a call is one execution of the first instruction of
//! its function.
//!
//! Invariant: a pure function of plan, judgement and evidence. A line has calls only if both arms of a pair have them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Judgement;
use super::window::{self, Explained};
use bigiron_model::evidence::{Evidence, Executed};
use bigiron_model::plan::Plan;

/// The system calls of one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calls {
    /// Index into the judgement's comparisons.
    pub comparison: usize,
    pub workload: String,
    pub metric: String,
    /// Most frequent first.
    pub calls: Vec<Call>,
}

/// How often an operation makes one system call: means over the profiled pairs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub name: String,
    #[serde(rename = "baseline")]
    pub a: f64,
    #[serde(rename = "arm")]
    pub b: f64,
}

/// The system calls of every line that differs and was profiled.
pub fn calls(plan: &Plan, judgement: &Judgement, evidence: &[Evidence]) -> Vec<Calls> {
    let mut all = Vec::new();
    for (index, comparison) in judgement.comparisons.iter().enumerate() {
        for line in window::explained(comparison, evidence) {
            all.extend(of_line(plan, (index, comparison.arm), line, evidence));
        }
    }
    all
}

fn of_line(plan: &Plan, (index, arm): (usize, usize), of: Explained<'_>, evidence: &[Evidence]) -> Option<Calls> {
    let mut pairs = window::pairs(plan, arm, (&of.line.workload, of.window), evidence);
    pairs.retain(|pair| pair.iter().all(|of| !of.window.calls.is_empty()));
    let each = |window: &Executed| -> BTreeMap<String, f64> {
        let one = |(name, n): &(String, u64)| (name.clone(), *n as f64 / window.operations as f64 / pairs.len() as f64);
        window.calls.iter().map(one).collect()
    };
    let sums: Vec<_> = pairs.iter().map(|[a, b]| (each(a.window), each(b.window))).collect();
    let names: BTreeSet<&String> = sums.iter().flat_map(|(a, b)| a.keys().chain(b.keys())).collect();
    let mut calls: Vec<Call> = names
        .into_iter()
        // An empty sum is -0.0, and 0.0 more of it is 0.0.
        .map(|name| Call {
            name: name.clone(),
            a: 0.0 + sums.iter().filter_map(|(a, _)| a.get(name)).sum::<f64>(),
            b: 0.0 + sums.iter().filter_map(|(_, b)| b.get(name)).sum::<f64>(),
        })
        .collect();
    calls.sort_by(|x, y| y.a.max(y.b).total_cmp(&x.a.max(x.b)).then_with(|| x.name.cmp(&y.name)));
    let (workload, metric) = (of.line.workload.clone(), of.line.metric.name.clone());
    (!calls.is_empty()).then_some(Calls { comparison: index, workload, metric, calls })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture, judge};

    #[test]
    fn calls_are_those_of_one_operation() {
        let plan = fixture::plan(&["debian:6.1", "debian:6.12"], 10, vec![fixture::micro()]);
        let records = fixture::records(&plan, 1e-4, |_, _, metric| if metric == "fork-exit" { 1.1 } else { 1.0 });
        let judgement = judge(&plan, &records);
        let of = |slot: u32, operations, calls: &[(&str, u64)]| {
            fixture::evidence(
                slot,
                vec![Executed {
                    workload: "micro".to_owned(),
                    metric: "fork-exit".to_owned(),
                    operations,
                    ns: 1000,
                    functions: Vec::new(),
                    calls: calls.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
                    modelled: Vec::new(),
                }],
            )
        };
        let evidence = [of(0, 10, &[("fork", 10), ("wait4", 20)]), of(1, 20, &[("clone", 20), ("wait4", 40)])];
        let found = calls(&plan, &judgement, &evidence).pop().unwrap();
        let call = |name: &str, a, b| Call { name: name.to_owned(), a, b };
        assert_eq!(found.calls, [call("wait4", 2.0, 2.0), call("clone", 0.0, 1.0), call("fork", 1.0, 0.0)]);
        assert!(found.calls.iter().all(|c| c.a.is_sign_positive() && c.b.is_sign_positive()), "no -0.000");
        assert_eq!((found.workload.as_str(), found.metric.as_str()), ("micro", "fork-exit"));
        assert!(calls(&plan, &judgement, &evidence[..1]).is_empty());
        assert!(calls(&plan, &judgement, &[of(0, 10, &[]), of(1, 10, &[])]).is_empty());
    }
}
