//! When the model runs: a part of the time, because modelling all takes too long. Time is measured in arrivals, the times at which control arrives at
//! straight-line code (five or six instructions on average). Instructions of blocks would not do: QEMU divides code into blocks by the host's time
//! ([`Straight`](crate::straight::Straight)).
//!
//! Systematic sampling (Wunderlich, Wenisch, Falsafi, Hoe: "SMARTS", ISCA 2003), with caches that are warmed for a while before each sample.
//!
//! Invariant: samples depend on the numbers of arrivals in windows alone.

/// Arrivals from one sample's beginning to the next one's, on average, and of these, how many only warm the caches, and how many are modelled.
const PERIOD: u64 = 224 << 10;
const WARMING: u64 = 12 << 10;
const MODELLED: u64 = 36 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Off,
    Warming,
    Counting,
}

/// Counts arrivals.
pub(crate) struct Sampler {
    at: u64,
    /// From this sample's beginning to the next one's: drawn, because a program may have the period of the samples.
    period: u64,
    random: u64,
    /// Since the last cut, in windows: all, and those in samples.
    total: u64,
    counted: u64,
}

impl Sampler {
    pub(crate) const fn new() -> Self {
        Self { at: 0, period: PERIOD, random: 1, total: 0, counted: 0 }
    }

    /// A window begins.
    pub(crate) fn begin(&mut self) {
        (self.at, self.period) = (0, PERIOD);
    }

    /// Control arrives at straight-line code; tells what is to be done with it.
    #[inline]
    pub(crate) fn arrival(&mut self, in_window: bool) -> Mode {
        let mode = match self.at {
            at if at < WARMING => Mode::Warming,
            at if at < MODELLED => Mode::Counting,
            _ => Mode::Off,
        };
        self.at += 1;
        if self.at == self.period {
            self.at = 0;
            // Knuth's MMIX generator.
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.period = PERIOD / 2 + (self.random >> 33) % PERIOD;
        }
        if in_window {
            self.total += 1;
            self.counted += u64::from(mode == Mode::Counting);
        }
        mode
    }

    /// All arrivals in windows since the last cut, and those in samples.
    pub(crate) fn cut(&mut self) -> (u64, u64) {
        (core::mem::take(&mut self.total), core::mem::take(&mut self.counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_window_is_modelled() {
        let mut sampler = Sampler::new();
        let mut run = |arrivals: u64| {
            sampler.begin();
            let mut modes = [0; 3];
            (0..arrivals).for_each(|_| modes[sampler.arrival(true) as usize] += 1);
            let (total, counted) = sampler.cut();
            assert_eq!((total, counted), (arrivals, modes[Mode::Counting as usize]));
            modes
        };
        assert_eq!(run(PERIOD), [PERIOD - MODELLED, WARMING, MODELLED - WARMING]);
        let modes = run(PERIOD * 1000);
        for (mode, share) in [(Mode::Warming, WARMING), (Mode::Counting, MODELLED - WARMING)] {
            let found = modes[mode as usize] as f64 / (PERIOD * 1000) as f64;
            assert!((found * PERIOD as f64 / share as f64 - 1.0).abs() < 0.05, "{mode:?}: {found}");
        }
        // A short window is counted after warming.
        assert_eq!(run(20_000)[Mode::Counting as usize], 20_000 - WARMING);
    }
}
