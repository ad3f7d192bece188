//! A warning for intervals that are too narrow: pairs whose differences are skewed.
//!
//! The flip interval is exact where B shifts the distribution. Where B changes its shape (a long tail that only B has), the
//! differences are skewed and a nominal 95 % interval covers less. Invariant: the flag never changes a verdict, it only warns.

use crate::special;

/// Level at which skewness is flagged.
pub const FLAG_LEVEL: f64 = 0.05;

/// Sample skewness `m3 / m2^1.5`. NaN for a sample without spread.
pub fn skewness(d: &[f64]) -> f64 {
    let n = d.len() as f64;
    let mean = d.iter().sum::<f64>() / n;
    let moment = |k: i32| d.iter().map(|x| (x - mean).powi(k)).sum::<f64>() / n;
    moment(3) / moment(2).powf(1.5)
}

/// Two-sided p of "the sample comes from a symmetric (normal) distribution", by its skewness (D'Agostino 1970). `None` for
/// fewer than 8 values, for which the approximation is not made, or a sample without spread.
pub fn skewness_p(d: &[f64]) -> Option<f64> {
    let g = skewness(d);
    if d.len() < 8 || !g.is_finite() {
        return None;
    }
    let n = d.len() as f64;
    let y = g * ((n + 1.0) * (n + 3.0) / (6.0 * (n - 2.0))).sqrt();
    let beta2 =
        3.0 * (n * n + 27.0 * n - 70.0) * (n + 1.0) * (n + 3.0) / ((n - 2.0) * (n + 5.0) * (n + 7.0) * (n + 9.0));
    let w2 = (2.0 * (beta2 - 1.0)).sqrt() - 1.0;
    let delta = 1.0 / (0.5 * w2.ln()).sqrt();
    let alpha = (2.0 / (w2 - 1.0)).sqrt();
    Some(special::normal_two_sided_p(delta * (y / alpha).asinh()))
}

/// Whether the differences are so skewed that the interval may be too narrow.
pub fn flagged(d: &[f64]) -> bool {
    skewness_p(d).is_some_and(|p| p <= FLAG_LEVEL)
}
