//! Inference from a line's pairs: by the flip interval, or, in a screening, by Student's t.
//!
//! Invariant: a design of 8 pairs or more is judged by the flip interval, whatever the data; only a smaller design is a screening.

use bigiron_stats::{Designs, Flip, Flips, Student, Tails, power};

use bigiron_model::plan::Plan;

/// The pairs of a line, oriented so that positive is an improvement, with the design's own test.
pub(super) enum Inference {
    Flip(Flips, Flip),
    Screening(Student),
}

impl Inference {
    /// `ab`, `ba`: improvements (log scale) of the pairs run A-then-B and B-then-A; `designs`: the designs of `plan`.
    pub(super) fn new(plan: &Plan, designs: &Designs, ab: &[f64], ba: &[f64]) -> Self {
        if plan.is_screening() {
            let all: Vec<f64> = ab.iter().chain(ba).copied().collect();
            Inference::Screening(Student::new(&all))
        } else {
            Inference::Flip(plan.flips(), designs.flip(ab, ba))
        }
    }

    pub(super) fn mean(&self) -> f64 {
        match self {
            Inference::Flip(_, flip) => flip.mean(),
            Inference::Screening(t) => t.mean(),
        }
    }

    pub(super) fn sd(&self) -> f64 {
        match self {
            Inference::Flip(_, flip) => flip.sd(),
            Inference::Screening(t) => t.sd(),
        }
    }

    pub(super) fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        match self {
            Inference::Flip(_, flip) => flip.interval(alpha),
            Inference::Screening(t) => t.interval(alpha),
        }
    }

    pub(super) fn p(&self, theta: f64) -> f64 {
        match self {
            Inference::Flip(_, flip) => flip.p(theta),
            Inference::Screening(t) => t.p(theta),
        }
    }

    /// The smallest effect that this number of pairs detects with 80 % power; infinite if there is none.
    pub(super) fn mde(&self, pairs: usize) -> f64 {
        match self {
            Inference::Flip(flips, flip) => power::mde(*flips, pairs, flip.sd()),
            Inference::Screening(t) => t.mde(),
        }
    }
}

impl Tails for Inference {
    fn p_greater(&self, theta: f64) -> f64 {
        match self {
            Inference::Flip(_, flip) => flip.p_greater(theta),
            Inference::Screening(t) => t.p_greater(theta),
        }
    }

    fn p_less(&self, theta: f64) -> f64 {
        match self {
            Inference::Flip(_, flip) => flip.p_less(theta),
            Inference::Screening(t) => t.p_less(theta),
        }
    }
}
