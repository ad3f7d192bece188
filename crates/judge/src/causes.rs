//! Why a line differs: what its window executed in each arm, function by function, ranked by its share of the difference.
//!
//! The time of the busy CPUs is divided among functions and waiting. Under the exact clock an instruction takes one nanosecond, and all other time is
//! waiting: both add up to the whole difference, and the part that a list omits is known to the nanosecond. On the wall clock functions are sampled,
//! so each has an error.
//!
//! Invariant: a pure function of plan, judgement, records and evidence. Only what was counted in both arms of a pair is ranked.

mod sampled;

use std::collections::{BTreeMap, BTreeSet};

use bigiron_stats::Verdict;
use serde::Serialize;

use super::line::Line;
use super::modelled::{self, Modelled};
use super::window::{self, Explained};
use super::{Comparison, Judgement, standing};
use bigiron_model::evidence::{Evidence, Executed, Sampled};
use bigiron_model::metric::Better;
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;
use bigiron_model::values::Values;

/// The share of a difference that a list of causes must explain before it ends.
pub const ENOUGH: f64 = 0.95;

/// A shorter list would hide causes that nearly cancel each other out.
const FEWEST: usize = 3;

/// The name of time in which no instruction is executed: devices, timers, other guests of the clock.
pub const WAITING: &str = "waiting";

/// The cost of one function, or of waiting, per operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    #[serde(rename = "function")]
    pub name: String,
    /// The function's name in the other arm, if it was renamed.
    pub formerly: Option<String>,
    /// Nanoseconds of each arm per operation: means over the pairs.
    #[serde(rename = "baseline_ns")]
    pub a: f64,
    #[serde(rename = "arm_ns")]
    pub b: f64,
    /// Standard error of the difference in nanoseconds, if the function was sampled.
    #[serde(rename = "standard_error_ns")]
    pub se: Option<f64>,
}

impl Cause {
    /// Nanoseconds by which B takes longer.
    pub fn delta(&self) -> f64 {
        self.b - self.a
    }
}

/// Why one line differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Causes {
    /// Index into the judgement's comparisons.
    #[serde(skip)]
    pub comparison: usize,
    pub workload: String,
    pub metric: String,
    /// The metric whose window explains the line: its own, or a substitute for a primary that has no window.
    pub window: String,
    /// Number of profiled pairs.
    pub pairs: usize,
    /// Mean number of busy CPUs in the arm that kept more of them busy, at least 1; the time of all of them is divided among causes.
    pub cpus: f64,
    /// Nanoseconds of each arm per operation, of `cpus` CPUs.
    #[serde(rename = "baseline_ns")]
    pub a: f64,
    #[serde(rename = "arm_ns")]
    pub b: f64,
    /// Every function whose cost differs, and waiting; largest difference first.
    #[serde(skip)]
    pub causes: Vec<Cause>,
    /// Number of causes, from the first, that explain [`ENOUGH`].
    #[serde(skip)]
    pub listed: usize,
    /// Nanoseconds per operation in functions that only one arm has, under any name: A's and B's. If the two are alike, work has moved rather
    /// than grown.
    #[serde(rename = "only_baseline_ns")]
    pub gone: f64,
    #[serde(rename = "only_arm_ns")]
    pub new: f64,
    /// What is sampled only; `None` where instructions were counted.
    pub sampled: Option<Uncertain>,
    /// Results of the model of processors; `None` if it did not run.
    pub modelled: Option<Modelled>,
}

/// What the samples could not resolve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Uncertain {
    /// Samples of the windows.
    #[serde(rename = "baseline_samples")]
    pub samples_a: u64,
    #[serde(rename = "arm_samples")]
    pub samples_b: u64,
    pub not_told_apart: NotToldApart,
}

/// Functions whose difference is within [`ERRORS`](sampled::ERRORS) standard errors, and are no causes therefore.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotToldApart {
    pub functions: usize,
    /// Nanoseconds of each arm for one operation, in these functions together, and the standard error of their difference.
    #[serde(rename = "baseline_ns")]
    pub a: f64,
    #[serde(rename = "arm_ns")]
    pub b: f64,
    #[serde(rename = "standard_error_ns")]
    pub se: f64,
}

