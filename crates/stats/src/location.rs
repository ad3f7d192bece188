//! Robust location of a sample: medians, Hodges–Lehmann, Theil–Sen; and intervals for counts.
//!
//! Invariant: an empty sample gives NaN, never a number that could be mistaken for a result.

use crate::{power, special};

/// The median; the mean of the two middle values if there is an even number of them.
pub fn median(x: &[f64]) -> f64 {
    let mut x = x.to_vec();
    median_of(&mut x)
}

fn median_of(x: &mut [f64]) -> f64 {
    if x.is_empty() {
        return f64::NAN;
    }
    let (middle, odd) = (x.len() / 2, x.len() % 2 == 1);
    let (below, &mut upper, _) = x.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    lower + (upper - lower) / 2.0
}

/// Hodges–Lehmann: the median of the means of all pairs of values, including each value with itself. A cross-check for a mean: if they are far apart,
/// a few trials determine the result.
pub fn hodges_lehmann(x: &[f64]) -> f64 {
    let mut walsh: Vec<f64> =
        (0..x.len()).flat_map(|i| (i..x.len()).map(move |j| (i, j))).map(|(i, j)| (x[i] + x[j]) / 2.0).collect();
    median_of(&mut walsh)
}

/// Theil–Sen: the median of the slopes between all pairs of values, per step of the index. NaN for fewer than two values.
pub fn theil_sen(y: &[f64]) -> f64 {
    let mut slopes: Vec<f64> = (0..y.len())
        .flat_map(|i| (i + 1..y.len()).map(move |j| (i, j)))
        .map(|(i, j)| (y[j] - y[i]) / (j - i) as f64)
        .collect();
    median_of(&mut slopes)
}

/// Student's interval with confidence `1 − alpha` for the mean, for comparison with the flip interval. NaN for fewer than two values.
pub fn t_interval(x: &[f64], alpha: f64) -> (f64, f64) {
    if x.len() < 2 {
        return (f64::NAN, f64::NAN);
    }
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let half = special::t_quantile(1.0 - alpha / 2.0, n - 1.0) * power::sd(x) / n.sqrt();
    (mean - half, mean + half)
}

/// How far a series of windows moved during the measurement, relative to its mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// |Theil–Sen slope| × length / mean
    pub trend: f64,
    /// |mean of the second half − mean of the first| / mean
    pub halves: f64,
}

impl Drift {
    /// The drift of the windows of one run, in order. NaN for fewer than four windows.
    pub fn of(windows: &[f64]) -> Drift {
        if windows.len() < 4 {
            return Drift { trend: f64::NAN, halves: f64::NAN };
        }
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let all = mean(windows).abs();
        let half = windows.len() / 2;
        let (first, second) = (&windows[..half], &windows[windows.len() - half..]);
        Drift {
            trend: theil_sen(windows).abs() * windows.len() as f64 / all,
            halves: (mean(second) - mean(first)).abs() / all,
        }
    }

    /// More than `limit` (.02 by default in a plan) by either measure.
    pub fn exceeds(&self, limit: f64) -> bool {
        self.trend > limit || self.halves > limit
    }
}

/// Clopper–Pearson: the exact interval with confidence `1 − alpha` for a share observed as `k` of `n`.
///
/// # Panics
/// `k > n`.
pub fn clopper_pearson(k: u64, n: u64, alpha: f64) -> (f64, f64) {
    assert!(k <= n, "{k} of {n} is not a share");
    let (seen, not_seen) = (k as f64, (n - k) as f64);
    let low = if k == 0 { 0.0 } else { special::beta_quantile(alpha / 2.0, seen, not_seen + 1.0) };
    let high = if k == n { 1.0 } else { special::beta_quantile(1.0 - alpha / 2.0, seen + 1.0, not_seen) };
    (low, high)
}

/// Two-sided sign test: the p of `positive` against `negative` under a fair coin. Findings that all point in one direction are typical of systematic
/// false positives.
pub fn sign_test(positive: u64, negative: u64) -> f64 {
    let n = positive + negative;
    let fewer = positive.min(negative);
    // Terms of the binomial as logarithms, because n may be in the thousands.
    let ln_half = 0.5_f64.ln() * n as f64;
    let mut ln_choose = 0.0_f64;
    let mut tail = ln_half.exp();
    for i in 1..=fewer {
        ln_choose += ((n - i + 1) as f64).ln() - (i as f64).ln();
        tail += (ln_choose + ln_half).exp();
    }
    (2.0 * tail).min(1.0)
}

/// Fisher's exact test, one-sided: the p of "no more often than the other", for `(k, n)` = `k` of `n` against another. Small is evidence that the first
/// happens more often. 1 if either has no trials.
///
/// # Panics
/// `k > n`.
pub fn more_often_p((k, n): (u32, u32), (other, of): (u32, u32)) -> f64 {
    assert!(k <= n && other <= of, "{k} of {n} and {other} of {of} are not shares");
    // Given the total, the first count is hypergeometric. Sums of logarithms, because n may be in the thousands.
    let ln_choose = |n: u32, k: u32| (1..=k).map(|i| (f64::from(n - k + i) / f64::from(i)).ln()).sum::<f64>();
    let total = k + other;
    let ln_all = ln_choose(n + of, total);
    let at = |x: u32| (ln_choose(n, x) + ln_choose(of, total - x) - ln_all).exp();
    let possible = |x: &u32| total - *x <= of;
    (k..=n.min(total)).filter(possible).map(at).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_sample_has_no_location() {
        assert!(median(&[]).is_nan() && hodges_lehmann(&[]).is_nan() && theil_sen(&[1.0]).is_nan());
    }

    #[test]
    fn one_outlier_moves_little() {
        let x = [1.0, 1.1, 0.9, 1.0, 50.0];
        assert!(hodges_lehmann(&x) < 1.2);
        assert_eq!(theil_sen(&[0.0, 1.0, 2.0, 30.0, 4.0]), 1.0);
    }

    #[test]
    fn fishers_exact_test() {
        // Fisher's own tea (1935): three of four against one of four, p = 17/70.
        assert!((more_often_p((3, 4), (1, 4)) - 17.0 / 70.0).abs() < 1e-12);
        // C(12,5)/C(24,5), and all 12 against one: 13/C(24,13).
        assert!((more_often_p((5, 12), (0, 12)) - 792.0 / 42_504.0).abs() < 1e-12);
        assert!((more_often_p((12, 12), (1, 12)) - 12.0 / 2_496_144.0).abs() < 1e-9);
        assert_eq!((more_often_p((0, 12), (0, 12)), more_often_p((0, 0), (3, 12))), (1.0, 1.0));
        assert!((more_often_p((1, 12), (1, 12)) - (144.0 + 66.0) / 276.0).abs() < 1e-12);
        assert!(more_often_p((600, 1_000), (500, 1_000)) < 1e-5);
    }

    #[test]
    fn drift_by_trend_and_by_halves() {
        let steady = Drift::of(&[100.0, 101.0, 99.0, 100.0, 101.0, 99.0]);
        assert!(!steady.exceeds(0.02), "{steady:?}");
        let rising: Vec<f64> = (0..60).map(|i| 100.0 + 0.1 * f64::from(i)).collect();
        let drift = Drift::of(&rising);
        assert!(
            drift.exceeds(0.02)
                && (drift.trend - 6.0 / 102.95).abs() < 1e-9
                && (drift.halves - 3.0 / 102.95).abs() < 1e-9
        );
        assert!(!Drift::of(&[1.0]).exceeds(0.02));
    }
}
