//! Comparison of counters: what the kernel counted per operation in each arm, and the interval of its change over the judged pairs.
//!
//! A counter of only a few events in a trial varies by chance. In a change, a value below a floor therefore counts as the floor, in both arms alike.
//! The means are the counted values.
//!
//! Invariant: a pure function of plan, records and judgement, on which no verdict depends. A counter that one arm's kernel does not report has no
//! change. A counter that is 0 in both arms, or the same in every pair, is not tested and does not enter the correction for the number of counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use bigiron_stats::{Designs, multiplicity};
use serde::{Serialize, Serializer};

use super::inference::Inference;
use super::line::{self, Pair};
use super::standing::{self, SlotStanding};
use super::units::{Place, Units};
use super::workers::{self, Stopped};
use super::{ALPHA, Judgement, State};
use bigiron_model::counter_words as words;
use bigiron_model::counters::{TrialCounters, WindowCounters};
use bigiron_model::metric::Unit;
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;

/// All counters of one comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ComparedCounters {
    /// By workload, window and name; without counters that were 0 in both arms throughout.
    #[serde(rename = "lines")]
    pub counters: Vec<ComparedCounter>,
    /// Names that were 0 in every window of every trial of both arms.
    pub never: Vec<String>,
    /// Names that only one arm's kernel has, A's and B's.
    #[serde(rename = "only_baseline")]
    pub only_a: Vec<String>,
    #[serde(rename = "only_arm")]
    pub only_b: Vec<String>,
    /// Number of tested changes.
    pub tested: usize,
    /// Nanoseconds for one reading: the mean of all trials' means.
    pub reading_ns: f64,
}

/// One counter of one window: an arm against the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedCounter {
    pub workload: String,
    /// The metrics that the windows explain; none for an amount at the end of the workload's last window.
    pub metrics: Vec<String>,
    #[serde(rename = "counter")]
    pub name: String,
    pub unit: Unit,
    /// Means over the pairs, per operation unless it is an amount.
    #[serde(rename = "baseline_mean")]
    pub a: f64,
    #[serde(rename = "arm_mean")]
    pub b: f64,
    /// Pairs in which both arms have the counter.
    pub pairs: usize,
    #[serde(flatten)]
    pub change: CounterChange,
}

/// The change of a counter on the log scale; serialised in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CounterChange {
    #[serde(rename = "change_percent", serialize_with = "in_percent")]
    pub mean: f64,
    #[serde(skip)]
    pub sd: f64,
    /// `None` where the design is too small for an interval.
    #[serde(rename = "ci95_percent", serialize_with = "both_in_percent")]
    pub ci95: Option<(f64, f64)>,
    /// Two-sided p of "no change".
    pub p: f64,
    /// Adjusted by Benjamini–Hochberg over all tested counters of its workload; `None` if it was not tested because the arms are the same in every
    /// pair.
    pub adjusted_p: Option<f64>,
}

fn percent(log: f64) -> f64 {
    100.0 * log.exp_m1()
}

fn in_percent<S: Serializer>(log: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    percent(*log).serialize(serializer)
}

fn both_in_percent<S: Serializer>(ci: &Option<(f64, f64)>, serializer: S) -> Result<S::Ok, S::Error> {
    ci.map(|(low, high)| [percent(low), percent(high)]).serialize(serializer)
}

impl ComparedCounter {
    /// Whether the counter differs and the difference survives the correction for the number of counters.
    pub fn discovery(&self) -> bool {
        self.change.adjusted_p.is_some_and(|p| p <= ALPHA)
    }

