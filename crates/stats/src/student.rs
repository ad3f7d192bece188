//! The t interval of a mean, for designs too small for the flip interval.
//!
//! A screening of fewer than 8 pairs has no 95 % flip interval at all. Student's interval exists from two pairs on, but assumes that the log ratios
//! are normal. Under a clock without noise of its own this assumption costs little; avoiding it costs pairs.
//! Invariant: a value θ is outside `interval(alpha)` exactly when `p(θ) <= alpha` (up to rounding).

use crate::power;
use crate::special;

/// The mean of independent normal values, or the difference of two such means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Student {
    mean: f64,
    sd: f64,
    /// Standard error of the mean.
    standard_error: f64,
    degrees: f64,
}

impl Student {
    /// The mean of `values`. If there are fewer than two, or one is not finite, there is no interval and every p is 1.
    pub fn new(values: &[f64]) -> Student {
        let n = values.len() as f64;
        let sd = power::sd(values);
        Student { mean: values.iter().sum::<f64>() / n, sd, standard_error: sd / n.sqrt(), degrees: n - 1.0 }
    }

    /// The difference of means `after − before` of two samples whose spreads may differ (Welch 1947; the degrees of freedom are Satterthwaite's).
    pub fn welch(before: &[f64], after: &[f64]) -> Student {
        let part = |values: &[f64]| power::sd(values).powi(2) / values.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (a, b) = (part(before), part(after));
        let (n, m) = (before.len() as f64, after.len() as f64);
        let degrees = match (a + b).powi(2) / (a * a / (n - 1.0) + b * b / (m - 1.0)) {
            degrees if degrees.is_finite() => degrees,
            // Neither sample varies.
            _ => n + m - 2.0,
        };
        let enough = before.len() > 1 && after.len() > 1;
        Student {
            mean: mean(after) - mean(before),
            sd: (a + b).sqrt(),
            standard_error: (a + b).sqrt(),
            degrees: if enough { degrees } else { 0.0 },
        }
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard deviation of one value; of a difference, its standard error. 0 for fewer than two values.
    pub fn sd(&self) -> f64 {
        self.sd
    }

    /// The interval with confidence `1 − alpha`; `None` without a degree of freedom.
    pub fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        if !self.is_usable() {
            return None;
        }
        let half = special::t_quantile(1.0 - alpha / 2.0, self.degrees) * self.standard_error;
        Some((self.mean - half, self.mean + half))
    }

    /// Two-sided p of "the mean is `theta`".
    pub fn p(&self, theta: f64) -> f64 {
        (2.0 * self.p_greater(theta).min(self.p_less(theta))).min(1.0)
    }

    /// One-sided p of "the mean is `theta` or less": small is evidence that it is greater.
    pub fn p_greater(&self, theta: f64) -> f64 {
        self.tail(self.mean - theta)
    }

    /// One-sided p of "the mean is `theta` or more": small is evidence that it is less.
    pub fn p_less(&self, theta: f64) -> f64 {
        self.tail(theta - self.mean)
    }

    /// The smallest effect whose 95 % interval excludes 0 with about 80 % probability; infinite without a degree of freedom.
    pub fn mde(&self) -> f64 {
        if !self.is_usable() {
            return f64::INFINITY;
        }
        let t = |p| special::t_quantile(p, self.degrees);
        (t(0.975) + t(0.8)) * self.standard_error
    }

    /// P of a mean that exceeds the true one by at least `above`.
    fn tail(&self, above: f64) -> f64 {
        if !self.is_usable() {
            return 1.0;
        }
        if self.standard_error == 0.0 {
            // A value that never varies is known exactly: every other value is rejected.
            return if above > 0.0 { 0.0 } else { 1.0 };
        }
        special::t_tail(above / self.standard_error, self.degrees)
    }

    fn is_usable(&self) -> bool {
        self.degrees >= 1.0 && self.mean.is_finite() && self.standard_error.is_finite()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gosset's own sleep data (1908): extra hours under two drugs, 10 patients; t = 4.0621, p = .002833, interval .70 … 2.46.
    const SLEEP: [f64; 10] = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];

    #[test]
    fn the_classic_example() {
        let t = Student::new(&SLEEP);
        let (low, high) = t.interval(0.05).unwrap();
        assert!((t.mean() - 1.58).abs() < 1e-12);
        assert!((low - 0.700_114).abs() < 1e-5 && (high - 2.459_886).abs() < 1e-5, "{low} {high}");
        assert!((t.p(0.0) - 0.002_833).abs() < 1e-6, "{}", t.p(0.0));
    }

    #[test]
    fn welch_on_unequal_spreads() {
        // The sleep data as two groups: t = −1.8608 on 17.776 degrees, p = .07939, interval −3.3655 … .2055 (R, `t.test(extra ~ group)`).
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let t = Student::welch(&two, &one);
        let (low, high) = t.interval(0.05).unwrap();
        assert!((low + 3.365_483).abs() < 1e-5 && (high - 0.205_483).abs() < 1e-5, "{low} {high}");
        assert!((t.p(0.0) - 0.079_394).abs() < 1e-5, "{}", t.p(0.0));
    }

    #[test]
    fn too_little_says_nothing_and_no_spread_says_all() {
        for values in [&[][..], &[1.0], &[1.0, f64::NAN]] {
            let t = Student::new(values);
            assert_eq!((t.interval(0.05), t.p(0.0), t.mde()), (None, 1.0, f64::INFINITY));
        }
        assert_eq!(Student::welch(&[1.0], &[2.0, 3.0]).interval(0.05), None);
        let sure = Student::new(&[0.25; 4]);
        assert_eq!((sure.interval(0.05), sure.p(0.0), sure.p(0.25)), (Some((0.25, 0.25)), 0.0, 1.0));
        assert_eq!(Student::welch(&[1.0; 3], &[1.5; 3]).interval(0.05), Some((0.5, 0.5)));
    }

    proptest! {
        #[test]
        fn a_value_is_outside_exactly_if_its_p_is_small(
            values in proptest::collection::vec(-1.0..1.0f64, 2..9), theta in -1.0..1.0f64, alpha in 0.001..0.5f64,
        ) {
            let t = Student::new(&values);
            let (low, high) = t.interval(alpha).unwrap();
            let near = (theta - low).abs().min((theta - high).abs()) < 1e-9;
            prop_assert!(near || (theta < low || theta > high) == (t.p(theta) < alpha));
        }
    }
}
