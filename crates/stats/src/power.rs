//! The power of a design: the smallest effect that it would detect, and the number of pairs that a question needs.
//!
//! Invariant: sizes are balanced designs of at least [`SMALLEST_DESIGN`] pairs, and stated power is what the flip interval really has at that size,
//! including the steps of its attainable levels; `cargo xtask sim` checks it by simulation.

use crate::{Flips, special};

/// With fewer pairs the flip interval has no 95 % level: C(8,4) = 70 is the first count above 40.
pub const SMALLEST_DESIGN: u32 = 8;

/// No plan with more pairs is proposed.
pub const LARGEST_DESIGN: u32 = 1_000;

/// Sample standard deviation; 0 for fewer than two values.
pub fn sd(d: &[f64]) -> f64 {
    if d.len() < 2 {
        return 0.0;
    }
    let mean = d.iter().sum::<f64>() / d.len() as f64;
    (d.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (d.len() - 1) as f64).sqrt()
}

/// C(N, h), C(n, h)^M or 2^N, the re-randomisations of a design of `pairs` pairs that is as balanced as possible.
fn rerandomisations(flips: Flips, pairs: u32) -> f64 {
    let choose_half = |n: u32| (1..=n / 2).fold(1.0, |c, i| c * f64::from(n - n / 2 + i) / f64::from(i));
    match flips {
        Flips::Balanced => choose_half(pairs),
        Flips::Blocks(machines) => {
            // Machines that have lost pairs have as many of them as possible.
            let (each, more) = (pairs / machines, pairs % machines);
            (0..machines).map(|at| choose_half(each + u32::from(at < more))).product()
        }
        Flips::Full => f64::from(pairs).exp2(),
    }
}

/// The difference between one balanced number of pairs and the next: each machine has as many of either order.
pub fn step(flips: Flips) -> u32 {
    if let Flips::Blocks(machines) = flips { 2 * machines.max(1) } else { 2 }
}

/// The smallest balanced number of pairs that is `pairs` or more.
pub fn balanced(flips: Flips, pairs: u32) -> u32 {
    pairs.next_multiple_of(step(flips))
}

/// The smallest two-sided p of a balanced design: 2/C(N, N/2) or 2/2^N.
pub fn smallest_attainable_p(flips: Flips, pairs: u32) -> f64 {
    (2.0 / rerandomisations(flips, pairs)).min(1.0)
}

/// The smallest balanced design, of at least 8 pairs, in which one of `primaries` primary metrics can pass the adjustment at 5 %.
pub fn smallest_pairs(flips: Flips, primaries: usize) -> u32 {
    let level = 0.05 / primaries.max(1) as f64;
    let mut sizes = (balanced(flips, SMALLEST_DESIGN)..).step_by(step(flips) as usize);
    sizes.find(|&n| smallest_attainable_p(flips, n) <= level).expect("The alternatives grow without bound")
}

/// The actual two-sided level of the interval with confidence `1 − alpha`: 2K of all alternatives, a step function below `alpha`. 0 if there is no
/// interval.
fn attained_level(flips: Flips, pairs: u32, alpha: f64) -> f64 {
    let c = rerandomisations(flips, pairs);
    if c > 1e12 { alpha } else { 2.0 * (alpha / 2.0 * c + 1e-9).floor() / c }
}

/// Degrees of freedom of the standard deviation: a balanced flip also estimates the effect of the order, on each machine.
fn degrees(flips: Flips, pairs: u32) -> f64 {
    let effects = match flips {
        Flips::Balanced => 1,
        Flips::Blocks(machines) => machines,
        Flips::Full => 0,
    };
    (f64::from(pairs) - 1.0 - f64::from(effects)).max(1.0)
}

/// The smallest effect (same unit as `sd`) whose 95 % interval excludes 0 with 80 % probability, if `sd` is the standard deviation of one pair, with
/// balanced flips around the mean of its order. Infinite below 8 pairs: no effect would be detected.
pub fn mde(flips: Flips, pairs: usize, sd: f64) -> f64 {
    let pairs = u32::try_from(pairs).unwrap_or(u32::MAX);
    detection_factor(flips, pairs) * sd
}

