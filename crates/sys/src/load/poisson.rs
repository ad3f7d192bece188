//! The intended starts of the requests of an open loop.
//!
//! Invariant: they depend only on the random numbers and the rate, never on the speed of responses.

use super::rng::SplitMix64;

/// A source of random numbers of 64 bits.
pub trait RandomBits {
    fn bits(&mut self) -> u64;
}

impl RandomBits for SplitMix64 {
    fn bits(&mut self) -> u64 {
        self.next()
    }
}

/// An endless Poisson process, in nanoseconds.
pub struct Poisson<R> {
    random: R,
    /// Mean nanoseconds between two.
    interval: f64,
    next: f64,
}

impl<R: RandomBits> Poisson<R> {
    /// One of `threads` shares of `rate` arrivals per second, from `start` on, with random numbers of its own. Poisson processes add up to one.
    pub fn new(random: R, threads: u32, rate: f64, start: u64) -> Self {
        let mut process = Self { random, interval: 1e9 * f64::from(threads) / rate, next: start as f64 };
        process.advance();
        process
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
        let unit = ((self.random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        self.next -= self.interval * unit.ln();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_the_rate_and_spread_as_they_should() {
        let of = |thread| {
            let mut arrivals =
                Poisson::new(SplitMix64::stream(1, &format!("arrivals {thread}")), 4, 4_000.0, 1_000_000);
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
