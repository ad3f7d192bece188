//! The power promised for a design, and Stein's two stages.
//!
//! Invariant: power is simulated at exactly the effect, margin and size that the library prints, never at values found here.

use bigiron_stats::power::Unsettled;
use bigiron_stats::{Designs, Flip, Flips, Verdict, power, stein::Stein, verdict};

use super::{
    Setting,
    check::{Checks, Share},
    name,
    noise::Noise,
    replicate::{Tally, replicate},
};

/// Maximum difference between simulated and nominal power (80 %).
const POINTS: f64 = 0.02;

#[derive(Default)]
pub(super) struct Power {
    pub seen: Share,
    pub same: Share,
}

impl Power {
    /// Counts whether a study shows `effect`, and whether it shows `same` for `margin`. By the duality of interval and p, which costs a tenth: "the
    /// 95 % interval lies above −effect", "the 90 % interval is inside".
    pub(super) fn count(&mut self, flip: &Flip, effect: f64, margin: f64) {
        self.seen.count(2.0 * flip.p_greater(-effect) <= 0.05);
        self.same.count(flip.p_greater(-margin) <= 0.05 && flip.p_less(margin) <= 0.05);
    }
}

impl Tally for Power {
    fn merge(&mut self, other: Power) {
        self.seen.merge(other.seen);
        self.same.merge(other.same);
    }
}

/// Power to detect `effect`, and of `same` for `margin` without an effect.
fn simulate(setting: &Setting, flips: Flips, pairs: usize, effect: f64, margin: f64) -> Power {
    let designs = Designs::new(flips, 0);
    let replicates = if pairs > 16 { setting.replicates / 4 } else { setting.replicates };
    replicate(setting, replicates, &format!("power {pairs} {}", name(flips)), |rng, power: &mut Power| {
        let session = Noise::Normal.session(pairs, rng);
        power.count(&designs.flip(&session.ab, &session.ba), effect, margin);
    })
}

pub(super) fn power(setting: &Setting, checks: &mut Checks) {
    for flips in [Flips::Balanced, Flips::Full] {
        power_of(setting, flips, checks);
    }
}

fn power_of(setting: &Setting, flips: Flips, checks: &mut Checks) {
    println!("{} flips", name(flips));
    println!("{:>5} {:>7} {:>13}", "pairs", "MDE/s", "power at MDE");
    // 65,536 subset sums for each order of 32 pairs: too many for a smoke test.
    let (sizes, margins): (&[usize], &[f64]) = if setting.smoke {
        (&[8, 10, 12, 14, 16, 20], &[3.0, 1.5, 1.0, 0.75])
    } else {
        (&[8, 10, 12, 14, 16, 18, 20, 24, 30, 32], &[3.0, 1.5, 1.0, 0.75, 0.6, 0.55])
    };
    for &pairs in sizes {
        let mde = power::mde(flips, pairs, 1.0);
        let seen = simulate(setting, flips, pairs, mde, 1.0).seen;
        println!("{pairs:>5} {mde:>7.2} {:>13}", seen.percent());
        checks.near(&format!("power at the MDE of {pairs} pairs, {}", name(flips)), seen, 0.8, POINTS);
    }
    println!("{:>8} {:>15} {:>14} {:>18}", "margin/s", "pairs for same", "power of same", "2 pairs fewer");
    for &margin in margins {
        let pairs = power::pairs_for_same(flips, 1.0, margin).expect("A positive margin has a size") as usize;
        let same = simulate(setting, flips, pairs, 1.0, margin).same;
        // The size must also be necessary: two pairs fewer must not suffice.
        let less =
            (pairs > power::SMALLEST_DESIGN as usize).then(|| simulate(setting, flips, pairs - 2, 1.0, margin).same);
        let with_less = less.map_or_else(|| "-".to_owned(), Share::percent);
        println!("{margin:>8} {pairs:>15} {:>14} {with_less:>18}", same.percent());
        let what = |pairs| format!("power of `same` at margin {margin} s, {pairs} pairs, {}", name(flips));
        checks.at_least(&what(pairs), same, 0.8 - POINTS);
        if let Some(less) = less {
            checks.at_most(&what(pairs - 2), less, 0.8 + POINTS);
        }
    }
}

/// Hints of inconclusive studies, and whether new studies of that size are settled.
#[derive(Default)]
struct Hints {
    pairs: Vec<u32>,
    settled: Share,
    none: u64,
}

impl Tally for Hints {
    fn merge(&mut self, other: Hints) {
        self.pairs.extend(other.pairs);
        self.settled.merge(other.settled);
        self.none += other.none;
    }
}