/// [`mde`] and the margin of [`pairs_for_same`] for a standard deviation of 1, at 8, 9, … 16 pairs, where the steps of the attainable levels are
/// coarse: 80 % quantiles over 600,000 normal samples each, with a standard error below .004 (8 pairs) or .002 (others).
const SMALL_BALANCED: [(f64, f64); 9] = [
    (1.441, 1.243),
    (1.133, 1.115),
    (1.034, 1.032),
    (0.970, 0.965),
    (0.901, 0.911),
    (0.863, 0.872),
    (0.819, 0.832),
    (0.786, 0.801),
    (0.755, 0.771),
];

/// The same with full flips; 400,000 samples each up to 12 pairs, 100,000 at 13 and 14, 50,000 at 15 and 16; each sample gives two ends.
const SMALL_FULL: [(f64, f64); 9] = [
    (1.188, 1.176),
    (1.091, 1.080),
    (1.005, 1.006),
    (0.941, 0.951),
    (0.890, 0.904),
    (0.848, 0.862),
    (0.810, 0.826),
    (0.780, 0.797),
    (0.751, 0.768),
];

/// The same for several machines whose attainable levels are as coarse: machines, pairs, [`mde`] and margin, from 100,000 samples each.
const SMALL_BLOCKS: [(u32, u32, f64, f64); 4] =
    [(3, 12, 0.953, 0.949), (6, 12, 1.268, 1.031), (7, 14, 0.942, 0.914), (8, 16, 0.841, 0.833)];

/// Fewest builds of each source for an interval at 95 %: 2/2^6.
pub const FEWEST_BUILDS: u32 = 6;

/// [`mde`] with full flips at 6 and 7 builds, from 400,000 normal samples each.
const FEW_BUILDS: [f64; 2] = [1.793, 1.332];

/// [`mde`] for builds as units, of which 6 and 7 have an interval too if flips are full.
pub fn mde_of_builds(flips: Flips, builds: usize, sd: f64) -> f64 {
    let few = builds.checked_sub(FEWEST_BUILDS as usize).and_then(|n| FEW_BUILDS.get(n));
    match (flips, few) {
        (Flips::Full, Some(factor)) => factor * sd,
        _ => mde(flips, builds, sd),
    }
}

/// The fewest builds of each source with which one of `primaries` primary metrics can pass the adjustment at 5 %.
pub fn smallest_builds(flips: Flips, primaries: usize) -> u32 {
    let level = 0.05 / primaries.max(1) as f64;
    let (first, step) = if flips == Flips::Full { (FEWEST_BUILDS, 1) } else { (SMALLEST_DESIGN, 2) };
    let mut sizes = (first..).step_by(step);
    sizes.find(|&n| smallest_attainable_p(flips, n) <= level).expect("The alternatives grow without bound")
}

fn small_design(flips: Flips, pairs: u32) -> Option<(f64, f64)> {
    let table = match flips {
        Flips::Balanced => &SMALL_BALANCED,
        Flips::Full => &SMALL_FULL,
        Flips::Blocks(machines) => {
            let of = |row: &&(u32, u32, f64, f64)| (row.0, row.1) == (machines, pairs);
            return SMALL_BLOCKS.iter().find(of).map(|row| (row.2, row.3));
        }
    };
    table.get(pairs.checked_sub(SMALLEST_DESIGN)? as usize).copied()
}

/// `mde` for a standard deviation of 1. Above the table it is the t test's power at the level that the interval attains; within half a point of the
/// simulated power.
fn detection_factor(flips: Flips, pairs: u32) -> f64 {
    if pairs < SMALLEST_DESIGN {
        return f64::INFINITY;
    }
    if let Some((detection, _)) = small_design(flips, pairs) {
        return detection;
    }
    half_width(flips, pairs, 0.05) + special::t_quantile(0.8, degrees(flips, pairs)) / f64::from(pairs).sqrt()
}

/// The margin at which a design says `same` with 80 % probability if the truth is 0, for a standard deviation of 1. Above the table the formula is
/// conservative by up to 1.5 points of power.
fn equivalence_factor(flips: Flips, pairs: u32) -> f64 {
    if let Some((_, equivalence)) = small_design(flips, pairs) {
        return equivalence;
    }
    half_width(flips, pairs, 0.10) + special::t_quantile(0.9, degrees(flips, pairs)) / f64::from(pairs).sqrt()
}

