//! Inference from a line's pairs or builds: by the flip interval, or, in a screening, by Student's t.
//!
//! Invariant: a design of 8 pairs or more, or of rebuilt kernels, is judged by the flip interval, whatever the data; only another is a screening.

use bigiron_stats::{Block, Designs, Flip, Flips, Student, Tails, power};

use bigiron_model::plan::Plan;

/// The units of a line, oriented so that positive is an improvement, with the design's own test.
pub(super) enum Inference {
    Flip { flips: Flips, are_builds: bool, flip: Flip },
    Screening(Student),
}

impl Inference {
    /// `blocks`: improvements (log scale) of each machine's units; `designs`: the designs of `plan`.
    pub(super) fn new(plan: &Plan, designs: &Designs, blocks: &[Block]) -> Self {
        if plan.is_screening() {
            let Block { ab, ba } = Block::pooled(blocks);
            Inference::Screening(Student::new(&[ab, ba].concat()))
        } else {
            let are_builds = plan.design.rebuilds.is_some();
            Inference::Flip { flips: plan.flips(), are_builds, flip: designs.flip_blocks(blocks) }
        }
    }

    pub(super) fn mean(&self) -> f64 {
        match self {
            Inference::Flip { flip, .. } => flip.mean(),
            Inference::Screening(t) => t.mean(),
        }
    }

    pub(super) fn sd(&self) -> f64 {
        match self {
            Inference::Flip { flip, .. } => flip.sd(),
            Inference::Screening(t) => t.sd(),
        }
    }

    pub(super) fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        match self {
            Inference::Flip { flip, .. } => flip.interval(alpha),
            Inference::Screening(t) => t.interval(alpha),
        }
    }

    pub(super) fn p(&self, theta: f64) -> f64 {
        match self {
            Inference::Flip { flip, .. } => flip.p(theta),
            Inference::Screening(t) => t.p(theta),
        }
    }

    /// The smallest effect that this number of units detects with 80 % power; infinite if there is none.
    pub(super) fn mde(&self, units: usize) -> f64 {
        match self {
            Inference::Flip { flips, are_builds: true, flip } => power::mde_of_builds(*flips, units, flip.sd()),
            Inference::Flip { flips, are_builds: false, flip } => power::mde(*flips, units, flip.sd()),
            Inference::Screening(t) => t.mde(),
        }
    }
}

impl Tails for Inference {
    fn p_greater(&self, theta: f64) -> f64 {
        match self {
            Inference::Flip { flip, .. } => flip.p_greater(theta),
            Inference::Screening(t) => t.p_greater(theta),
        }
    }

    fn p_less(&self, theta: f64) -> f64 {
        match self {
            Inference::Flip { flip, .. } => flip.p_less(theta),
            Inference::Screening(t) => t.p_less(theta),
        }
    }
}