    /// Whether its own interval excludes "no change".
    pub fn differs(&self) -> bool {
        self.change.adjusted_p.is_some() && self.change.ci95.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// One arm's counters of one window, or a workload's amounts: numbers by name, and their divisor.
struct WindowNumbers<'a> {
    by_name: BTreeMap<&'a str, Option<f64>>,
    per: f64,
}

/// Fewest requests for which a mean size is meaningful.
const FEWEST_REQUESTS: f64 = 10.0;

/// A workload and the metrics that have the same windows in all trials; no metrics stand for the workload's amounts.
type CounterScope = (String, Vec<String>);

/// The counters of each comparison, in the judgement's order; empty if nothing was counted or the study is not finished. Ends early if `stop` is set.
pub fn counters(
    plan: &Plan,
    records: &[Record],
    judgement: &Judgement,
    stop: &AtomicBool,
) -> Result<Vec<ComparedCounters>, Stopped> {
    if judgement.state != State::Finished || records.iter().all(|r| r.counters.is_none()) {
        return Ok(Vec::new());
    }
    let standings = standing::standings(plan, records);
    let designs = Designs::new(plan.flips(), plan.design.seed);
    let of = |comparison: &super::Comparison| {
        counts(plan, &designs, &line::pairs(plan, &standings.slots, comparison.arm), stop)
    };
    let all: Vec<ComparedCounters> = judgement.comparisons.iter().map(of).collect::<Result<_, _>>()?;
    Ok(if all.iter().all(|counts| *counts == ComparedCounters::default()) { Vec::new() } else { all })
}

fn counts(plan: &Plan, designs: &Designs, pairs: &[Pair<'_>], stop: &AtomicBool) -> Result<ComparedCounters, Stopped> {
    let read: Vec<(Place, [&TrialCounters; 2])> =
        pairs.iter().filter_map(|p| Some(((p.pair, p.machine, p.order), both(p)?))).collect();
    let (mut found, mut never) = (ComparedCounters::default(), BTreeSet::new());
    let has = |arm: usize, name: &String| read.iter().any(|(_, of)| of[arm].names.binary_search(name).is_ok());
    let names: BTreeSet<&String> = read.iter().flat_map(|(_, of)| of.iter().flat_map(|c| &c.names)).collect();
    for name in names {
        match (has(0, name), has(1, name)) {
            (true, false) => found.only_a.push(name.clone()),
            (false, true) => found.only_b.push(name.clone()),
            _ => {}
        }
    }
    for place in places(plan, &read) {
        let numbers: Vec<(Place, [WindowNumbers<'_>; 2])> =
            read.iter().filter_map(|(at, [a, b])| Some((*at, [numbers(a, &place)?, numbers(b, &place)?]))).collect();
        let names: BTreeSet<&str> = numbers.iter().flat_map(|(_, [a, _])| a.by_name.keys().copied()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let counters = workers::each(&names, stop, |name| counter(plan, designs, &place, name, &numbers))?;
        for (name, counter) in names.into_iter().zip(counters) {
            match counter {
                Some(counter) => found.counters.push(counter),
                None if numbers.iter().any(|(_, of)| of.iter().all(|n| known(n, name).is_some())) => {
                    never.insert(name.to_owned());
                }
                None => {}
            }
        }
    }
    let counted: BTreeSet<&str> = found.counters.iter().map(|c| c.name.as_str()).collect();
    found.never = never.into_iter().filter(|name| !counted.contains(name.as_str())).collect();
    let costs: Vec<f64> = read
        .iter()
        .flat_map(|(_, of)| of.iter())
        .filter(|c| c.readings > 0)
        .map(|c| c.reading_ns as f64 / c.readings as f64)
        .collect();
    found.reading_ns = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
    adjust(&mut found);
    Ok(found)
}

/// The counters of both trials of a pair.
fn both<'a>(pair: &Pair<'a>) -> Option<[&'a TrialCounters; 2]> {
    let of = |standing: &SlotStanding<'a>| match standing {
        SlotStanding::Completed(record) => record.counters.as_ref(),
        SlotStanding::Failed(_) | SlotStanding::Missing => None,
    };
    Some([of(&pair.a)?, of(&pair.b)?])
}

/// All windows of the plan's workloads in which counters were read, in the order of the metrics; each workload's amounts follow its windows.
fn places(plan: &Plan, read: &[(Place, [&TrialCounters; 2])]) -> Vec<CounterScope> {
    let mut places: Vec<CounterScope> = Vec::new();
    let trials = || read.iter().flat_map(|(_, of)| of.iter());
    for workload in &plan.workloads {
        let windows = |counters: &'_ &TrialCounters| -> Vec<Vec<String>> {
            let of = counters.windows.iter().filter(|w| w.workload == workload.name);
            of.map(|w| w.metrics.clone()).collect()
        };
        let trials: Vec<Vec<Vec<String>>> = trials().map(windows).collect();
        // Whether the same windows always explain two metrics.
        let together = |x: &String, y: &String| trials.iter().flatten().all(|of| of.contains(x) == of.contains(y));
        let first = places.len();
        for metric in workload.metrics.iter().map(|m| &m.name) {
            if !trials.iter().flatten().any(|of| of.contains(metric)) {
                continue;
            }
            match places[first..].iter_mut().find(|(_, of)| together(&of[0], metric)) {
                Some((_, of)) => of.push(metric.clone()),
                None => places.push((workload.name.clone(), vec![metric.clone()])),
            }
        }
        places.push((workload.name.clone(), Vec::new()));
    }
    places
}

fn numbers<'a>(counters: &'a TrialCounters, (workload, metrics): &CounterScope) -> Option<WindowNumbers<'a>> {
    let Some(metric) = metrics.first() else {
        let amounts = counters.amounts_of(workload);
        let by_name = amounts.into_iter().map(|(name, n)| (name, Some(n as f64))).collect();
        return Some(WindowNumbers { by_name, per: 1.0 });
    };
    let is_it = |w: &&WindowCounters| w.workload == *workload && w.metrics.contains(metric) && w.operations > 0;
    let window = counters.windows.iter().find(is_it)?;
    let mut by_name: BTreeMap<&str, Option<f64>> =
        counters.counts(window).into_iter().map(|(name, n)| (name, n.map(|n| n as f64))).collect();
    let per = window.operations as f64;
    // A mean size exists only where there was a request.
    for (name, bytes, requests) in words::SIZES {
        if let (Some(Some(bytes)), Some(Some(requests))) = (by_name.get(bytes), by_name.get(requests)) {
            // Everything is divided by operations later; that division restores the size.
            let size = (*requests >= FEWEST_REQUESTS).then(|| bytes / requests * per);
            by_name.insert(name, size);
        }
    }
    Some(WindowNumbers { by_name, per })
}