impl Causes {
    /// Nanoseconds by which B takes longer per operation.
    pub fn delta(&self) -> f64 {
        self.b - self.a
    }

    /// The share of the difference that the first `n` causes explain; 1 is the whole difference.
    pub fn explained(&self, n: usize) -> f64 {
        let sum: f64 = self.causes.iter().take(n).map(Cause::delta).sum();
        if self.delta() == 0.0 { 0.0 } else { sum / self.delta() }
    }
}

/// How the profiled trials compare with the judged ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profiling {
    /// Profiled trials, and how many of them reproduced every value of the judged trial of their slot, bit for bit.
    pub trials: usize,
    pub identical: usize,
    /// CPU time of the profiled trials divided by that of the same trials when judged; for sampled trials, how many times as slow their primaries
    /// were (geometric mean). `None` if either is unknown.
    pub slow_down: Option<f64>,
    /// All trials together, if they were sampled rather than counted.
    pub sampled: Option<Sampled>,
}

/// Whether a line shows a difference that needs an explanation.
pub fn differs(line: &Line) -> bool {
    let claims = !matches!(line.verdict, Verdict::Same | Verdict::Inconclusive | Verdict::Invalid);
    claims && (line.metric.primary || line.discovery())
}

/// The slots to profile: both arms of the first `pairs` pairs, for every comparison in which a line differs.
pub fn slots(plan: &Plan, judgement: &Judgement, pairs: u32) -> Vec<u32> {
    let arms: BTreeSet<usize> =
        judgement.comparisons.iter().filter(|c| c.lines.iter().any(differs)).flat_map(|c| [0, c.arm]).collect();
    plan.slots.iter().filter(|s| s.pair < pairs && arms.contains(&s.arm)).map(|s| s.slot).collect()
}

/// The slots of the first `pairs` pairs.
pub fn slots_of_all_arms(plan: &Plan, pairs: u32) -> Vec<u32> {
    plan.slots.iter().filter(|s| s.pair < pairs).map(|s| s.slot).collect()
}

/// The causes of every line that differs and was profiled: by comparison, in the order of its lines.
pub fn causes(plan: &Plan, judgement: &Judgement, evidence: &[Evidence]) -> Vec<Causes> {
    let mut all = Vec::new();
    for (index, comparison) in judgement.comparisons.iter().enumerate() {
        for line in window::explained(comparison, evidence) {
            all.extend(of_line(plan, (index, comparison), line, evidence));
        }
    }
    all
}

fn of_line(
    plan: &Plan,
    (index, comparison): (usize, &Comparison),
    of: Explained<'_>,
    evidence: &[Evidence],
) -> Option<Causes> {
    let pairs = window::pairs(plan, comparison.arm, (&of.line.workload, of.window), evidence);
    if pairs.is_empty() {
        return None;
    }
    if pairs.iter().flatten().any(|of| of.evidence.sampled.is_some()) {
        return sampled::of_line(index, of, &pairs);
    }
    let each = 1.0 / pairs.len() as f64;
    let mut costs: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let busy = |window: &Executed| {
        let operations = window.operations as f64;
        (instructions(window) / operations, window.ns as f64 / operations)
    };
    let cpus = most_busy([0, 1].map(|arm| pairs.iter().map(|pair| busy(pair[arm].window)).collect()));
    let (mut a, mut b) = (0.0, 0.0);
    for [of_a, of_b] in &pairs {
        a += each * add(of_a.window, cpus, each, &mut costs, |cost| &mut cost.0);
        b += each * add(of_b.window, cpus, each, &mut costs, |cost| &mut cost.1);
    }
    let waiting = costs.entry(WAITING).or_default();
    *waiting = (without_rounding(waiting.0, a), without_rounding(waiting.1, b));
    let causes = renamed(costs);
    let modelled = modelled::of_pairs(&pairs);
    Some(ranked(Causes { pairs: pairs.len(), cpus, a, b, causes, modelled, ..Causes::none(index, of) }))
}

