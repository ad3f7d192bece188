//! Many metrics at once: Holm over primaries, Benjamini–Hochberg over the rest.
//!
//! Invariant: metrics of one session share its pairs, so they are simulated both independent and correlated.

use bigiron_stats::suite::{self, Claim};
use bigiron_stats::{Flip, Flips, Verdict, multiplicity, power, verdict};

use super::{
    Setting,
    check::{Checks, Share},
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
fn session(pairs: usize, metrics: usize, share: f64, rng: &mut bigiron_stats::order::ChaCha12Rng) -> Vec<Session> {
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

fn shifted(session: &Session, effect: f64) -> Flip {
    let shift = |d: &[f64]| d.iter().map(|d| d + effect).collect::<Vec<_>>();
    Flip::new(Flips::Balanced, &shift(&session.ab), &shift(&session.ba), 0)
}

pub(super) fn multiplicity(setting: &Setting, checks: &mut Checks) {
    println!("Benjamini–Hochberg at 5 %: {METRICS} metrics, {REAL} of them changed by 2 s, 12 pairs");
    println!("{:>11} {:>6} {:>12}", "correlation", "FDR", "found of 8");
    for share in [0.0, 0.5] {
        let cell = format!("bh {share}");
        let found = replicate(setting, setting.replicates, &cell, |rng, tally: &mut Discoveries| {
            let metrics = session(12, METRICS, share, rng);
            let effect = |i: usize| if i < REAL { 2.0 } else { 0.0 };
            let p: Vec<f64> = metrics.iter().enumerate().map(|(i, m)| shifted(m, effect(i)).p(0.0)).collect();
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
        println!("{share:>11} {:>6.2} {found_mean:>12.2}", 100.0 * mean);
        checks.mean_at_most(&format!("false discovery rate, correlation {share}"), mean, sd, found.sessions, 0.05);
        checks.holds(&format!("{cell}: real changes are found"), found_mean > REAL as f64 / 2.0);
    }

    println!("Holm at 5 %: 6 primaries, truth 0, +m or −m in turn, margin .5 s");
    println!("{:>5} {:>11} {:>17} {:>17}", "pairs", "correlation", "any false claim", "without Holm");
    let pairs = power::smallest_pairs(Flips::Balanced, 6) as usize;
    for share in [0.0, 0.5] {
        let cell = format!("holm {share}");
        let claims = replicate(setting, setting.replicates, &cell, |rng, tally: &mut Claims| {
            let (margin, truths) = (0.5, [0.0, 0.5, -0.5, 0.0, 0.5, -0.5]);
            let lines: Vec<Claim> = session(pairs, truths.len(), share, rng)
                .iter()
                .zip(truths)
                .map(|(metric, truth)| {
                    let flip = shifted(metric, truth);
                    let said = verdict(flip.interval(0.05), flip.interval(0.10), margin);
                    Claim::of(&flip, said, margin)
                })
                .collect();
            let wrong = |(said, truth): (Verdict, f64)| match said {
                Verdict::Better => truth <= margin,
                Verdict::SlightlyBetter => truth <= 0.0,
                Verdict::SlightlyWorse => truth >= 0.0,
                Verdict::Worse => truth >= -margin,
                _ => false,
            };
            let adjusted = suite::adjust(&lines, 0.05);
            tally.adjusted.count(adjusted.iter().map(|line| line.verdict).zip(truths).any(wrong));
            tally.unadjusted.count(lines.iter().map(|line| line.verdict).zip(truths).any(wrong));
        });
        let (adjusted, unadjusted) = (claims.adjusted.percent(), claims.unadjusted.percent());
        println!("{pairs:>5} {share:>11} {adjusted:>17} {unadjusted:>17}");
        checks.at_most(&format!("any false claim after Holm, correlation {share}"), claims.adjusted, 0.05);
    }
}

#[derive(Default)]
struct Claims {
    adjusted: Share,
    unadjusted: Share,
}

impl Tally for Claims {
    fn merge(&mut self, other: Claims) {
        self.adjusted.merge(other.adjusted);
        self.unadjusted.merge(other.unadjusted);
    }
}