/// An arm's value of a counter, if it is known.
fn known(of: &WindowNumbers<'_>, name: &str) -> Option<f64> {
    of.by_name.get(name).copied().flatten()
}

/// A counter of a window over all pairs in which both arms have it; `None` if there is no such pair or all values are 0.
fn counter(
    plan: &Plan,
    designs: &Designs,
    place: &CounterScope,
    name: &str,
    numbers: &[(Place, [WindowNumbers<'_>; 2])],
) -> Option<ComparedCounter> {
    let unit = words::unit(name);
    let pairs: Vec<(Place, f64, f64, f64)> = numbers
        .iter()
        .filter_map(|(at, [a, b])| {
            // Both arms have the same floor, although they may have done unequal numbers of operations.
            let floor = words::floor(unit) / if words::is_amount(name) { 1.0 } else { a.per.min(b.per) };
            Some((*at, known(a, name)? / a.per, known(b, name)? / b.per, floor))
        })
        .collect();
    if pairs.iter().all(|(_, a, b, _)| *a == 0.0 && *b == 0.0) {
        return None;
    }
    let d = |a: f64, b: f64, floor: f64| (b.max(floor) / a.max(floor)).ln();
    let units = Units::new(&plan.design, pairs.iter().map(|(at, a, b, floor)| (*at, [d(*a, *b, *floor)])));
    let blocks = units.blocks(|[d]| *d);
    let is_same = blocks.iter().all(|block| block.ab.iter().chain(&block.ba).all(|d| *d == 0.0));
    let inference = Inference::new(plan, designs, &blocks);
    let mean = |of: fn(&(Place, f64, f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    let p = if is_same { 1.0 } else { inference.p(0.0) };
    Some(ComparedCounter {
        workload: place.0.clone(),
        metrics: place.1.clone(),
        name: name.to_owned(),
        unit,
        a: mean(|p| p.1),
        b: mean(|p| p.2),
        pairs: pairs.len(),
        change: CounterChange {
            // Avoids a negative zero.
            mean: inference.mean() + 0.0,
            sd: inference.sd(),
            ci95: inference.interval(0.05),
            p,
            adjusted_p: (!is_same).then_some(p),
        },
    })
}

/// Benjamini–Hochberg over the tested counters of each workload.
fn adjust(counts: &mut ComparedCounters) {
    counts.tested = counts.counters.iter().filter(|c| c.change.adjusted_p.is_some()).count();
    let workloads: BTreeSet<String> = counts.counters.iter().map(|c| c.workload.clone()).collect();
    for workload in workloads {
        let is_of = |c: &&mut ComparedCounter| c.workload == workload && c.change.adjusted_p.is_some();
        let tested: Vec<&mut ComparedCounter> = counts.counters.iter_mut().filter(is_of).collect();
        let p: Vec<f64> = tested.iter().map(|c| c.change.p).collect();
        for (counter, adjusted) in tested.into_iter().zip(multiplicity::benjamini_hochberg(&p)) {
            counter.change.adjusted_p = Some(adjusted);
        }
    }
}

#[cfg(test)]
mod tests;
