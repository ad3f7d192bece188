//! When the next piece of work begins.
//!
//! Invariant: intended starts depend only on the seed, the worker's number and the rate, never on the speed of the work.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

use bigiron_workload::units::Pace;

/// Arrivals are drawn from separate streams: another rate does not change the transactions.
const ARRIVALS: u64 = 1 << 32;

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// One worker's intended starts in one stretch of the run.
pub enum Starts {
    /// After the previous piece is done, plus a think time.
    Closed { think: Duration },
    /// At these times, whether or not the previous piece is done.
    Open(Box<Arrivals>),
}

/// An endless sequence of intended starts, in nanoseconds of the monotonic clock.
pub struct Arrivals {
    /// The last one.
    at: f64,
    /// Mean nanoseconds between two.
    interval: f64,
    /// For a Poisson process; otherwise evenly spaced.
    random: Option<ChaCha8Rng>,
}

impl Starts {
    /// Worker `worker` of all is number `number` of `count` that share the pace; `stretch` begins at `start`.
    pub fn new(pace: Pace, seed: u64, worker: u64, (number, count): (usize, usize), stretch: u64, start: u64) -> Self {
        match pace {
            Pace::Closed { think } => Self::Closed { think },
            Pace::Open { per_second, poisson } => {
                let interval = 1e9 * count as f64 / per_second;
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                random.set_stream(ARRIVALS * (stretch + 1) + worker);
                // Evenly spaced over the class as a whole: each worker begins a fraction of an interval later than the previous
                // one.
                let offset = if poisson { 0.0 } else { interval * (number as f64 / count as f64 - 1.0) };
                Self::Open(Box::new(Arrivals {
                    at: start as f64 + offset,
                    interval,
                    random: poisson.then_some(random),
                }))
            }
        }
    }
}

impl Arrivals {
    /// The next intended start.
    pub fn take(&mut self) -> u64 {
        self.at += match &mut self.random {
            // Exponential by inversion; never the logarithm of 0.
            Some(random) => -self.interval * (((random.next_u64() >> 11) as f64 + 0.5) * 2f64.powi(-53)).ln(),
            None => self.interval,
        };
        self.at as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(poisson: bool, number: usize, stretch: u64) -> Vec<u64> {
        let pace = Pace::Open { per_second: 4_000.0, poisson };
        let Starts::Open(mut arrivals) = Starts::new(pace, 1, number as u64, (number, 4), stretch, 1_000_000) else {
            unreachable!()
        };
        (0..20_000).map(|_| arrivals.take()).collect()
    }

    #[test]
    fn even_arrivals_of_a_class_follow_each_other_evenly() {
        let mut all: Vec<_> = (0..4).flat_map(|n| arrivals(false, n, 0)).collect();
        all.sort_unstable();
        assert_eq!(all[0], 1_000_000);
        assert!(all.windows(2).all(|w| w[1] - w[0] == 250_000));
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_and_spread_as_they_should() {
        let all = arrivals(true, 2, 0);
        let gaps: Vec<_> = all.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // One per millisecond and worker; five standard errors. An exponential distribution's deviation equals its mean.
        assert!((mean / 1e6 - 1.0).abs() < 5.0 / (gaps.len() as f64).sqrt(), "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.05, "{deviation}");
        assert_eq!(all, arrivals(true, 2, 0));
        assert_ne!(all, arrivals(true, 1, 0));
        assert_ne!(all, arrivals(true, 2, 1));
    }
}