impl Causes {
    /// The causes of a line about which nothing is known.
    fn none(comparison: usize, Explained { line, window }: Explained<'_>) -> Self {
        Self {
            comparison,
            workload: line.workload.clone(),
            metric: line.metric.name.clone(),
            window: window.to_owned(),
            pairs: 0,
            cpus: 1.0,
            a: 0.0,
            b: 0.0,
            causes: Vec::new(),
            listed: 0,
            gone: 0.0,
            new: 0.0,
            sampled: None,
            modelled: None,
        }
    }
}

/// Sorts the causes and computes the fields that depend on their order.
fn ranked(mut found: Causes) -> Causes {
    let causes = &mut found.causes;
    let functions = || causes.iter().filter(|c| c.name != WAITING);
    found.gone = functions().filter(|c| c.b == 0.0).map(|c| c.a).sum();
    found.new = functions().filter(|c| c.a == 0.0).map(|c| c.b).sum();
    causes.retain(|c| c.delta() != 0.0);
    causes.sort_by(|x, y| y.delta().abs().total_cmp(&x.delta().abs()).then_with(|| x.name.cmp(&y.name)));
    let most = causes.len();
    found.listed =
        (FEWEST.min(most)..=most).find(|n| (1.0 - found.explained(*n)).abs() <= 1.0 - ENOUGH).unwrap_or(most);
    found
}

/// Mean number of busy CPUs in the arm that kept more of them busy, at least 1, from the busy CPU time and the time of an operation in each of an
/// arm's windows. As costs are, it is a mean over pairs, however many operations each has: no arm waits for less than nothing.
fn most_busy(arms: [Vec<(f64, f64)>; 2]) -> f64 {
    let busy = |windows: &Vec<(f64, f64)>| {
        let (busy, ns) = windows.iter().fold((0.0, 0.0), |(busy, ns), of| (busy + of.0, ns + of.1));
        busy / ns
    };
    arms.iter().map(busy).fold(1.0, f64::max)
}

/// The waiting of an arm whose operation takes `all` nanoseconds; 0 if it is only what rounding leaves of a CPU that never waits.
fn without_rounding(waiting: f64, all: f64) -> f64 {
    if waiting.abs() <= 1e-9 * all { 0.0 } else { waiting }
}

/// The instructions of a window. As a float: a received folder may hold any numbers.
fn instructions(window: &Executed) -> f64 {
    window.functions.iter().map(|(_, count)| *count as f64).sum()
}

/// Adds a window's costs per operation, weighted by `each`, and returns the nanoseconds of `cpus` CPUs for one operation.
fn add<'a>(
    window: &'a Executed,
    cpus: f64,
    each: f64,
    costs: &mut BTreeMap<&'a str, (f64, f64)>,
    side: fn(&mut (f64, f64)) -> &mut f64,
) -> f64 {
    let operations = window.operations as f64;
    for (function, count) in &window.functions {
        *side(costs.entry(function).or_default()) += each * *count as f64 / operations;
    }
    // On one CPU never negative: marks lie a few instructions inside the clock readings, never outside.
    let all = cpus * window.ns as f64;
    *side(costs.entry(WAITING).or_default()) += each * (all - instructions(window)) / operations;
    all / operations
}

