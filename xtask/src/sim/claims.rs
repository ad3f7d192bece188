//! The primaries of one study: how often a real change among many is found, and how often anything is claimed wrongly.
//!
//! Invariant: each study is judged by the rule before (`adjust_flat`) and by the present one (`adjust`), from the same data.

use bigiron_stats::suite::{self, Claim};
use bigiron_stats::{Flips, Verdict, multiplicity, verdict};

use super::{
    Setting,
    check::{Checks, Share},
    many, name,
    replicate::{Tally, replicate},
};

const MARGIN: f64 = 1.0;

/// A study's primaries.
struct Family {
    pairs: usize,
    flips: Flips,
    /// Correlation of the primaries' noise.
    correlation: f64,
    /// Standard deviation of a pair, in margins.
    sd: f64,
    /// True changes, in margins.
    truths: Vec<f64>,
}

/// Counts for the two rules.
#[derive(Default)]
struct Counts {
    any_wrong: [Share; 2],
    /// Whether anything unchanged is called changed, even if only "tiny but real".
    any_difference: [Share; 2],
    /// The first primary's verdict.
    worse: [Share; 2],
    detected: [Share; 2],
    alone: Share,
}

impl Tally for Counts {
    fn merge(&mut self, other: Counts) {
        let mut all = [
            (&mut self.any_wrong, other.any_wrong),
            (&mut self.any_difference, other.any_difference),
            (&mut self.worse, other.worse),
            (&mut self.detected, other.detected),
        ];
        for (mine, other) in &mut all {
            for (mine, other) in mine.iter_mut().zip(other.iter()) {
                mine.merge(*other);
            }
        }
        self.alone.merge(other.alone);
    }
}

fn is_wrong(said: Verdict, truth: f64) -> bool {
    match said {
        Verdict::Better => truth <= MARGIN,
        Verdict::SlightlyBetter => truth <= 0.0,
        Verdict::SlightlyWorse => truth >= 0.0,
        Verdict::Worse => truth >= -MARGIN,
        _ => false,
    }
}

fn simulate(setting: &Setting, replicates: u64, family: &Family) -> Counts {
    let cell = format!(
        "claims {} {} {} {} {:?}",
        family.pairs,
        name(family.flips),
        family.correlation,
        family.sd,
        family.truths
    );
    replicate(setting, replicates, &cell, |rng, counts: &mut Counts| {
        let claims: Vec<Claim> = many::session(family.pairs, family.truths.len(), family.correlation, rng)
            .iter()
            .zip(&family.truths)
            .map(|(metric, truth)| {
                // In units of s, so that the noise stays as it is.
                let (truth, margin) = (truth / family.sd, MARGIN / family.sd);
                let flip = many::shifted(family.flips, metric, truth);
                let said = verdict(flip.interval(0.05), flip.interval(0.10), margin);
                Claim::of(&flip, said, margin)
            })
            .collect();
        counts.alone.count(matches!(claims[0].verdict, Verdict::Worse));
        for (rule, adjusted) in [suite::adjust_flat(&claims, 0.05), suite::adjust(&claims, 0.05)].iter().enumerate() {
            let mut judged = adjusted.iter().zip(&family.truths);
            counts.any_wrong[rule].count(judged.clone().any(|(line, truth)| is_wrong(line.verdict, *truth)));
            counts.any_difference[rule].count(judged.any(|(line, truth)| line.differs && *truth == 0.0));
            counts.worse[rule].count(adjusted[0].verdict == Verdict::Worse);
            counts.detected[rule].count(matches!(adjusted[0].verdict, Verdict::Worse | Verdict::SlightlyWorse));
        }
    })
}

fn designs(setting: &Setting) -> Vec<(usize, Flips)> {
    let sizes: &[usize] = if setting.smoke { &[8, 12] } else { &[8, 10, 12, 14] };
    sizes.iter().flat_map(|&pairs| [Flips::Balanced, Flips::Full].map(|flips| (pairs, flips))).collect()
}

/// The truths of a family by a rule of thumb for its hardest cases: unchanged, at the margin, or a mixture.
fn truths(of: &str, count: usize) -> Vec<f64> {
    let one = |i: usize| match of {
        "all 0" => 0.0,
        "all m" => 1.0,
        "0, m, -m" => [0.0, 1.0, -1.0][i % 3],
        // Beyond the margin, so that their share is passed on, and unchanged.
        "3 m, 0" => [3.0, 0.0][i % 2],
        _ => unreachable!("no such family: {of}"),
    };
    (0..count).map(one).collect()
}

pub(super) fn family_error(setting: &Setting, checks: &mut Checks) {
    println!(
        "{:>5} {:<8} {:>9} {:<9} {:>4} {:>5} {:>12} {:>12}",
        "pairs", "flips", "primaries", "truths", "s/m", "corr", "wrong before", "wrong now"
    );
    let counts: &[usize] = if setting.smoke { &[6] } else { &[1, 2, 6, 12] };
    for (pairs, flips) in designs(setting) {
        for &count in counts {
            for of in ["all 0", "all m", "0, m, -m", "3 m, 0"] {
                for (sd, correlation) in [(0.5, 0.0), (0.5, 0.5), (20.0, 0.0)] {
                    let family = Family { pairs, flips, correlation, sd, truths: truths(of, count) };
                    let found = simulate(setting, setting.replicates / 4, &family);
                    let [before, now] = found.any_wrong.map(Share::percent);
                    println!(
                        "{pairs:>5} {:<8} {count:>9} {of:<9} {sd:>4} {correlation:>5} {before:>12} {now:>12}",
                        name(flips)
                    );
                    let what =
                        format!("any wrong claim, {count} primaries, {of}, s = {sd} m, {pairs} pairs, {}", name(flips));
                    checks.at_most(&what, found.any_wrong[1], 0.05);
                    checks.at_most(&format!("{what}, or tiny change"), found.any_difference[1], 0.05);
                }
            }
        }
    }
}

