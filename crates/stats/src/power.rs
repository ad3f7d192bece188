//! The power of a design: the smallest effect that it would detect, and the number of pairs that a question needs.
//!
//! Invariant: sizes are balanced designs of at least [`SMALLEST_DESIGN`] pairs, and stated power is what the flip interval really has at that size,
//! including the steps of its attainable levels; `cargo xtask sim` checks it by simulation.

use crate::special;

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

/// C(N, h), the re-randomisations of a design of `pairs` pairs that is as balanced as possible.
fn rerandomisations(pairs: u32) -> f64 {
    let half = pairs / 2;
    (1..=half).fold(1.0, |c, i| c * f64::from(pairs - half + i) / f64::from(i))
}

/// The smallest two-sided p of a balanced design, 2/C(N, N/2).
pub fn smallest_attainable_p(pairs: u32) -> f64 {
    (2.0 / rerandomisations(pairs)).min(1.0)
}

/// The smallest balanced design, of at least 8 pairs, in which one of `primaries` primary metrics can pass Holm at 5 %.
pub fn smallest_pairs(primaries: usize) -> u32 {
    let level = 0.05 / primaries.max(1) as f64;
    (SMALLEST_DESIGN..).step_by(2).find(|&n| smallest_attainable_p(n) <= level).expect("C(N, N/2) grows without bound")
}

/// The actual two-sided level of the interval with confidence `1 − alpha`: 2K/C(N, h), a step function below `alpha`. 0 if there is no interval.
fn attained_level(pairs: u32, alpha: f64) -> f64 {
    let c = rerandomisations(pairs);
    if c > 1e12 { alpha } else { 2.0 * (alpha / 2.0 * c + 1e-9).floor() / c }
}

/// The smallest effect (same unit as `sd`) whose 95 % interval excludes 0 with 80 % probability, if `sd` is the standard deviation of one pair around
/// the mean of its order. Infinite below 8 pairs: no effect would be detected.
pub fn mde(pairs: usize, sd: f64) -> f64 {
    let pairs = u32::try_from(pairs).unwrap_or(u32::MAX);
    detection_factor(pairs) * sd
}

