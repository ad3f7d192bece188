//! A warning for intervals that may be too narrow: B changed the shape of the distribution, not only its place.
//!
//! The flip interval is exact where B shifts the distribution. Where only B has a long tail, a nominal 95 % interval covers less
//! (`cargo xtask sim`: 89–93 %). That the differences are skewed is hard to see in ten pairs; that one arm varies more than the
//! other is not. Invariant: the flag never changes a verdict, it only warns.

use crate::Flip;

/// Level of the test behind the flag.
pub const FLAG_LEVEL: f64 = 0.05;

/// Two-sided p of "both arms vary alike", from (ln A, ln B) of the pairs run A-then-B and B-then-A.
///
/// The flip test of the differences of squared deviations, each taken from the mean of its arm and order: exchanging the arms of a pair
/// turns the sign of its difference, and a wandering machine moves both arms. `seed` as for [`Flip::new`].
pub fn spread_p(ab: &[(f64, f64)], ba: &[(f64, f64)], seed: u64) -> f64 {
    Flip::new(&squared_differences(ab), &squared_differences(ba), seed).p(0.0)
}

fn squared_differences(pairs: &[(f64, f64)]) -> Vec<f64> {
    let n = pairs.len() as f64;
    let mean_a = pairs.iter().map(|pair| pair.0).sum::<f64>() / n;
    let mean_b = pairs.iter().map(|pair| pair.1).sum::<f64>() / n;
    pairs.iter().map(|(a, b)| (b - mean_b).powi(2) - (a - mean_a).powi(2)).collect()
}

/// Whether to warn: the spreads of the arms differ at [`FLAG_LEVEL`]. Arguments as for [`spread_p`].
pub fn flagged(ab: &[(f64, f64)], ba: &[(f64, f64)], seed: u64) -> bool {
    spread_p(ab, ba, seed) <= FLAG_LEVEL
}
