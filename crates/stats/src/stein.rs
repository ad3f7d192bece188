//! Stein's two-stage procedure: an interval of a requested width with its nominal coverage.
//!
//! A first stage estimates the noise, this determines the size of the second stage, and the interval uses the first stage's noise and the mean of all
//! pairs (Stein 1945). Invariant: the size depends only on the first stage's *spread*, never on its mean, so stopping cannot become a search for
//! significance.

use crate::flip::{self, Block};
use crate::special;

/// The first stage, reduced to its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stein {
    pairs: u32,
    sd: f64,
    degrees: u32,
}

impl Stein {
    /// `ab`, `ba`: D of the first stage's pairs by order, at least two pairs of each. `None` for fewer.
    ///
    /// The spread is taken around the mean of each order, so that a constant effect of running second does not count as noise.
    pub fn new(ab: &[f64], ba: &[f64]) -> Option<Stein> {
        if ab.len() < 2 || ba.len() < 2 {
            return None;
        }
        let pairs = (ab.len() + ba.len()) as u32;
        Some(Stein { pairs, sd: flip::within_order_sd(ab, ba), degrees: pairs - 2 })
    }

    /// Total pairs of both stages, an even number, for an interval of `± half_width` (log scale) with confidence `1 − alpha`.
    ///
    /// # Panics
    /// `half_width` is not positive.
    pub fn total_pairs(&self, half_width: f64, alpha: f64) -> u32 {
        assert!(half_width > 0.0, "The half width must be positive, not {half_width}");
        let needed = (self.sd * self.t(alpha) / half_width).powi(2).ceil();
        let total = (needed.min(f64::from(u32::MAX - 1)) as u32).max(self.pairs);
        total.next_multiple_of(2)
    }

    /// The interval from D of all pairs of both stages.
    pub fn interval(&self, ab: &[f64], ba: &[f64], alpha: f64) -> (f64, f64) {
        let mean = Block::new(ab, ba).mean();
        // Variance of the balanced mean; s²/N if the orders are balanced.
        let share = (1.0 / ab.len() as f64 + 1.0 / ba.len() as f64) / 4.0;
        let half = self.t(alpha) * self.sd * share.sqrt();
        (mean - half, mean + half)
    }

    fn t(&self, alpha: f64) -> f64 {
        special::t_quantile(1.0 - alpha / 2.0, f64::from(self.degrees))
    }
}
