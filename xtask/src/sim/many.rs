//! Many exploratory metrics at once: Benjamini–Hochberg.
//!
//! Invariant: metrics of one session share its pairs, so they are simulated both independent and correlated.

use bigiron_stats::{Flip, Flips, multiplicity};

use super::{
    Setting,
    check::Checks,
    name,
    noise::{Pair, Session, balanced, normal},
    replicate::{Tally, replicate},
};

/// Number of exploratory metrics, and of those that B really changes.
const METRICS: usize = 40;
const REAL: usize = 8;

/// False discovery proportions.
#[derive(Default)]
struct Discoveries {
    sum: f64,
    squares: f64,
    found: f64,
    sessions: u64,
}

impl Tally for Discoveries {
    fn merge(&mut self, other: Discoveries) {
        self.sum += other.sum;
        self.squares += other.squares;
        self.found += other.found;
        self.sessions += other.sessions;
    }
}

/// D of `metrics` metrics over the same pairs, correlated by `share` of the variance.
pub(super) fn session(
    pairs: usize,
    metrics: usize,
    share: f64,
    rng: &mut bigiron_stats::order::ChaCha12Rng,
) -> Vec<Session> {
    let orders = balanced(pairs, rng);
    let common: Vec<f64> = (0..pairs).map(|_| normal(rng)).collect();
    (0..metrics)
        .map(|_| {
            let of_pair = |(&a_first, common): (&bool, &f64)| {
                let b = share.sqrt() * common + (1.0 - share).sqrt() * normal(rng);
                Pair { a_first, a: 0.0, b }
            };
            Session::of(&orders.iter().zip(&common).map(of_pair).collect::<Vec<_>>())
        })
        .collect()
}

pub(super) fn shifted(flips: Flips, session: &Session, effect: f64) -> Flip {
    let shift = |d: &[f64]| d.iter().map(|d| d + effect).collect::<Vec<_>>();
    Flip::new(flips, &shift(&session.ab), &shift(&session.ba), 0)
}

pub(super) fn multiplicity(setting: &Setting, checks: &mut Checks) {
    println!("Benjamini–Hochberg at 5 %: {METRICS} metrics, {REAL} of them changed by 2 s");
    println!("{:>5} {:<8} {:>11} {:>6} {:>12}", "pairs", "flips", "correlation", "FDR", "found of 8");
    let designs = [(8, Flips::Balanced), (8, Flips::Full), (12, Flips::Balanced), (12, Flips::Full)];
    for ((pairs, flips), share) in designs.into_iter().flat_map(|design| [0.0, 0.5].map(|share| (design, share))) {
        let cell = format!("bh {pairs} {share}");
        let found = replicate(setting, setting.replicates, &cell, |rng, tally: &mut Discoveries| {
            let metrics = session(pairs, METRICS, share, rng);
            let effect = |i: usize| if i < REAL { 2.0 } else { 0.0 };
            let p: Vec<f64> = metrics.iter().enumerate().map(|(i, m)| shifted(flips, m, effect(i)).p(0.0)).collect();
            let flagged = |(_, q): &(usize, f64)| *q <= 0.05;
            let flags: Vec<(usize, f64)> =
                multiplicity::benjamini_hochberg(&p).into_iter().enumerate().filter(flagged).collect();
            let wrong = flags.iter().filter(|(i, _)| *i >= REAL).count() as f64;
            let proportion = wrong / flags.len().max(1) as f64;
            tally.sum += proportion;
            tally.squares += proportion * proportion;
            tally.found += flags.len() as f64 - wrong;
            tally.sessions += 1;
        });
        let n = found.sessions as f64;
        let (mean, found_mean) = (found.sum / n, found.found / n);
        let sd = (found.squares / n - mean * mean).max(0.0).sqrt();
        println!("{pairs:>5} {:<8} {share:>11} {:>6.2} {found_mean:>12.2}", name(flips), 100.0 * mean);
        let what = format!("false discovery rate, {cell}, {}", name(flips));
        checks.mean_at_most(&what, mean, sd, found.sessions, 0.05);
        if pairs == 12 {
            checks.holds(&format!("{what}: real changes are found"), found_mean > REAL as f64 / 2.0);
        }
    }
}