/// About half the width of the interval with confidence `1 − alpha` for a standard deviation of 1; infinite if there is none.
pub fn half_width(flips: Flips, pairs: u32, alpha: f64) -> f64 {
    let level = attained_level(flips, pairs, alpha);
    if level <= 0.0 {
        return f64::INFINITY;
    }
    special::t_quantile(1.0 - level / 2.0, degrees(flips, pairs)) / f64::from(pairs).sqrt()
}

/// Total pairs, an even number of at least 8, for 80 % power of `same` if the truth is 0. `None` if the margin is not positive or more than 1,000
/// pairs would be needed.
pub fn pairs_for_same(flips: Flips, sd: f64, margin: f64) -> Option<u32> {
    if margin <= 0.0 || !sd.is_finite() {
        return None;
    }
    smallest(flips, |n| sd * equivalence_factor(flips, n) <= margin)
}

/// Total pairs, an even number of at least 8, whose 95 % interval is expected to be `± half_width` or narrower. `None` if `half_width` is not positive or
/// more than 1,000 pairs would be needed.
pub fn pairs_for_half_width(flips: Flips, sd: f64, half_width: f64) -> Option<u32> {
    if half_width <= 0.0 || !sd.is_finite() {
        return None;
    }
    smallest(flips, |n| sd * self::half_width(flips, n, 0.05) <= half_width)
}

/// The margin at which a design of `pairs` says `same` with 80 % probability if the truth is 0; infinite below 8 pairs.
pub fn margin_for_same(flips: Flips, pairs: u32, sd: f64) -> f64 {
    if pairs < SMALLEST_DESIGN { f64::INFINITY } else { sd * equivalence_factor(flips, pairs) }
}

/// What is known of an `inconclusive` line, in one unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unsettled {
    /// The estimate and its number of pairs.
    pub mean: f64,
    pub pairs: u32,
    /// Standard deviation of one pair.
    pub sd: f64,
    /// The margin of `same`; 0 if only a difference would settle the line.
    pub margin: f64,
    /// Level of the claim that would settle it: .05, or the share of it that a line of a family has.
    pub level: f64,
}

impl Unsettled {
    /// Total pairs of a new study after which the line would probably (80 %) not be `inconclusive`: its interval excludes 0 or lies inside the
    /// margin. `None` if more than 1,000 pairs would be needed.
    ///
    /// The estimate is not taken for the truth. A line is `inconclusive` because its estimate fell between the two, so it usually lies nearer to where
    /// nothing is ever settled than the truth does; the truth is taken as Student's t around the estimate instead.
    pub fn pairs_to_settle(&self, flips: Flips) -> Option<u32> {
        if !(self.mean.is_finite() && self.sd.is_finite()) || self.pairs < 2 {
            return None;
        }
        smallest(flips, |n| self.settles(flips, n) >= 0.8)
    }

    /// Probability that a new study of `n` pairs settles the line.
    fn settles(&self, flips: Flips, n: u32) -> f64 {
        let (differs, fits) = (half_width(flips, n, self.level), half_width(flips, n, 0.10));
        // An estimate of size `beyond` or more excludes 0; one of size `inside` or less lies inside the margin.
        let (beyond, inside) = (self.sd * differs, self.margin - self.sd * fits);
        if inside >= beyond || self.sd == 0.0 {
            return 1.0;
        }
        let error = self.sd * (1.0 / f64::from(n) + 1.0 / f64::from(self.pairs)).sqrt();
        let above = |x: f64| special::t_tail((x - self.mean) / error, degrees(flips, self.pairs).max(1.0));
        let differs = above(beyond) + 1.0 - above(-beyond);
        differs + if inside > 0.0 { above(-inside) - above(inside) } else { 0.0 }
    }
}

/// Sizes from which on more pairs are always better; below, the attainable levels rise and fall.
const EVEN_STEPS: u32 = 20;

/// The smallest balanced size for which `enough` holds, by bisection: if a large size is enough, all larger ones are.
fn smallest(flips: Flips, enough: impl Fn(u32) -> bool) -> Option<u32> {
    let step = step(flips);
    let sizes = || (balanced(flips, SMALLEST_DESIGN)..=LARGEST_DESIGN).step_by(step as usize);
    if let Some(small) = sizes().take_while(|n| *n <= EVEN_STEPS.max(2 * step)).find(|&n| enough(n)) {
        return Some(small);
    }
    let sizes: Vec<u32> = sizes().skip_while(|n| *n <= EVEN_STEPS.max(2 * step)).collect();
    if !sizes.last().is_some_and(|last| enough(*last)) {
        return None;
    }
    sizes.get(sizes.partition_point(|&n| !enough(n))).copied()
}

