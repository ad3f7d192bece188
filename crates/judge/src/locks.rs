//! What the lines that differ waited for: kernel locks by caller, and futexes by program, ranked by the difference of their waiting per
//! operation.
//!
//! Waiting is summed over all waiters, so it can exceed the duration of an operation.
//!
//! Invariant: a pure function of plan, judgement, records and evidence. Figures are recorded values divided by operations; nothing is estimated.

use std::collections::BTreeMap;

use serde::Serialize;

use super::causes::slower;
use super::window::{self, Explained};
use super::{Comparison, Judgement, standing};
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;
use bigiron_model::values::Values;
use bigiron_model::waits::{LockStat, Traced, TrialWaits, WaitTally, WindowWaits};

/// Everything known about waiting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Locks {
    pub traced: Option<HowTraced>,
    pub lines: Vec<Contended>,
    /// Arms whose kernel reports no waits, and why.
    pub untold: Vec<(String, String)>,
}

/// How the trials were traced, all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HowTraced {
    pub trials: usize,
    /// How many times as slow tracing made the primaries: the geometric mean. `None` if it is unknown.
    pub slow_down: Option<f64>,
    pub events: u64,
    pub lost: u64,
    pub unpaired: u64,
    pub others: u64,
}

/// What one line waited for, in both arms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contended {
    /// Index into the judgement's comparisons.
    #[serde(skip)]
    pub comparison: usize,
    pub workload: String,
    pub metric: String,
    /// As [`super::causes::Causes::window`].
    pub window: String,
    pub pairs: usize,
    /// Nanoseconds of each arm for one operation, while it was traced.
    #[serde(rename = "baseline_ns")]
    pub a_ns: f64,
    #[serde(rename = "arm_ns")]
    pub b_ns: f64,
    /// All locks together.
    pub total: CostPair,
    /// Largest difference of waiting first.
    pub locks: Vec<Lock>,
    /// Futexes by program, in the same order.
    pub futexes: Vec<NamedCost>,
    /// The kernels' own accounts of the workload in the first pair, if both keep one.
    #[serde(rename = "lock_stat")]
    pub stat: Option<Box<Accounts>>,
}

/// The kernels' own accounts of their locks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accounts {
    #[serde(rename = "baseline")]
    pub a: LockStat,
    #[serde(rename = "arm")]
    pub b: LockStat,
}

/// Locks of one class and name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lock {
    pub class: String,
    /// `None`: it is known by its class and callers alone.
    #[serde(rename = "lock")]
    pub name: Option<String>,
    #[serde(flatten)]
    pub cost: CostPair,
    /// Largest difference first.
    pub callers: Vec<NamedCost>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedCost {
    pub name: String,
    #[serde(flatten)]
    pub cost: CostPair,
}

/// Waiting in both arms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CostPair {
    #[serde(rename = "baseline")]
    pub a: WaitCost,
    #[serde(rename = "arm")]
    pub b: WaitCost,
    /// Nanoseconds for one operation that B waits more, and what that is of the line's difference; see [`Contended::share`].
    #[serde(rename = "change_ns")]
    pub delta: f64,
    pub share: Option<f64>,
}

/// The waits of one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitCost {
    /// Waits per operation, and those among them that never slept.
    pub waits: f64,
    pub spun: f64,
    /// Nanoseconds per operation.
    pub ns: f64,
    /// Mean and maximum of one wait.
    pub mean_ns: f64,
    pub max_ns: f64,
    /// Share of all CPUs' time that went into spinning.
    pub cpu: f64,
}

impl Contended {
    /// What a change of waiting is of the line's difference; `None` where that is too little to be divided by.
    pub fn share(&self, delta: f64) -> Option<f64> {
        share((self.a_ns, self.b_ns), delta)
    }
}

/// A difference below this share of the whole counts as none.
const LITTLE: f64 = 0.001;

/// What `delta` is of the difference between two times of an operation.
fn share((a_ns, b_ns): (f64, f64), delta: f64) -> Option<f64> {
    let whole = b_ns - a_ns;
    (whole.abs() > LITTLE * a_ns.max(b_ns)).then(|| delta / whole)
}

impl Locks {
    pub fn new(plan: &Plan, records: &[Record], judgement: &Judgement, waiting: &[TrialWaits]) -> Self {
        if waiting.is_empty() {
            return Self::default();
        }
        let mut lines = Vec::new();
        for (index, comparison) in judgement.comparisons.iter().enumerate() {
            for line in window::explained(comparison, waiting) {
                lines.extend(of_line(plan, (index, comparison), line, waiting));
            }
        }
        let mut untold: Vec<(String, String)> = Vec::new();
        for w in waiting {
            let arm = &plan.arms[plan.slots[w.slot as usize].arm].name;
            if let Some(why) = w.traced.untold.as_ref().filter(|_| untold.iter().all(|(known, _)| known != arm)) {
                untold.push((arm.clone(), why.clone()));
            }
        }
        Self { traced: Some(how(plan, records, waiting)), lines, untold }
    }
}

