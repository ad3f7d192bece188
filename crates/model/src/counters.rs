//! The kernel's counters of a trial, window by window, as a record stores them.
//!
//! Invariant: `names` contains every name that the kernel reports. A number missing from a window's list is 0 there, unless the window lists it as
//! unknown.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::counter_words as words;
use crate::workload::Window;

/// Version of the format.
pub const SCHEMA: u32 = 1;

/// The counters of one trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialCounters {
    pub schema: u32,
    /// Sorted; all numbers refer to indices into this list.
    pub names: Vec<String>,
    /// Number of readings of the counters, and their total time, by the clock of the machine under test.
    pub readings: u64,
    pub reading_ns: u64,
    pub windows: Vec<WindowCounters>,
    /// Amounts when the last window of a workload closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amounts: Vec<Amounts>,
}

/// The counts in all windows that explain the same metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowCounters {
    pub workload: String,
    pub metrics: Vec<String>,
    pub operations: u64,
    pub ns: u64,
    /// Indices of names, and numbers; zeros are left out.
    pub counts: Vec<(u32, u64)>,
    /// Indices of counters that are unknown for this window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<u32>,
}

/// Amounts of one workload, in the form of [`WindowCounters::counts`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    pub workload: String,
    pub values: Vec<(u32, u64)>,
}

/// All windows of one metric, or of several metrics with the same windows.
struct Sum<'a> {
    workload: &'a str,
    metrics: Vec<&'a str>,
    operations: u64,
    ns: u64,
    /// `None` if a window was not read.
    counted: Option<Counted>,
}

/// A workload's windows, in the order of their cuts, with the counters of each.
pub type Read = (String, Vec<(Window, Option<Counted>)>);

impl TrialCounters {
    /// The counters of all workloads of a trial; `None` if nothing was read.
    pub fn of(read: &[Read]) -> Option<Self> {
        let sums = sums(read);
        let last: Vec<(&str, &BTreeMap<String, u64>)> = read
            .iter()
            .filter_map(|(workload, windows)| {
                Some((workload.as_str(), &windows.iter().rev().find_map(|(_, counted)| counted.as_ref())?.amounts))
            })
            .collect();
        let events = sums.iter().filter_map(|sum| sum.counted.as_ref()).flat_map(|counted| counted.events.keys());
        let names: BTreeSet<&String> = events.chain(last.iter().flat_map(|(_, amounts)| amounts.keys())).collect();
        let names: Vec<String> = names.into_iter().cloned().collect();
        let place = |name: &str| names.binary_search_by(|n| n.as_str().cmp(name)).unwrap_or(0) as u32;
        let windows: Vec<WindowCounters> = sums
            .iter()
            .filter_map(|sum| {
                let events = &sum.counted.as_ref()?.events;
                let known = |n: &Option<u64>| n.filter(|n| *n > 0);
                let counts = events.iter().filter_map(|(name, n)| Some((place(name), known(n)?))).collect();
                let is_known = |name: &&String| matches!(events.get(*name), Some(Some(_))) || words::is_amount(name);
                let unknown = names.iter().filter(|name| !is_known(name)).map(|name| place(name)).collect();
                let (workload, metrics) =
                    (sum.workload.to_owned(), sum.metrics.iter().map(|m| (*m).to_owned()).collect());
                Some(WindowCounters { workload, metrics, operations: sum.operations, ns: sum.ns, counts, unknown })
            })
            .collect();
        let amounts = last
            .iter()
            .map(|(workload, amounts)| Amounts {
                workload: (*workload).to_owned(),
                values: amounts.iter().filter(|(_, n)| **n > 0).map(|(name, n)| (place(name), *n)).collect(),
            })
            .collect();
        let (readings, reading_ns) = read
            .iter()
            .flat_map(|(_, windows)| windows.iter().filter_map(|(_, counted)| counted.as_ref()))
            .fold((0, 0), |sum, counted| (sum.0 + counted.readings, sum.1 + counted.reading_ns));
        (!windows.is_empty()).then_some(Self { schema: SCHEMA, names, readings, reading_ns, windows, amounts })
    }

    /// The counts of a window by name; `None` for unknown ones.
    pub fn counts<'a>(&'a self, window: &WindowCounters) -> BTreeMap<&'a str, Option<u64>> {
        let events = self.names.iter().filter(|name| !words::is_amount(name));
        let mut counts: BTreeMap<&str, Option<u64>> = events.map(|name| (name.as_str(), Some(0))).collect();
        let mut set = |place: u32, n: Option<u64>| {
            if let Some(name) = self.names.get(place as usize) {
                counts.insert(name, n);
            }
        };
        window.counts.iter().for_each(|(place, n)| set(*place, Some(*n)));
        window.unknown.iter().for_each(|place| set(*place, None));
        counts
    }

    /// Each amount when the workload's last window closed.
    pub fn amounts_of<'a>(&'a self, workload: &str) -> BTreeMap<&'a str, u64> {
        let Some(amounts) = self.amounts.iter().find(|a| a.workload == workload) else { return BTreeMap::new() };
        let all = self.names.iter().filter(|name| words::is_amount(name));
        let mut values: BTreeMap<&str, u64> = all.map(|name| (name.as_str(), 0)).collect();
        let there =
            amounts.values.iter().filter_map(|(place, n)| Some((self.names.get(*place as usize)?.as_str(), *n)));
        values.extend(there);
        values
    }
}

