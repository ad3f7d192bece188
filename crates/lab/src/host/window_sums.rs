//! The work of windows, summed by the metrics that they explain.
//!
//! Invariant: metrics are in the order of first occurrence, functions in the order of their cost.

use std::collections::{BTreeMap, HashMap};

use bigiron_model::evidence::Executed;
use bigiron_model::modelled::Counts;
use bigiron_model::workload::Window;

/// All windows so far.
#[derive(Default)]
pub(super) struct WindowSums(Vec<MetricSum>);

/// All windows of one metric.
#[derive(Default)]
struct MetricSum {
    workload: String,
    metric: String,
    operations: u64,
    ns: u64,
    functions: HashMap<String, u64>,
    calls: HashMap<String, u64>,
    modelled: HashMap<String, BTreeMap<u8, u64>>,
}

impl WindowSums {
    /// Adds a window, and how often it executed each function.
    pub(super) fn add<'a>(
        &mut self,
        workload: &str,
        window: &Window,
        functions: impl Iterator<Item = (&'a str, u64)> + Clone,
    ) {
        for metric in &window.metrics {
            let found = self.0.iter().position(|s| s.workload == workload && s.metric == *metric);
            let at = found.unwrap_or_else(|| {
                self.0.push(MetricSum {
                    workload: workload.to_owned(),
                    metric: metric.clone(),
                    ..MetricSum::default()
                });
                self.0.len() - 1
            });
            let sum = &mut self.0[at];
            // A guest may say any number.
            sum.operations = sum.operations.saturating_add(window.operations);
            sum.ns = sum.ns.saturating_add(window.ns);
            for (name, n) in functions.clone() {
                match sum.functions.get_mut(name) {
                    Some(count) => *count = count.saturating_add(n),
                    None => drop(sum.functions.insert(name.to_owned(), n)),
                }
            }
        }
    }

    /// Adds the system calls of a window that was added before.
    pub(super) fn add_calls(&mut self, workload: &str, window: &Window, calls: &HashMap<String, u64>) {
        for sum in self.0.iter_mut().filter(|s| s.workload == workload && window.metrics.contains(&s.metric)) {
            for (name, n) in calls {
                let count = sum.calls.entry(name.clone()).or_default();
                *count = count.saturating_add(*n);
            }
        }
    }

    /// Adds what a model counted in a window that was added before.
    pub(super) fn add_modelled(
        &mut self,
        workload: &str,
        window: &Window,
        modelled: &HashMap<String, BTreeMap<u8, u64>>,
    ) {
        for sum in self.0.iter_mut().filter(|s| s.workload == workload && window.metrics.contains(&s.metric)) {
            for (name, counts) in modelled {
                let all = sum.modelled.entry(name.clone()).or_default();
                for (place, n) in counts {
                    let count = all.entry(*place).or_default();
                    *count = count.saturating_add(*n);
                }
            }
        }
    }

    /// Whether a model counted anything.
    pub(super) fn is_modelled(&self) -> bool {
        self.0.iter().any(|sum| !sum.modelled.is_empty())
    }

    pub(super) fn executed(self) -> Vec<Executed> {
        self.0.into_iter().map(MetricSum::executed).collect()
    }
}

impl MetricSum {
    fn executed(self) -> Executed {
        let Self { workload, metric, operations, ns, functions, calls, modelled } = self;
        let mut modelled: Vec<_> =
            modelled.into_iter().map(|(name, counts)| (name, counts.into_iter().collect())).collect();
        modelled.sort_by(|(a, _): &(String, Counts), (b, _)| a.cmp(b));
        Executed { workload, metric, operations, ns, functions: ranked(functions), calls: ranked(calls), modelled }
    }
}

fn ranked(counts: HashMap<String, u64>) -> Vec<(String, u64)> {
    let mut ranked: Vec<_> = counts.into_iter().collect();
    ranked.sort_by(|(name_a, a), (name_b, b)| b.cmp(a).then_with(|| name_a.cmp(name_b)));
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_one_metric_are_added_up_and_one_may_be_of_two() {
        let mut sums = WindowSums::default();
        let window = |metrics: &[&str], operations, ns| Window {
            metrics: metrics.iter().map(|m| (*m).to_owned()).collect(),
            operations,
            ns,
        };
        sums.add("w", &window(&["a", "b"], 10, 100), [("f", 3), ("g", 5)].into_iter());
        sums.add("w", &window(&[], 10, 100), [("f", 7)].into_iter());
        sums.add("w", &window(&["a"], 1, 50), [("f", 4)].into_iter());
        sums.add_calls("w", &window(&["a"], 1, 50), &HashMap::from([("read".to_owned(), 2)]));
        let modelled = HashMap::from([("f".to_owned(), BTreeMap::from([(4, 2), (1, 5)]))]);
        (0..2).for_each(|_| sums.add_modelled("w", &window(&["b"], 1, 50), &modelled));
        let executed = sums.executed();
        assert_eq!((executed[0].modelled.len(), executed[1].modelled[0].1.as_slice()), (0, &[(1, 10), (4, 4)][..]));
        assert_eq!((executed[0].calls.as_slice(), executed[1].calls.len()), (&[("read".to_owned(), 2)][..], 0));
        let functions = |n: usize| executed[n].functions.iter().map(|(f, n)| (f.as_str(), *n)).collect::<Vec<_>>();
        assert_eq!((executed[0].metric.as_str(), executed[0].operations, executed[0].ns), ("a", 11, 150));
        assert_eq!((functions(0), functions(1)), (vec![("f", 7), ("g", 5)], vec![("g", 5), ("f", 3)]));
    }
}
