//! Causes from samples: the cost of each function per operation, and its error.
//!
//! A sample stands for one period of a CPU's time, so n samples are n periods with a standard error of √n periods (Poisson). The time of `k` CPUs is
//! divided among functions and waiting, where `k` is the mean number of busy CPUs in the arm that kept more of them busy: functions take their
//! sampled time, and waiting is the rest.
//!
//! Invariant: every named cause differs by more than [`ERRORS`] standard errors; all other functions are summed.

use std::collections::BTreeMap;

use super::{Cause, Causes, NotToldApart, Uncertain, WAITING, most_busy, ranked, without_rounding};
use crate::window::{Explained, WindowEvidence};
use bigiron_model::evidence::Executed;

/// A difference must exceed this number of standard errors to be shown.
pub const ERRORS: f64 = 2.0;

/// Means over pairs, in nanoseconds per operation, and the variance of their difference.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    a: f64,
    b: f64,
    variance: f64,
}

/// The causes of a line from the samples of both arms of `pairs`; `None` if an arm was not sampled.
pub(super) fn of_line(index: usize, of: Explained<'_>, pairs: &[[WindowEvidence<'_>; 2]]) -> Option<Causes> {
    let each = 1.0 / pairs.len() as f64;
    let mut costs: BTreeMap<&str, Cost> = BTreeMap::new();
    let (mut windows, mut sampled) = ([Vec::new(), Vec::new()], [0u64; 2]);
    for pair in pairs {
        for (arm, seen) in pair.iter().enumerate() {
            let period = seen.evidence.sampled.as_ref()?.period_ns as f64;
            add(seen.window, period, each, &mut costs, arm);
            let samples = samples(seen.window);
            let operations = seen.window.operations as f64;
            windows[arm].push((samples as f64 * period / operations, seen.window.ns as f64 / operations));
            sampled[arm] = sampled[arm].saturating_add(samples);
        }
    }
    let cpus = most_busy(windows);
    let mut waiting = Cost::default();
    let (mut a, mut b) = (0.0, 0.0);
    for pair in pairs {
        for (arm, seen) in pair.iter().enumerate() {
            let (all, busy, variance) = rest(seen, cpus)?;
            let side = if arm == 0 { (&mut a, &mut waiting.a) } else { (&mut b, &mut waiting.b) };
            *side.0 += each * all;
            *side.1 += each * (all - busy);
            waiting.variance += each * each * variance;
        }
    }
    (waiting.a, waiting.b) = (without_rounding(waiting.a, a), without_rounding(waiting.b, b));
    costs.insert(WAITING, waiting);
    let (told, noise): (Vec<_>, Vec<_>) =
        costs.into_iter().partition(|(_, cost)| (cost.b - cost.a).abs() > ERRORS * cost.variance.sqrt());
    let cause = |(name, cost): (&str, Cost)| Cause {
        name: name.to_owned(),
        formerly: None,
        a: cost.a,
        b: cost.b,
        se: Some(cost.variance.sqrt()),
    };
    let causes = told.into_iter().map(cause).collect();
    let sum = |of: fn(&Cost) -> f64| noise.iter().map(|(_, cost)| of(cost)).sum::<f64>();
    let sampled = Some(Uncertain {
        samples_a: sampled[0],
        samples_b: sampled[1],
        not_told_apart: NotToldApart {
            functions: noise.len(),
            a: sum(|c| c.a),
            b: sum(|c| c.b),
            se: sum(|c| c.variance).sqrt(),
        },
    });
    Some(ranked(Causes { pairs: pairs.len(), cpus, a, b, causes, sampled, ..Causes::none(index, of) }))
}

/// Adds the costs of one arm's functions.
fn add<'a>(window: &'a Executed, period: f64, each: f64, costs: &mut BTreeMap<&'a str, Cost>, arm: usize) {
    for (function, samples) in &window.functions {
        let weight = each * period / window.operations as f64;
        let cost = costs.entry(function).or_default();
        *(if arm == 0 { &mut cost.a } else { &mut cost.b }) += weight * *samples as f64;
        cost.variance += weight * weight * *samples as f64;
    }
}

/// Samples of all functions of a window. A received folder may hold any numbers.
fn samples(window: &Executed) -> u64 {
    window.functions.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
}

/// Nanoseconds of one operation on `cpus`, the nanoseconds of it in functions, and the variance of the rest. That variance is at most the variance of
/// the functions, which is returned (CPUs that never idle leave less doubt).
fn rest(seen: &WindowEvidence<'_>, cpus: f64) -> Option<(f64, f64, f64)> {
    let (window, period) = (seen.window, seen.evidence.sampled.as_ref()?.period_ns as f64);
    let operations = window.operations as f64;
    let samples = samples(window) as f64;
    let all = cpus * window.ns as f64;
    Some((all / operations, samples * period / operations, (period / operations).powi(2) * samples))
}