/// The windows added up by workload and metric, in order of first appearance.
fn sums(read: &[Read]) -> Vec<Sum<'_>> {
    let mut sums: Vec<Sum<'_>> = Vec::new();
    for (workload, windows) in read {
        for (window, counted) in windows {
            for metric in &window.metrics {
                let Some(sum) = sums.iter_mut().find(|s| s.workload == workload && s.metrics[0] == metric) else {
                    let (operations, ns, counted) = (window.operations, window.ns, counted.clone());
                    sums.push(Sum { workload, metrics: vec![metric], operations, ns, counted });
                    continue;
                };
                sum.operations += window.operations;
                sum.ns += window.ns;
                match (&mut sum.counted, counted) {
                    (Some(sum), Some(counted)) => sum.and(counted.clone()),
                    (none, _) => *none = None,
                }
            }
        }
    }
    let mut distinct: Vec<Sum<'_>> = Vec::new();
    for mut sum in sums.into_iter().filter(|sum| sum.operations > 0) {
        let is_same = |other: &&mut Sum<'_>| {
            (other.workload, other.operations, other.ns) == (sum.workload, sum.operations, sum.ns)
                && other.counted == sum.counted
        };
        match distinct.iter_mut().find(is_same) {
            Some(same) => same.metrics.append(&mut sum.metrics),
            None => distinct.push(sum),
        }
    }
    distinct
}

/// The events between two readings, and the amounts at the second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Number or size; `None` if unknown.
    pub events: BTreeMap<String, Option<u64>>,
    pub amounts: BTreeMap<String, u64>,
    /// The number of readings behind it, and their total nanoseconds.
    pub readings: u64,
    pub reading_ns: u64,
}

impl Counted {
    /// Adds the counts of another span of the same window. A count that is unknown in one is unknown in the sum.
    pub fn and(&mut self, other: Counted) {
        let names: BTreeSet<String> = self.events.keys().chain(other.events.keys()).cloned().collect();
        self.events = names
            .into_iter()
            .map(|name| {
                let sum = |n: &BTreeMap<String, Option<u64>>| n.get(&name).copied().flatten();
                let both = sum(&self.events).zip(sum(&other.events)).map(|(a, b)| a.saturating_add(b));
                (name, both)
            })
            .collect();
        self.amounts = other.amounts;
        self.readings += other.readings;
        self.reading_ns += other.reading_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(events: &[(&str, Option<u64>)], amounts: &[(&str, u64)]) -> Option<Counted> {
        let name = |n: &str| n.to_owned();
        Some(Counted {
            events: events.iter().map(|(n, v)| (name(n), *v)).collect(),
            amounts: amounts.iter().map(|(n, v)| (name(n), *v)).collect(),
            readings: 2,
            reading_ns: 500,
        })
    }

    fn window(metrics: &[&str], operations: u64) -> Window {
        Window { metrics: metrics.iter().map(|m| (*m).to_owned()).collect(), operations, ns: 10 * operations }
    }

    #[test]
    fn nothing_zero_and_unknown_are_told_apart() {
        let first =
            counted(&[("irq.TLB", None), ("vm.a", Some(7)), ("vm.b", Some(0))], &[("mem.Slab", 1), ("slab.x", 9)]);
        let last =
            counted(&[("irq.TLB", Some(3)), ("vm.a", Some(2)), ("vm.b", Some(4))], &[("mem.Slab", 5), ("slab.x", 0)]);
        let windows = vec![(window(&["p", "q", "r"], 10), first), (window(&["q"], 30), last), (window(&[], 1), None)];
        let counters = TrialCounters::of(&[("w".to_owned(), windows)]).unwrap();
        assert_eq!(counters.names, ["irq.TLB", "mem.Slab", "slab.x", "vm.a", "vm.b"]);
        let [p, q] = &counters.windows[..] else { panic!("{counters:?}") };
        assert_eq!((p.counts.as_slice(), p.unknown.as_slice()), (&[(3, 7)][..], &[0][..]));
        assert_eq!(counters.counts(p), [("irq.TLB", None), ("vm.a", Some(7)), ("vm.b", Some(0))].into());
        assert_eq!(
            (p.metrics.as_slice(), q.metrics.as_slice()),
            (&["p".to_owned(), "r".to_owned()][..], &["q".to_owned()][..])
        );
        assert_eq!((q.operations, q.ns, counters.readings, counters.reading_ns), (40, 400, 4, 1000));
        assert_eq!(counters.counts(q), [("irq.TLB", None), ("vm.a", Some(9)), ("vm.b", Some(4))].into());
        assert_eq!(counters.amounts_of("w"), [("mem.Slab", 5), ("slab.x", 0)].into());
        assert_eq!(counters.amounts_of("v"), BTreeMap::new());
        let text = serde_json::to_string(&counters).unwrap();
        assert_eq!(serde_json::from_str::<TrialCounters>(&text).unwrap(), counters);
    }

    #[test]
    fn a_metric_of_which_a_window_was_not_read_has_no_counters() {
        let read = |n| counted(&[("vm.a", Some(n))], &[]);
        let windows = vec![(window(&["p"], 10), read(1)), (window(&["p"], 10), None), (window(&["q"], 5), read(2))];
        let counters = TrialCounters::of(&[("w".to_owned(), windows)]).unwrap();
        assert_eq!(counters.windows.iter().map(|w| w.metrics[0].as_str()).collect::<Vec<_>>(), ["q"]);
        assert_eq!(TrialCounters::of(&[("w".to_owned(), vec![(window(&["p"], 10), None)])]), None);
    }
}
