//! The intended starts of the requests of an open loop, and of the first requests of a closed one.
//!
//! Invariant: these times depend only on the seed and the rate or pace, never on the speed of responses.

use crate::config::{Config, Pace};
use crate::random::Rng;
use crate::terminal::{KEYING_S, THINK_S};

use bigiron_sys::load::poisson::{Poisson, RandomBits};

/// Separate streams, below those of [`crate::random::stream`]: another rate does not change the requests.
const ARRIVALS: u64 = 1 << 40;
const FIRST: u64 = 2 << 40;

impl RandomBits for Rng {
    fn bits(&mut self) -> u64 {
        Rng::bits(self)
    }
}

/// The intended starts in an open loop.
pub type Arrivals = Poisson<Rng>;

/// The share of driver thread `thread` of `threads` in `rate` arrivals per second, from `start` on.
pub fn arrivals(seed: u64, (thread, threads): (u32, u32), rate: f64, start: u64) -> Arrivals {
    Poisson::new(Rng::new(seed, ARRIVALS | u64::from(thread)), threads, rate, start)
}

/// Mean nanoseconds of keying and thinking per transaction; 0 without pace.
pub fn cycle(config: &Config) -> f64 {
    let Pace::Closed { keying, think } = config.pace else { return 0.0 };
    let seconds = |kind: usize| KEYING_S[kind] * keying + THINK_S[kind] * think;
    (0..config.mix.len()).map(|kind| f64::from(config.mix[kind]) / 1000.0 * seconds(kind) * 1e9).sum()
}

/// When, counted from the start, terminal `number` issues its first request: anywhere in a mean cycle, as if it had been at work
/// for a long time. All at once would be an unrealistic load.
pub fn first(config: &Config, seed: u64, number: u32) -> u64 {
    match cycle(config) {
        0.0 => 0,
        cycle => ((1.0 - Rng::new(seed, FIRST | u64::from(number)).unit()) * cycle) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::fixture;
    use bigiron_model::clock::Clock;

    #[test]
    fn a_mean_cycle_is_the_mixs() {
        let config = |settings: &[(&str, &str)]| fixture::job(settings).config(Clock::Wall, 2);
        // .45 × 30 + .43 × 15 + .04 × (12 + 7 + 7) = 20.99 s.
        assert_eq!((cycle(&config(&[("think", "spec"), ("keying", "spec")])) / 1e6).round(), 20_990.0);
        assert_eq!(cycle(&config(&[])), 0.0);
        let paced = config(&[("think", "0.1"), ("terminals", "1000")]);
        let first: Vec<_> = (0..1000).map(|n| first(&paced, 7, n) as f64 / cycle(&paced)).collect();
        assert!(first.iter().all(|f| (0.0..1.0).contains(f)));
        // Uniform: mean 1/2, standard error of a thousand 0.009.
        assert!((first.iter().sum::<f64>() / 1000.0 - 0.5).abs() < 0.05);
    }
}
