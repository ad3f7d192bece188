//! The part of the JSON report on what lines waited for.

use serde::Serialize;

use super::super::{Report, locks};
use bigiron_judge::locks::{Contended, CostPair, HowTraced, Lock, NamedCost, WaitCost};
use bigiron_model::waits::LockStat;

#[derive(Serialize)]
pub(super) struct Waits<'a> {
    traced: &'a HowTraced,
    untold: Vec<Untraced<'a>>,
    lines: Vec<Waiting<'a>>,
}

#[derive(Serialize)]
struct Untraced<'a> {
    arm: &'a str,
    why: &'a str,
}

#[derive(Serialize)]
struct Waiting<'a> {
    arm: &'a str,
    workload: &'a str,
    metric: &'a str,
    window: &'a str,
    pairs: usize,
    /// Nanoseconds per operation, while traced.
    baseline_ns: f64,
    arm_ns: f64,
    total: Both,
    locks: Vec<Waited<'a>>,
    futexes: Vec<WaiterCost<'a>>,
    lock_stat: Option<Accounts<'a>>,
    sentences: Vec<String>,
}

#[derive(Serialize)]
struct Waited<'a> {
    class: &'a str,
    lock: Option<&'a str>,
    #[serde(flatten)]
    both: Both,
    callers: Vec<WaiterCost<'a>>,
}

#[derive(Serialize)]
struct WaiterCost<'a> {
    name: &'a str,
    #[serde(flatten)]
    both: Both,
}

#[derive(Serialize)]
struct Both {
    baseline: WaitCost,
    arm: WaitCost,
    change_ns: f64,
    /// Share of the line's difference; null if that is close to zero.
    share: Option<f64>,
}

#[derive(Serialize)]
struct Accounts<'a> {
    baseline: &'a LockStat,
    arm: &'a LockStat,
}

pub(super) fn of<'a>(report: &'a Report<'_>) -> Option<Waits<'a>> {
    let found = &report.why.locks;
    let arm = |line: &Contended| &report.plan.arms[report.judgement.comparisons[line.comparison].arm].name;
    Some(Waits {
        traced: found.traced.as_ref()?,
        untold: found.untold.iter().map(|(arm, why)| Untraced { arm, why }).collect(),
        lines: found.lines.iter().map(|line| waiting(line, arm(line))).collect(),
    })
}

fn waiting<'a>(line: &'a Contended, arm: &'a str) -> Waiting<'a> {
    let both = |pair: &CostPair| Both {
        baseline: pair.a,
        arm: pair.b,
        change_ns: pair.delta(),
        share: line.share(pair.delta()),
    };
    let who = |all: &'a [NamedCost]| all.iter().map(|n| WaiterCost { name: &n.name, both: both(&n.cost) }).collect();
    let waited = |lock: &'a Lock| Waited {
        class: &lock.class,
        lock: lock.name.as_deref(),
        both: both(&lock.cost),
        callers: who(&lock.callers),
    };
    Waiting {
        arm,
        workload: &line.workload,
        metric: &line.metric,
        window: &line.window,
        pairs: line.pairs,
        baseline_ns: line.a_ns,
        arm_ns: line.b_ns,
        total: both(&line.total),
        locks: line.locks.iter().map(waited).collect(),
        futexes: who(&line.futexes),
        lock_stat: line.stat.as_ref().map(|stat| Accounts { baseline: &stat.0, arm: &stat.1 }),
        sentences: locks::sentences(line),
    }
}