fn how(plan: &Plan, records: &[Record], waiting: &[TrialWaits]) -> HowTraced {
    let judged = standing::standings(plan, records);
    let pairs: Vec<(&Values, &Record)> =
        waiting.iter().filter_map(|w| Some((&w.metrics, judged.completed(w.slot)?))).collect();
    let mut how = HowTraced { trials: waiting.len(), slow_down: slower(plan, &pairs), ..HowTraced::default() };
    for Traced { events, lost, unpaired, others, .. } in waiting.iter().map(|w| &w.traced) {
        how.events = how.events.saturating_add(*events);
        how.lost = how.lost.saturating_add(*lost);
        how.unpaired = how.unpaired.saturating_add(*unpaired);
        how.others = how.others.saturating_add(*others);
    }
    how
}

/// One arm's windows together.
#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    operations: f64,
    ns: f64,
    /// Nanoseconds summed over all CPUs.
    cpu_ns: f64,
}

impl Arm {
    fn cost(&self, tally: &WaitTally) -> WaitCost {
        let each = |n: u64| n as f64 / self.operations;
        WaitCost {
            waits: each(tally.waits),
            spun: each(tally.spun),
            ns: each(tally.total_ns),
            mean_ns: if tally.waits == 0 { 0.0 } else { tally.total_ns as f64 / tally.waits as f64 },
            max_ns: tally.max_ns as f64,
            cpu: tally.spun_ns as f64 / self.cpu_ns,
        }
    }
}

type Sides = [WaitTally; 2];

fn of_line(
    plan: &Plan,
    (index, comparison): (usize, &Comparison),
    Explained { line, window }: Explained<'_>,
    waiting: &[TrialWaits],
) -> Option<Contended> {
    let seen = |pair: u32, arm: usize| -> Option<(&TrialWaits, &WindowWaits)> {
        let slot = plan.slots.iter().find(|s| s.pair == pair && s.arm == arm)?.slot;
        let waiting = waiting.iter().find(|w| w.slot == slot)?;
        let is_it = |w: &&WindowWaits| w.workload == line.workload && w.metric == window;
        let window = waiting.windows.iter().find(is_it).filter(|w| w.operations > 0 && w.ns > 0)?;
        Some((waiting, window))
    };
    let pairs: Vec<_> =
        (0..plan.design.pairs).filter_map(|pair| seen(pair, 0).zip(seen(pair, comparison.arm))).collect();
    let first = pairs.first()?;
    let mut arms = [Arm::default(); 2];
    let mut total = Sides::default();
    let mut locks: BTreeMap<(&str, Option<&str>), BTreeMap<&str, Sides>> = BTreeMap::new();
    let mut futexes: BTreeMap<&str, Sides> = BTreeMap::new();
    for (of_a, of_b) in &pairs {
        for (side, (trial, window)) in [of_a, of_b].into_iter().enumerate() {
            let arm = &mut arms[side];
            arm.operations += window.operations as f64;
            arm.ns += window.ns as f64;
            arm.cpu_ns += window.ns as f64 * f64::from(trial.cpus.max(1));
            for lock in &window.locks {
                let callers = locks.entry((&lock.class, lock.lock.as_deref())).or_default();
                callers.entry(&lock.caller).or_default()[side].add(&lock.tally);
                total[side].add(&lock.tally);
            }
            for futex in &window.futexes {
                futexes.entry(&futex.program).or_default()[side].add(&futex.tally);
            }
        }
    }
    let times = (arms[0].ns / arms[0].operations, arms[1].ns / arms[1].operations);
    let pair = |sides: &Sides| {
        let (a, b) = (arms[0].cost(&sides[0]), arms[1].cost(&sides[1]));
        let delta = b.ns - a.ns;
        CostPair { a, b, delta, share: share(times, delta) }
    };
    let named = |all: BTreeMap<&str, Sides>| {
        let all = all.into_iter().map(|(name, sides)| NamedCost { name: name.to_owned(), cost: pair(&sides) });
        ranked(all.collect(), |n| (n.cost, n.name.clone()))
    };
    let lock = |((class, name), callers): ((&str, Option<&str>), BTreeMap<&str, Sides>)| {
        let mut sides = Sides::default();
        callers.values().for_each(|of| sides.iter_mut().zip(of).for_each(|(sum, one)| sum.add(one)));
        let (class, name) = (class.to_owned(), name.map(str::to_owned));
        Lock { class, name, cost: pair(&sides), callers: named(callers) }
    };
    let stat = |w: &TrialWaits| w.stat.iter().find(|s| s.workload == line.workload).cloned();
    Some(Contended {
        comparison: index,
        workload: line.workload.clone(),
        metric: line.metric.name.clone(),
        window: window.to_owned(),
        pairs: pairs.len(),
        a_ns: times.0,
        b_ns: times.1,
        total: pair(&total),
        locks: ranked(locks.into_iter().map(lock).collect(), |l| (l.cost, format!("{} {:?}", l.class, l.name))),
        futexes: named(futexes),
        stat: stat(first.0.0).zip(stat(first.1.0)).map(|(a, b)| Box::new(Accounts { a, b })),
    })
}

