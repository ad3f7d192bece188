//! When the model runs: a part of the instructions, because modelling all takes too long.
//!
//! Systematic sampling (Wunderlich, Wenisch, Falsafi, Hoe: "SMARTS", ISCA 2003), with caches that are warmed for a while before each sample.
//!
//! Invariant: samples depend on the numbers of instructions in windows alone.

/// Instructions from one sample's beginning to the next one's, on average, and of these, how many only warm the caches, and how many are modelled.
const PERIOD: u64 = 1 << 20;
const WARMING: u64 = 1 << 16;
const MODELLED: u64 = 3 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Off,
    Warming,
    Counting,
}

/// Counts instructions.
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

    /// A block of `instructions` begins; tells what is to be done with it.
    #[inline]
    pub(crate) fn block(&mut self, instructions: u64, in_window: bool) -> Mode {
        let mode = match self.at {
            at if at < WARMING => Mode::Warming,
            at if at < MODELLED => Mode::Counting,
            _ => Mode::Off,
        };
        self.at += instructions;
        if self.at >= self.period {
            self.at -= self.period;
            // Knuth's MMIX generator.
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.period = PERIOD / 2 + (self.random >> 33) % PERIOD;
        }
        if in_window {
            self.total += instructions;
            if mode == Mode::Counting {
                self.counted += instructions;
            }
        }
        mode
    }

    /// All instructions of the windows since the last cut, and those in samples.
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
        let mut run = |instructions: u64| {
            sampler.begin();
            let mut modes = [0; 3];
            (0..instructions / 8).for_each(|_| modes[sampler.block(8, true) as usize] += 8);
            let (total, counted) = sampler.cut();
            assert_eq!((total, counted), (instructions, modes[Mode::Counting as usize]));
            modes
        };
        assert_eq!(run(PERIOD), [PERIOD - MODELLED, WARMING, MODELLED - WARMING]);
        let modes = run(PERIOD * 1000);
        for (mode, share) in [(Mode::Warming, WARMING), (Mode::Counting, MODELLED - WARMING)] {
            let found = modes[mode as usize] as f64 / (PERIOD * 1000) as f64;
            assert!((found * PERIOD as f64 / share as f64 - 1.0).abs() < 0.05, "{mode:?}: {found}");
        }
        // A short window is counted after warming.
        assert_eq!(run(100_000)[Mode::Counting as usize], 100_000 - WARMING);
    }
}
