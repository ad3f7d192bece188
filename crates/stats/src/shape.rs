//! A warning for intervals that may be too narrow: B changed the shape of the distribution, not only its location.
//!
//! The flip interval is exact if B only shifts the distribution. If only B has a long tail, a nominal 95 % interval covers less (`cargo xtask sim`:
//! 89–93 %). Skewness of the differences is hard to see in ten pairs, but it is easy to see that one arm varies more than the other. Invariant: the
//! flag never changes a verdict, it only warns.

use crate::flip::Flip;
use crate::location;

/// Level of the test behind the flag.
pub const FLAG_LEVEL: f64 = 0.05;

/// The factor by which an interval is widened to cover about 95 % even if only B has a long tail (`cargo xtask sim` checks it).
pub const WIDER: f64 = 1.3;

/// The interval around `mean`, [`WIDER`] times as wide.
pub fn widened((low, high): (f64, f64), mean: f64) -> (f64, f64) {
    (mean - WIDER * (mean - low), mean + WIDER * (high - mean))
}

/// Two-sided p of "both arms vary equally", from (ln A, ln B) of the pairs run A-then-B and B-then-A.
///
/// The flip test of `(D − its median) · (S − its median)` with D = ln B − ln A, S = ln A + ln B and medians by order: B varies more if large
/// differences go with large sums. Exchanging the arms of a pair reverses the sign, and drift of the machine only moves S. Medians are used because
/// one outlier in a mean would shift all other pairs to one side. `flip` makes the flip test of the values of two orders.
pub fn spread_p(ab: &[(f64, f64)], ba: &[(f64, f64)], flip: impl FnOnce(&[f64], &[f64]) -> Flip) -> f64 {
    flip(&products(ab), &products(ba)).p(0.0)
}

fn products(pairs: &[(f64, f64)]) -> Vec<f64> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    let sums: Vec<f64> = pairs.iter().map(|(a, b)| a + b).collect();
    let (difference, sum) = (location::median(&differences), location::median(&sums));
    differences.iter().zip(&sums).map(|(d, s)| (d - difference) * (s - sum)).collect()
}

/// Whether to warn: the spreads of the arms differ at [`FLAG_LEVEL`]. Same arguments as [`spread_p`].
pub fn flagged(ab: &[(f64, f64)], ba: &[(f64, f64)], flip: impl FnOnce(&[f64], &[f64]) -> Flip) -> bool {
    spread_p(ab, ba, flip) <= FLAG_LEVEL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flips;

    #[test]
    fn an_arm_that_varies_more_is_flagged_and_a_wandering_machine_is_not() {
        let wobble = [0.01, -0.02, 0.03, -0.01, 0.02, -0.03];
        let wild: Vec<(f64, f64)> = wobble.iter().map(|x| (x * 0.1, x * 4.0)).collect();
        let flip = |ab: &[f64], ba: &[f64]| Flip::new(Flips::Balanced, ab, ba, 0);
        assert!(flagged(&wild, &wild, flip));
        let calm: Vec<(f64, f64)> = wobble.iter().map(|x| (*x, -x)).collect();
        assert!(!flagged(&calm, &calm, flip));
        let wandering: Vec<(f64, f64)> = wobble.iter().enumerate().map(|(i, x)| (i as f64 + x, i as f64 - x)).collect();
        assert!(!flagged(&wandering, &wandering, flip));
    }
}