/// [`mde`] and the margin of [`pairs_for_same`] for a standard deviation of 1, at 8, 9, … 16 pairs, where the steps of the attainable levels are
/// coarse: 80 % quantiles over 600,000 normal samples each, with a standard error below .004 (8 pairs) or .002 (others).
const SMALL_DESIGNS: [(f64, f64); 9] = [
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

fn small_design(pairs: u32) -> Option<(f64, f64)> {
    SMALL_DESIGNS.get(pairs.checked_sub(SMALLEST_DESIGN)? as usize).copied()
}

/// `mde` for a standard deviation of 1. Above the table it is the t test's power at the level that the interval attains, with N − 2 degrees of
/// freedom because the order's effect is estimated too; within half a point of the simulated power.
fn detection_factor(pairs: u32) -> f64 {
    if pairs < SMALLEST_DESIGN {
        return f64::INFINITY;
    }
    if let Some((detection, _)) = small_design(pairs) {
        return detection;
    }
    let level = attained_level(pairs, 0.05);
    let degrees = f64::from(pairs - 2);
    (special::t_quantile(1.0 - level / 2.0, degrees) + special::t_quantile(0.8, degrees)) / f64::from(pairs).sqrt()
}

/// The margin at which a design says `same` with 80 % probability if the truth is 0, for a standard deviation of 1. Above the table the formula is
/// conservative by up to 1.5 points of power.
fn equivalence_factor(pairs: u32) -> f64 {
    if let Some((_, equivalence)) = small_design(pairs) {
        return equivalence;
    }
    let level = attained_level(pairs, 0.10);
    let degrees = f64::from(pairs - 2);
    (special::t_quantile(1.0 - level / 2.0, degrees) + special::t_quantile(0.9, degrees)) / f64::from(pairs).sqrt()
}

/// Total pairs, an even number of at least 8, for 80 % power of `same` if the truth is 0. `None` if the margin is not positive or more than 1,000
/// pairs would be needed.
pub fn pairs_for_same(sd: f64, margin: f64) -> Option<u32> {
    smallest(|n| sd * equivalence_factor(n) <= margin, margin > 0.0 && sd.is_finite())
}

/// Total pairs after which a line would probably (80 %) no longer be `inconclusive`, if the truth is the estimate `mean`: because its interval
/// excludes 0, or because it lies inside the margin. `None` if more than 1,000 pairs would be needed.
pub fn pairs_to_settle(mean: f64, sd: f64, margin: f64) -> Option<u32> {
    let room = margin - mean.abs();
    smallest(
        |n| sd * detection_factor(n) <= mean.abs() || sd * equivalence_factor(n) <= room,
        mean.is_finite() && sd.is_finite(),
    )
}

/// The smallest even size for which `enough` holds, by bisection: if a size is enough, all larger ones are.
fn smallest(enough: impl Fn(u32) -> bool, possible: bool) -> Option<u32> {
    if !possible || !enough(LARGEST_DESIGN) {
        return None;
    }
    // In halves of pairs, so that only even sizes are tested.
    let (mut low, mut high) = (SMALLEST_DESIGN / 2, LARGEST_DESIGN / 2);
    while low < high {
        let middle = low + (high - low) / 2;
        if enough(2 * middle) { high = middle } else { low = middle + 1 }
    }
    Some(2 * low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_designs() {
        for (primaries, pairs) in [(0, 8), (1, 8), (2, 10), (6, 10), (7, 12), (20, 12), (30, 14)] {
            assert_eq!(smallest_pairs(primaries), pairs, "{primaries} primaries");
        }
        assert_eq!(smallest_attainable_p(8), 2.0 / 70.0);
        assert_eq!(smallest_attainable_p(9), 2.0 / 126.0);
        assert_eq!(smallest_attainable_p(0), 1.0);
    }

    #[test]
    fn smallest_visible_effect() {
        assert_eq!(mde(7, 1.0), f64::INFINITY);
        assert!((mde(12, 0.02) - 0.01802).abs() < 1e-12);
        // More pairs detect more, and there is no jump where the table ends.
        for pairs in 8..400 {
            let (now, next) = (mde(pairs, 1.0), mde(pairs + 1, 1.0));
            assert!(next < now * 1.005 && next > now * 0.78, "{pairs} pairs: {now}, then {next}");
        }
        // In the limit z(.975) + z(.8) = 2.8016 standard errors.
        assert!((mde(1_000, 1.0) * 1_000.0_f64.sqrt() - 2.8016).abs() < 0.01);
    }

    #[test]
    fn pairs_for_a_margin() {
        for (margin, pairs) in [(3.0, 8), (1.5, 8), (1.0, 12), (0.75, 18), (0.5, 36)] {
            assert_eq!(pairs_for_same(1.0, margin), Some(pairs), "margin {margin}");
        }
        assert_eq!(pairs_for_same(0.0, 0.02), Some(8));
        assert_eq!(pairs_for_same(1.0, 0.0), None);
        assert_eq!(pairs_for_same(1.0, 0.001), None);
        assert_eq!(pairs_for_same(f64::NAN, 0.1), None);
    }

    #[test]
    fn pairs_to_settle_a_line() {
        // Far from 0: the pairs that the effect needs. At 0: the pairs that `same` needs. On the margin's edge `same` is never reached.
        assert_eq!(pairs_to_settle(0.9, 1.0, 1.0), Some(14));
        assert_eq!(pairs_to_settle(0.0, 1.0, 1.0), pairs_for_same(1.0, 1.0));
        assert_eq!(pairs_to_settle(0.0, 1.0, 0.001), None);
        assert_eq!(pairs_to_settle(f64::NAN, 1.0, 1.0), None);
    }

    #[test]
    fn standard_deviation() {
        assert_eq!(sd(&[1.0, 3.0]), 2.0_f64.sqrt());
        assert_eq!((sd(&[]), sd(&[5.0])), (0.0, 0.0));
    }
}