/// Merges a function that only A has with one that only B has where their names and costs show that they are the same function.
fn renamed(costs: BTreeMap<&str, (f64, f64)>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for (name, (a, b)) in costs {
        if name == WAITING || a.min(b) > HARDLY * a.max(b) {
            causes.push(Cause { name: name.to_owned(), formerly: None, a, b, se: None });
        } else if a > b {
            gone.push(Cause { name: name.to_owned(), formerly: None, a, b, se: None });
        } else {
            new.push(Cause { name: name.to_owned(), formerly: None, a, b, se: None });
        }
    }
    // The costliest first: it has the best claim to a similar name.
    new.sort_by(|x, y| y.b.total_cmp(&x.b));
    for mut cause in new {
        let former = (0..gone.len())
            .filter_map(|i| Some((likeness((&cause.name, cause.b), (&gone[i].name, gone[i].a))?, i)))
            .max_by(|(x, i), (y, j)| x.total_cmp(y).then_with(|| j.cmp(i)))
            .map(|(_, i)| gone.remove(i));
        if let Some(former) = former {
            (cause.a, cause.b) = (cause.a + former.a, cause.b + former.b);
            cause.formerly = Some(former.name);
        }
        causes.push(cause);
    }
    causes.extend(gone);
    causes
}

/// A function whose cost is below this share of its cost in the other arm counts as gone: one last caller may remain on some path.
const HARDLY: f64 = 0.01;

/// Two names that share at least this part of their words count as one function: `mas_next_entry` and `mas_next_slot`, or `next_uptodate_page` and
/// `next_uptodate_folio`, but not `vfs_read` and `vfs_write`.
const ALIKE: f64 = 0.5;

/// Largest ratio of the two costs: functions with similar names but very different costs are two functions.
const AS_MUCH: f64 = 4.0;

/// The words that the names of two functions share, as a part of all their words (Jaccard); `None` if they cannot be one function.
fn likeness(a: (&str, f64), b: (&str, f64)) -> Option<f64> {
    fn words(name: &str) -> BTreeSet<&str> {
        name.split(['_', ':', ' ', '.']).filter(|word| !word.is_empty()).collect()
    }
    let (of_a, of_b) = (words(a.0), words(b.0));
    let likeness = of_a.intersection(&of_b).count() as f64 / of_a.union(&of_b).count().max(1) as f64;
    (likeness >= ALIKE && a.1.max(b.1) <= AS_MUCH * a.1.min(b.1)).then_some(likeness)
}

/// Compares the profiled trials with the judged ones.
pub fn looking(plan: &Plan, records: &[Record], evidence: &[Evidence]) -> Profiling {
    let judged = standing::standings(plan, records);
    let pairs: Vec<_> = evidence.iter().filter_map(|e| Some((e, judged.completed(e.slot)?))).collect();
    let (looked, before): (f64, f64) =
        pairs.iter().fold((0.0, 0.0), |sum, (e, r)| (sum.0 + e.cpu_s, sum.1 + r.host.cpu_s));
    let all = evidence.iter().filter_map(|e| e.sampled.as_ref());
    let sampled = all.cloned().reduce(|mut sum, s| {
        sum.samples = sum.samples.saturating_add(s.samples);
        sum.lost = sum.lost.saturating_add(s.lost);
        sum.others = sum.others.saturating_add(s.others);
        sum
    });
    let slow_down = match sampled {
        Some(_) => slower(plan, &pairs.iter().map(|(e, r)| (&e.metrics, *r)).collect::<Vec<_>>()),
        None => (before > 0.0 && looked > 0.0).then(|| looked / before),
    };
    Profiling {
        trials: evidence.len(),
        identical: pairs.iter().filter(|(e, r)| e.metrics == r.metrics).count(),
        slow_down,
        sampled,
    }
}

/// How many times as slow profiling made the primaries of the trials: the geometric mean.
pub(super) fn slower(plan: &Plan, pairs: &[(&Values, &Record)]) -> Option<f64> {
    let mut logs = Vec::new();
    let primaries = || plan.workloads.iter().flat_map(|w| w.metrics.iter().filter(|m| m.primary).map(|m| (&w.name, m)));
    for (metrics, record) in pairs {
        for (workload, def) in primaries() {
            let values = metrics.get(workload, &def.name).zip(record.metrics.get(workload, &def.name));
            let ratio = values.map_or(0.0, |(now, then)| match def.better {
                Better::Lower => now / then,
                Better::Higher => then / now,
            });
            logs.extend((ratio > 0.0 && ratio.is_finite()).then(|| ratio.ln()));
        }
    }
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

#[cfg(test)]
mod tests;