/// Largest difference first; equal ones by longest wait, then by name.
fn ranked<T>(mut all: Vec<T>, key: impl Fn(&T) -> (CostPair, String)) -> Vec<T> {
    all.sort_by(|x, y| {
        let ((of_x, name_x), (of_y, name_y)) = (key(x), key(y));
        let by_difference = of_y.delta.abs().total_cmp(&of_x.delta.abs());
        by_difference.then_with(|| of_y.b.ns.total_cmp(&of_x.b.ns)).then_with(|| name_x.cmp(&name_y))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::contended;
    use crate::judge;

    #[test]
    fn waits_are_ranked_by_their_difference_for_one_operation() {
        let (plan, records, waiting) = contended();
        let found = Locks::new(&plan, &records, &judge(&plan, &records), &waiting);
        assert_eq!(found.lines.len(), 1, "one line differs");
        let line = &found.lines[0];
        assert_eq!((line.a_ns, line.b_ns), (1000.0, 1100.0));
        let names: Vec<_> = line.locks.iter().map(|l| (l.name.as_deref(), l.cost.delta)).collect();
        assert_eq!(names, [(Some("mmap_lock"), 70.0), (None, -10.0), (Some("pipe mutex"), 5.0)]);
        assert_eq!(line.locks[0].cost.share, Some(0.7));
        let callers: Vec<_> = line.locks[0].callers.iter().map(|c| (c.name.as_str(), c.cost.delta)).collect();
        assert_eq!(callers, [("vm_mmap_pgoff", 40.0), ("do_madvise", 30.0)]);
        assert_eq!(
            line.locks[0].cost.b,
            WaitCost { waits: 1.0, spun: 0.0, ns: 120.0, mean_ns: 120.0, max_ns: 300.0, cpu: 0.0 }
        );
        // 100 ns of spinning in 10,000 ns on each of two CPUs.
        assert_eq!((line.total.a.waits, line.total.a.spun, line.total.a.cpu), (1.5, 1.0, 0.005));
        assert_eq!((line.futexes[0].name.as_str(), line.futexes[0].cost.delta), ("init", 50.0));
        let how = found.traced.unwrap();
        assert_eq!((how.trials, how.events, how.lost), (2, 200, 1));
        assert!((how.slow_down.unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn tracing_is_compared_with_the_attempt_that_was_judged() {
        let (mut plan, mut records, waiting) = contended();
        plan.clock = bigiron_model::clock::Clock::Wall;
        let again: Vec<Record> = records[..2].iter().map(|r| Record { attempt: 1, ..r.clone() }).collect();
        crate::fixture::void(&mut records[1]);
        records[0].metrics.scale(4.0);
        records.extend(again);
        assert!((how(&plan, &records, &waiting).slow_down.unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_kernel_that_tells_of_no_waits_is_named_once() {
        let (plan, records, mut waiting) = contended();
        waiting[0].traced.untold = Some("Linux 5.10 has none".to_owned());
        let judgement = judge(&plan, &records);
        let found = Locks::new(&plan, &records, &judgement, &waiting);
        assert_eq!(found.untold, [("debian:6.1".to_owned(), "Linux 5.10 has none".to_owned())]);
        assert_eq!(Locks::new(&plan, &records, &judgement, &[]), Locks::default());
        // A pair with one arm missing contributes nothing.
        assert_eq!(Locks::new(&plan, &records, &judgement, &waiting[..1]).lines, []);
    }

    #[test]
    fn a_difference_of_nothing_is_not_divided_by() {
        let (plan, records, mut waiting) = contended();
        waiting[1].windows[0].ns = 10_001;
        let found = Locks::new(&plan, &records, &judge(&plan, &records), &waiting);
        assert_eq!(found.lines[0].share(5.0), None);
    }
}
