//! Sessions of pairs with a known truth: boots that differ only by noise, and boots where B differs.
//!
//! Invariant: the true effect of a session is exactly the requested effect; the noise of a pair's difference around the mean of
//! its order has standard deviation 1 in every model without a time structure.

use std::f64::consts::FRAC_1_SQRT_2;

use bigiron_stats::order::{self, ChaCha12Rng};
use rand_distr::{Distribution, StandardNormal, StudentT};

/// Models of the variation between boots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Noise {
    /// Independent normal boots.
    Normal,
    /// Independent boots with Student's t of 3 degrees of freedom: rare, far outliers.
    HeavyTails,
    /// Three boots in ten fall into a mode 3 standard deviations of the other boots' noise away.
    Bimodal,
    /// Independent lognormal boots (σ = 1).
    Lognormal,
    /// The machine wanders: autoregressive over slots with coefficient .9.
    Autoregressive,
    /// Normal, and the machine warms up: 6 standard deviations of a boot over the session.
    Trend,
    /// Normal, and 4 standard deviations of a boot from a random slot on.
    Step,
    /// Normal, and the second position of a pair is 2 standard deviations of a pair slower.
    SlotEffect,
    /// Normal, rounded to whole standard deviations: many equal values.
    Ties,
    /// A is nearly noiseless, B is lognormal (σ = .8): a tail that only B has.
    SkewOfB,
    /// A is nearly noiseless, B falls into a slow mode in three boots of ten.
    BimodalB,
    /// Normal; B falls into a mode 8 standard deviations of a pair away in one boot of ten, or of five.
    RareModeB,
    ModeB,
}

impl Noise {
    /// Models in which B shifts the distribution without changing its shape.
    pub(super) const SHIFTS: [Noise; 9] = [
        Noise::Normal,
        Noise::HeavyTails,
        Noise::Bimodal,
        Noise::Lognormal,
        Noise::Ties,
        Noise::Autoregressive,
        Noise::Trend,
        Noise::Step,
        Noise::SlotEffect,
    ];

    /// The same without those in which time plays a role: the exact clock's.
    pub(super) const TIMELESS: [Noise; 5] =
        [Noise::Normal, Noise::HeavyTails, Noise::Bimodal, Noise::Lognormal, Noise::Ties];

    /// Models in which B changes the shape.
    pub(super) const SHAPES: [Noise; 4] = [Noise::SkewOfB, Noise::BimodalB, Noise::RareModeB, Noise::ModeB];

    /// Whether every study is likely to meet all of B's shape.
    pub(super) fn is_mild(self) -> bool {
        !matches!(self, Noise::RareModeB | Noise::ModeB)
    }

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
            Noise::Ties => "ties",
            Noise::SkewOfB => "B-only skew",
            Noise::BimodalB => "B-only bimodal",
            Noise::RareModeB => "B-only mode, 10 %",
            Noise::ModeB => "B-only mode, 20 %",
        }
    }

    /// Noise of the `slots` boots of a session, in time order; a boot's standard deviation is 1 except for time structure.
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
            Noise::Ties => (0..slots).map(|_| normal(rng).round()).collect(),
            Noise::Trend => (0..slots).map(|i| normal(rng) + 6.0 * i as f64 / slots as f64).collect(),
            Noise::Step => {
                let from = (uniform(rng) * slots as f64) as usize;
                (0..slots).map(|i| normal(rng) + if i >= from { 4.0 } else { 0.0 }).collect()
            }
            _ => (0..slots).map(|_| normal(rng)).collect(),
        }
    }

    /// The pairs of a session without any effect, in the order of the schedule; `orders` says whether A runs first.
    pub(super) fn schedule(self, orders: &[bool], rng: &mut ChaCha12Rng) -> Vec<Pair> {
        // A boot's standard deviation is chosen so that a pair's is 1.
        let boots: Vec<f64> = self.boots(2 * orders.len(), rng).into_iter().map(|x| x * FRAC_1_SQRT_2).collect();
        let of_pair = |(&a_first, boots): (&bool, &[f64])| {
            let mode = |share: f64, rng: &mut ChaCha12Rng| MODE * (f64::from(u8::from(uniform(rng) < share)) - share);
            let (mut a, mut b) = if a_first { (boots[0], boots[1]) } else { (boots[1], boots[0]) };
            match self {
                Noise::SlotEffect if a_first => b += 2.0,
                Noise::SlotEffect => a += 2.0,
                Noise::SkewOfB => (a, b) = (0.2 * a, 0.2 * b + 0.96_f64.sqrt() * lognormal(0.8, rng)),
                Noise::RareModeB => b += mode(0.1, rng),
                Noise::ModeB => b += mode(0.2, rng),
                Noise::BimodalB => (a, b) = (0.2 * a, 0.2 * b + 0.96_f64.sqrt() * bimodal(rng)),
                _ => {}
            }
            Pair { a_first, a, b }
        };
        orders.iter().zip(boots.chunks_exact(2)).map(of_pair).collect()
    }

    /// A session as bigiron runs it, no effect.
    pub(super) fn session(self, pairs: usize, rng: &mut ChaCha12Rng) -> Session {
        let orders = balanced(pairs, rng);
        Session::of(&self.schedule(&orders, rng))
    }
}

/// Distance of the modes that only B has, in standard deviations of a pair.
const MODE: f64 = 8.0;

/// Logarithms of the two boots' values in a pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) a_first: bool,
    pub(super) a: f64,
    pub(super) b: f64,
}

/// D by order, and the values of the arms.
pub(super) struct Session {
    pub(super) ab: Vec<f64>,
    pub(super) ba: Vec<f64>,
    pub(super) arms_ab: Vec<(f64, f64)>,
    pub(super) arms_ba: Vec<(f64, f64)>,
}

impl Session {
    pub(super) fn of(pairs: &[Pair]) -> Session {
        let arms = |a_first| pairs.iter().filter(|p| p.a_first == a_first).map(|p| (p.a, p.b)).collect::<Vec<_>>();
        let differences = |arms: &[(f64, f64)]| arms.iter().map(|(a, b)| b - a).collect();
        let (arms_ab, arms_ba) = (arms(true), arms(false));
        Session { ab: differences(&arms_ab), ba: differences(&arms_ba), arms_ab, arms_ba }
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