pub(super) fn hints(setting: &Setting, checks: &mut Checks) {
    println!("Studies of 8 or 10 pairs that are inconclusive: pairs that the hint names, and how often they settle it");
    println!(
        "{:>5} {:<8} {:>6} {:>8} {:>12} {:>14} {:>8} {:>10}",
        "pairs", "flips", "truth", "margin/s", "median hint", "largest tenth", "settled", "no hint %"
    );
    // A smoke test needs only what is checked.
    let (sizes, cases): (&[usize], &[(f64, f64)]) = match setting.smoke {
        true => (&[8], &[(0.0, 1.0)]),
        false => (&[8, 10], &[(0.0, 1.0), (0.0, 0.5), (0.5, 1.0), (1.0, 1.0)]),
    };
    for (pairs, flips) in sizes.iter().flat_map(|pairs| [(*pairs, Flips::Balanced), (*pairs, Flips::Full)]) {
        for &(truth, margin) in cases {
            let designs = Designs::new(flips, 0);
            let verdict_of = |pairs: usize, rng: &mut _| {
                let mut session = Noise::Normal.session(pairs, rng);
                session.ab.iter_mut().chain(&mut session.ba).for_each(|d| *d += truth);
                let flip = designs.flip(&session.ab, &session.ba);
                (verdict(flip.interval(0.05), flip.interval(0.10), margin), flip)
            };
            let cell = format!("hints {pairs} {} {truth} {margin}", name(flips));
            let mut found = replicate(setting, setting.replicates / 4, &cell, |rng, hints: &mut Hints| {
                let (said, flip) = verdict_of(pairs, rng);
                if said != Verdict::Inconclusive {
                    return;
                }
                let line = Unsettled { mean: flip.mean(), pairs: pairs as u32, sd: flip.sd(), margin, level: 0.05 };
                let Some(needed) = line.pairs_to_settle(flips).filter(|n| *n <= 64) else {
                    hints.none += 1;
                    return;
                };
                hints.pairs.push(needed);
                hints.settled.count(verdict_of(needed as usize, rng).0 != Verdict::Inconclusive);
            });
            found.pairs.sort_unstable();
            let at = |share: usize| found.pairs.get(found.pairs.len() * share / 10).copied().unwrap_or(0);
            let none = 100.0 * found.none as f64 / (found.none as usize + found.pairs.len()).max(1) as f64;
            println!(
                "{pairs:>5} {:<8} {truth:>6} {margin:>8} {:>12} {:>14} {:>8} {none:>10.1}",
                name(flips),
                at(5),
                at(9),
                found.settled.percent()
            );
            if (truth, margin, pairs) == (0.0, 1.0, 8) {
                checks.holds(&format!("{cell}: the median hint is at most 14 pairs in all"), at(5) <= 14);
                checks.at_least(&format!("{cell}: settled"), found.settled, 0.75);
            }
        }
    }
}

#[derive(Default)]
struct Stages {
    covered: Share,
    too_wide: Share,
    pairs: u64,
}

impl Tally for Stages {
    fn merge(&mut self, other: Stages) {
        self.covered.merge(other.covered);
        self.too_wide.merge(other.too_wide);
        self.pairs += other.pairs;
    }
}

pub(super) fn stein(setting: &Setting, checks: &mut Checks) {
    println!("{:>11} {:>12} {:<15} {:>8} {:>10}", "first stage", "half width/s", "noise", "coverage", "mean pairs");
    for first in [8_usize, 12] {
        for half_width in [0.4, 0.8] {
            for noise in [Noise::Normal, Noise::HeavyTails, Noise::Bimodal, Noise::Lognormal, Noise::SlotEffect] {
                let cell = format!("stein {first} {half_width} {}", noise.name());
                let stages = replicate(setting, setting.replicates, &cell, |rng, stages: &mut Stages| {
                    let mut session = noise.session(first, rng);
                    let stein = Stein::new(&session.ab, &session.ba).expect("Four pairs or more of each order");
                    let total = stein.total_pairs(half_width, 0.05) as usize;
                    let second = noise.session(total - first, rng);
                    session.ab.extend(second.ab);
                    session.ba.extend(second.ba);
                    let (low, high) = stein.interval(&session.ab, &session.ba, 0.05);
                    stages.covered.count(low <= 0.0 && 0.0 <= high);
                    stages.too_wide.count((high - low) / 2.0 > half_width * (1.0 + 1e-9));
                    stages.pairs += total as u64;
                });
                println!(
                    "{first:>11} {half_width:>12} {:<15} {:>8} {:>10.1}",
                    noise.name(),
                    stages.covered.percent(),
                    stages.pairs as f64 / setting.replicates as f64
                );
                checks.at_least(&format!("coverage, {cell}"), stages.covered, 0.94);
                checks.holds(&format!("{cell}: an interval is wider than requested"), stages.too_wide.rate() == 0.0);
            }
        }
    }
}