/// The smallest probability of a mode of boots that `pairs` pairs meet with 95 % probability, 1 − .05^(1/N): no interval knows a rarer one that it has
/// not met.
pub fn rarest_met_mode(pairs: u32) -> f64 {
    1.0 - 0.05_f64.powf(1.0 / f64::from(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Flips; 2] = [Flips::Balanced, Flips::Full];

    #[test]
    fn smallest_designs() {
        for (primaries, balanced, full) in [
            (0, 8, 8),
            (1, 8, 8),
            (2, 10, 8),
            (6, 10, 8),
            (7, 12, 10),
            (11, 12, 10),
            (23, 12, 10),
            (24, 14, 10),
            (26, 14, 12),
            (85, 14, 12),
        ] {
            assert_eq!(BOTH.map(|flips| smallest_pairs(flips, primaries)), [balanced, full], "{primaries} primaries");
        }
        // Each machine has as many pairs of either order, and all together enough exchanges.
        for (machines, one, six) in [(2, 12, 12), (3, 12, 18), (4, 16, 16), (5, 20, 20), (6, 12, 24), (8, 16, 16)] {
            let flips = Flips::Blocks(machines);
            assert_eq!([smallest_pairs(flips, 1), smallest_pairs(flips, 6)], [one, six], "{machines} machines");
        }
        assert_eq!(smallest_attainable_p(Flips::Blocks(3), 12), 2.0 / 216.0);
        assert_eq!(smallest_attainable_p(Flips::Balanced, 8), 2.0 / 70.0);
        assert_eq!(smallest_attainable_p(Flips::Balanced, 9), 2.0 / 126.0);
        assert_eq!(smallest_attainable_p(Flips::Full, 9), 2.0 / 512.0);
        assert_eq!(smallest_attainable_p(Flips::Balanced, 0), 1.0);
    }

    #[test]
    fn fewest_builds() {
        for (primaries, balanced, full) in [(1, 8, 6), (2, 10, 7), (3, 10, 7), (6, 10, 8), (11, 12, 9)] {
            assert_eq!(BOTH.map(|flips| smallest_builds(flips, primaries)), [balanced, full], "{primaries} primaries");
        }
        let factors: Vec<f64> = (5..=9).map(|builds| mde_of_builds(Flips::Full, builds, 1.0)).collect();
        assert!(factors[0].is_infinite() && factors[1..].is_sorted_by(|x, y| x > y), "{factors:?}");
        assert_eq!((factors[3], factors[4]), (mde(Flips::Full, 8, 1.0), mde(Flips::Full, 9, 1.0)));
        assert!(mde_of_builds(Flips::Balanced, 6, 1.0).is_infinite());
        // All six on one side: the effect of which that has a probability of 80 %.
        assert!((factors[1] - 1.7926).abs() < 2e-3);
    }

    #[test]
    fn smallest_visible_effect() {
        assert_eq!(mde(Flips::Full, 7, 1.0), f64::INFINITY);
        assert!((mde(Flips::Balanced, 12, 0.02) - 0.01802).abs() < 1e-12);
        for flips in BOTH {
            // More pairs detect more, and there is no jump where the table ends.
            for pairs in 8..400 {
                let (now, next) = (mde(flips, pairs, 1.0), mde(flips, pairs + 1, 1.0));
                assert!(next < now * 1.005 && next > now * 0.78, "{pairs} pairs: {now}, then {next}");
            }
            // In the limit z(.975) + z(.8) = 2.8016 standard errors.
            assert!((mde(flips, 1_000, 1.0) * 1_000.0_f64.sqrt() - 2.8016).abs() < 0.01);
        }
    }

    #[test]
    fn machines_cost_some_power_and_need_whole_rounds() {
        for (machines, pairs) in [(2, 12), (3, 12), (4, 16), (6, 12), (6, 24), (8, 16), (8, 32)] {
            let several = mde(Flips::Blocks(machines), pairs, 1.0) / mde(Flips::Balanced, pairs, 1.0);
            assert!((0.99..1.5).contains(&several), "{machines} machines, {pairs} pairs: {several}");
        }
        // Four pairs on each of two have no interval.
        assert!(mde(Flips::Blocks(2), 8, 1.0).is_infinite());
        assert_eq!(pairs_for_same(Flips::Blocks(3), 1.0, 0.7), Some(24));
        assert_eq!((balanced(Flips::Blocks(5), 12), balanced(Flips::Full, 11)), (20, 12));
    }

    #[test]
    fn pairs_for_a_margin() {
        for (margin, pairs) in [(3.0, 8), (1.5, 8), (1.0, 12), (0.75, 18), (0.5, 36)] {
            assert_eq!(pairs_for_same(Flips::Balanced, 1.0, margin), Some(pairs), "margin {margin}");
        }
        assert_eq!(pairs_for_same(Flips::Full, 1.0, 1.2), Some(8));
        for flips in BOTH {
            assert_eq!(pairs_for_same(flips, 0.0, 0.02), Some(8));
            assert_eq!(pairs_for_same(flips, 1.0, 0.0), None);
            assert_eq!(pairs_for_same(flips, 1.0, 0.001), None);
            assert_eq!(pairs_for_same(flips, f64::NAN, 0.1), None);
        }
    }

    #[test]
    fn pairs_for_a_precision() {
        for (width, pairs) in [(3.0, 8), (0.75, 10), (0.5, 18), (0.25, 64)] {
            assert_eq!(pairs_for_half_width(Flips::Balanced, 1.0, width), Some(pairs), "{width}");
        }
        for flips in BOTH {
            assert_eq!(pairs_for_half_width(flips, 0.0, 0.01), Some(8));
            assert_eq!(pairs_for_half_width(flips, 1.0, 0.0), None);
            assert_eq!(pairs_for_half_width(flips, 1.0, 0.01), None);
        }
    }

    /// The expected width is that of real intervals, of normal noise.
    #[test]
    fn intervals_are_as_wide_as_expected() {
        let mut state = 7_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        for flips in BOTH {
            for pairs in [8, 10, 12, 16] {
                let mean = (0..200).map(|_| {
                    let mut draw = || (0..pairs / 2).map(|_| normal()).collect::<Vec<f64>>();
                    let (ab, ba) = (draw(), draw());
                    let (low, high) = crate::Flip::new(flips, &ab, &ba, 1).interval(0.05).unwrap();
                    (high - low) / 2.0
                });
                let mean = mean.sum::<f64>() / 200.0;
                let expected = half_width(flips, pairs, 0.05);
                assert!((mean / expected - 1.0).abs() < 0.08, "{flips:?} {pairs}: {mean} for {expected}");
            }
        }
    }

    #[test]
    fn pairs_to_settle_a_line() {
        let line = Unsettled { mean: 0.5, pairs: 8, sd: 1.0, margin: 1.0, level: 0.05 };
        for flips in BOTH {
            let needed = |line: Unsettled| line.pairs_to_settle(flips);
            // Half way between 0 and the margin: 12 pairs settle it either way.
            assert_eq!(needed(line), Some(12));
            assert!(needed(Unsettled { margin: 0.6, ..line }).is_some_and(|n| n > 20));
            // A share of the level needs more.
            let claim = Unsettled { mean: 1.2, margin: 0.0, ..line };
            assert!(needed(Unsettled { level: 0.05 / 20.0, ..claim }) > needed(claim));
            // With hardly any margin, only a difference settles it, if there is one.
            assert!(needed(Unsettled { mean: 0.0, margin: 0.001, ..line }).is_some_and(|n| n > 200));
            assert_eq!(needed(Unsettled { mean: 0.0, margin: 0.001, pairs: 200, ..line }), None);
            assert_eq!(needed(Unsettled { mean: f64::NAN, ..line }), None);
        }
    }

    #[test]
    fn rare_modes() {
        assert!((rarest_met_mode(10) - 0.2589).abs() < 1e-4 && (rarest_met_mode(12) - 0.2209).abs() < 1e-4);
    }

    #[test]
    fn standard_deviation() {
        assert_eq!(sd(&[1.0, 3.0]), 2.0_f64.sqrt());
        assert_eq!((sd(&[]), sd(&[5.0])), (0.0, 0.0));
    }
}
