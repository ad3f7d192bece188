//! Sessions of pairs whose truth is known: what boots do when nothing but noise is there, and when B differs.
//!
//! Invariant: the true effect of a session is exactly the effect asked for; the noise of a pair's difference around the mean of its
//! order has standard deviation 1 in every model without a time structure.

use std::f64::consts::FRAC_1_SQRT_2;

use bigiron_stats::order::{self, ChaCha12Rng};
use rand_distr::{Distribution, StandardNormal, StudentT};

/// How boots vary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Noise {
    /// Independent normal boots.
    Normal,
    /// Independent boots with Student's t of 3 degrees of freedom: rare, far outliers.
    HeavyTails,
    /// Three boots in ten land in a mode that is 3 standard deviations of the boots' other noise away.
    Bimodal,
    /// Independent lognormal boots (σ = 1).
    Lognormal,
    /// The machine wanders: autoregressive over slots with coefficient .9.
    Autoregressive,
    /// Normal, and the machine warms up: 6 standard deviations of a boot over the session.
    Trend,
    /// Normal, and 4 standard deviations of a boot from a random slot on.
    Step,
    /// Normal, and the second place of a pair is 2 standard deviations of a pair slower.
    SlotEffect,
    /// A is nearly noiseless, B is lognormal (σ = .8): a tail that only B has.
    SkewOfB,
    /// A is nearly noiseless, B falls into a slow mode in three boots of ten.
    BimodalB,
}

impl Noise {
    /// Models in which B shifts the distribution and leaves its shape.
    pub(super) const SHIFTS: [Noise; 8] = [
        Noise::Normal,
        Noise::HeavyTails,
        Noise::Bimodal,
        Noise::Lognormal,
        Noise::Autoregressive,
        Noise::Trend,
        Noise::Step,
        Noise::SlotEffect,
    ];

    /// Models in which B changes the shape.
    pub(super) const SHAPES: [Noise; 2] = [Noise::SkewOfB, Noise::BimodalB];

    pub(super) fn name(self) -> &'static str {
        match self {
            Noise::Normal => "normal",
            Noise::HeavyTails => "t3",
            Noise::Bimodal => "30 % bimodal",
            Noise::Lognormal => "lognormal",
            Noise::Autoregressive => "AR(.9)",
            Noise::Trend => "trend",
            Noise::Step => "step",
            Noise::SlotEffect => "slot effect",
            Noise::SkewOfB => "B-only skew",
            Noise::BimodalB => "B-only bimodal",
        }
    }

    /// Noise of the `slots` boots of a session, in time order; standard deviation of one boot 1 but for time structure.
    pub(super) fn boots(self, slots: usize, rng: &mut ChaCha12Rng) -> Vec<f64> {
        match self {
            Noise::HeavyTails => {
                let t = StudentT::new(3.0).expect("3 degrees of freedom");
                (0..slots).map(|_| t.sample(rng) / 3.0_f64.sqrt()).collect()
            }
            Noise::Bimodal => (0..slots).map(|_| bimodal(rng)).collect(),
            Noise::Lognormal => (0..slots).map(|_| lognormal(1.0, rng)).collect(),
            Noise::Autoregressive => {
                let mut level = normal(rng);
                let next = |_| {
                    let now = level;
                    level = 0.9 * level + (1.0_f64 - 0.81).sqrt() * normal(rng);
                    now
                };
                (0..slots).map(next).collect()
            }
            Noise::Trend => (0..slots).map(|i| normal(rng) + 6.0 * i as f64 / slots as f64).collect(),
            Noise::Step => {
                let from = (uniform(rng) * slots as f64) as usize;
                (0..slots).map(|i| normal(rng) + if i >= from { 4.0 } else { 0.0 }).collect()
            }
            _ => (0..slots).map(|_| normal(rng)).collect(),
        }
    }

    /// D of the pairs of a session of `pairs` pairs without any effect, in the order of the schedule: (whether A ran first, D).
    pub(super) fn schedule(self, pairs: usize, orders: &[bool], rng: &mut ChaCha12Rng) -> Vec<(bool, f64)> {
        let boots = self.boots(2 * pairs, rng);
        let of_pair = |(i, &a_first): (usize, &bool)| {
            let later = (boots[2 * i + 1] - boots[2 * i]) * FRAC_1_SQRT_2;
            let difference = if a_first { later } else { -later };
            let d = match self {
                Noise::SlotEffect => difference + if a_first { 2.0 } else { -2.0 },
                Noise::SkewOfB => 0.2 * difference + (1.0_f64 - 0.04).sqrt() * lognormal(0.8, rng),
                Noise::BimodalB => 0.2 * difference + (1.0_f64 - 0.04).sqrt() * bimodal(rng),
                _ => difference,
            };
            (a_first, d)
        };
        orders.iter().enumerate().map(of_pair).collect()
    }

    /// A session as bigiron runs it: D of the A-then-B pairs and of the B-then-A pairs, no effect.
    pub(super) fn session(self, pairs: usize, rng: &mut ChaCha12Rng) -> Session {
        let orders = balanced(pairs, rng);
        Session::of(&self.schedule(pairs, &orders, rng))
    }
}

/// D by order.
pub(super) struct Session {
    pub(super) ab: Vec<f64>,
    pub(super) ba: Vec<f64>,
}

impl Session {
    pub(super) fn of(schedule: &[(bool, f64)]) -> Session {
        let of_order = |a_first| schedule.iter().filter(|pair| pair.0 == a_first).map(|pair| pair.1).collect();
        Session { ab: of_order(true), ba: of_order(false) }
    }

    pub(super) fn all(&self) -> Vec<f64> {
        self.ab.iter().chain(&self.ba).copied().collect()
    }
}

/// A random balanced order of pairs: whether A runs first.
pub(super) fn balanced(pairs: usize, rng: &mut ChaCha12Rng) -> Vec<bool> {
    order::balanced_orders(pairs as u32, 2, rng).iter().map(|order| order[0] == 0).collect()
}

pub(super) fn normal(rng: &mut ChaCha12Rng) -> f64 {
    StandardNormal.sample(rng)
}

pub(super) fn uniform(rng: &mut ChaCha12Rng) -> f64 {
    rand_distr::StandardUniform.sample(rng)
}

/// Mean 0, standard deviation 1.
fn lognormal(sigma: f64, rng: &mut ChaCha12Rng) -> f64 {
    let s2 = sigma * sigma;
    ((sigma * normal(rng)).exp() - (s2 / 2.0).exp()) / ((s2.exp() - 1.0) * s2.exp()).sqrt()
}

/// Mean 0, standard deviation 1: three in ten are in the mode three standard deviations away.
fn bimodal(rng: &mut ChaCha12Rng) -> f64 {
    let mode = if uniform(rng) < 0.3 { 3.0 } else { 0.0 };
    (normal(rng) + mode - 0.9) / (1.0_f64 + 9.0 * 0.21).sqrt()
}
