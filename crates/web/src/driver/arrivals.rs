//! The intended starts of the requests of an open loop.
//!
//! Invariant: they depend only on the seed and the rate, never on the speed of responses.

use bigiron_sys::load::rng::SplitMix64;

/// An endless Poisson process, in nanoseconds.
pub struct Arrivals {
    rng: SplitMix64,
    /// Mean nanoseconds between two.
    interval: f64,
    next: f64,
}

impl Arrivals {
    /// The share of `thread` of `threads` in `rate` arrivals per second, from `start` on. Poisson processes add up to one.
    pub fn new(seed: u64, (thread, threads): (u32, u32), rate: f64, start: u64) -> Self {
        let rng = SplitMix64::stream(seed, &format!("arrivals {thread}"));
        let mut arrivals = Self { rng, interval: 1e9 * f64::from(threads) / rate, next: start as f64 };
        arrivals.advance();
        arrivals
    }

    /// The next arrival.
    pub fn next(&self) -> u64 {
        self.next as u64
    }

    /// Returns the next arrival and advances.
    pub fn take(&mut self) -> u64 {
        let at = self.next();
        self.advance();
        at
    }

    /// Exponential by inversion; the argument of the logarithm is above 0.
    fn advance(&mut self) {
        let unit = ((self.rng.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        self.next -= self.interval * unit.ln();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_the_rate_and_spread_as_they_should() {
        let of = |thread| {
            let mut arrivals = Arrivals::new(1, (thread, 4), 4_000.0, 1_000_000);
            (0..20_000).map(|_| arrivals.take()).collect::<Vec<_>>()
        };
        let all = of(2);
        let gaps: Vec<_> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // One per millisecond and thread; five standard errors. An exponential distribution's deviation equals its mean.
        assert!((mean / 1e6 - 1.0).abs() < 5.0 / (gaps.len() as f64).sqrt(), "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.05, "{deviation}");
        assert!(all[0] > 1_000_000);
        assert_eq!(all, of(2));
        assert_ne!(all, of(1));
    }
}