pub(super) fn one_regression(setting: &Setting, checks: &mut Checks) {
    println!("One of several primaries is worse by 1.5 margins");
    println!(
        "{:>5} {:<8} {:>9} {:>4} {:>12} {:>10} {:>15} {:>13}",
        "pairs", "flips", "primaries", "s/m", "worse before", "worse now", "detected before", "detected now"
    );
    let counts: &[usize] = if setting.smoke { &[11] } else { &[1, 6, 11] };
    for (pairs, flips) in designs(setting) {
        for (&count, sd) in counts.iter().flat_map(|count| [0.5, 1.0].map(|sd| (count, sd))) {
            let mut truths = vec![0.0; count];
            truths[0] = -1.5;
            let found =
                simulate(setting, setting.replicates / 4, &Family { pairs, flips, correlation: 0.0, sd, truths });
            let ([worse, worse_now], [detected, now]) =
                (found.worse.map(Share::percent), found.detected.map(Share::percent));
            println!(
                "{pairs:>5} {:<8} {count:>9} {sd:>4} {worse:>12} {worse_now:>10} {detected:>15} {now:>13}",
                name(flips)
            );
            let what = format!("{count} primaries, {pairs} pairs, {}, s = {sd} m", name(flips));
            checks.holds(
                &format!("{what}: the nested rule detects as much"),
                found.detected[1].rate() >= found.detected[0].rate(),
            );
            if (pairs, count, sd) == (12, 11, 0.5) {
                checks.at_least(&format!("{what}: a real regression is detected"), found.detected[1], 0.99);
            }
        }
    }
}

pub(super) fn tiny(setting: &Setting, checks: &mut Checks) {
    println!("11 primaries, none changed, s = m/5: any is called \"tiny but real\"");
    println!("{:>5} {:<8} {:>10} {:>8}", "pairs", "flips", "before", "now");
    for (pairs, flips) in designs(setting) {
        let family = Family { pairs, flips, correlation: 0.0, sd: 0.2, truths: vec![0.0; 11] };
        let found = simulate(setting, setting.replicates / 4, &family);
        let [before, now] = found.any_difference.map(Share::percent);
        println!("{pairs:>5} {:<8} {before:>10} {now:>8}", name(flips));
        checks.at_most(
            &format!("any tiny change of 11, {pairs} pairs, {}", name(flips)),
            found.any_difference[1],
            0.05,
        );
    }
}

/// The metrics behind a mean: the family counts as worse if Benjamini–Hochberg leaves any of them beyond its margin.
pub(super) fn families(setting: &Setting, checks: &mut Checks) {
    const METRICS: usize = 46;
    println!("{METRICS} metrics behind a mean, s = m/2");
    println!(
        "{:>5} {:<8} {:>11} {:<22} {:>14} {:>12}",
        "pairs", "flips", "correlation", "truths", "called worse %", "found"
    );
    let sizes: &[usize] = if setting.smoke { &[10] } else { &[8, 10, 12] };
    for (&pairs, flips) in sizes.iter().flat_map(|pairs| [Flips::Balanced, Flips::Full].map(|flips| (pairs, flips))) {
        for (worse, correlation) in [(0, 0.0), (0, 0.5), (1, 0.0), (12, 0.0)] {
            let cell = format!("families {pairs} {} {correlation} {worse}", name(flips));
            let sd = 0.5;
            let found = replicate(setting, setting.replicates / 10, &cell, |rng, found: &mut Found| {
                let metrics = many::session(pairs, METRICS, correlation, rng);
                let within = |(i, metric): (usize, &_)| {
                    let truth = if i < worse { -3.0 } else { -MARGIN };
                    let flip = many::shifted(flips, metric, truth / sd);
                    Claim::of(&flip, Verdict::Same, MARGIN / sd).within
                };
                let p: Vec<f64> = metrics.iter().enumerate().map(within).collect();
                let flagged: Vec<usize> = multiplicity::benjamini_hochberg(&p)
                    .into_iter()
                    .enumerate()
                    .filter(|(_, p)| *p <= 0.05)
                    .map(|(i, _)| i)
                    .collect();
                found.worse.count(!flagged.is_empty());
                found.real += flagged.iter().filter(|i| **i < worse).count() as u64;
                found.studies += 1;
            });
            let truths = if worse == 0 { "all at the margin".to_owned() } else { format!("{worse} at 3 m, rest at m") };
            let real = if worse == 0 {
                "-".to_owned()
            } else {
                format!("{:.1} of {worse}", found.real as f64 / found.studies as f64)
            };
            println!(
                "{pairs:>5} {:<8} {correlation:>11} {truths:<22} {:>14} {real:>12}",
                name(flips),
                found.worse.percent()
            );
            if worse == 0 {
                checks.at_most(&format!("{cell}: called worse, none beyond its margin"), found.worse, 0.05);
            }
        }
    }
}

#[derive(Default)]
struct Found {
    worse: Share,
    real: u64,
    studies: u64,
}

impl Tally for Found {
    fn merge(&mut self, other: Found) {
        self.worse.merge(other.worse);
        self.real += other.real;
        self.studies += other.studies;
    }
}
