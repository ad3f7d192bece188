//! The A/A gate: the same kernel as A and B through the whole pipeline must differ in nothing.
//!
//! Invariant: the gate judges the machine, never a kernel: it takes comparisons of an arm with itself only.

use crate::{location, multiplicity};

/// One primary metric of an A/A session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Two-sided p of "the mean is 0".
    pub p: f64,
    /// Estimated effect, log scale.
    pub mean: f64,
    /// The metric's margin, log scale.
    pub margin: f64,
}

/// Whether a session passes: nothing differs after Holm at 5 %, and every estimate is within half its margin.
pub fn passes(lines: &[Line]) -> bool {
    let p: Vec<f64> = lines.iter().map(|line| line.p).collect();
    multiplicity::holm(&p).iter().all(|&p| p > 0.05) && lines.iter().all(|line| line.mean.abs() < line.margin / 2.0)
}

/// What many A/A sessions say about the pipeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Share of 95 % intervals that exclude no change; .05 or less is right.
    pub false_positives: f64,
    /// Clopper–Pearson, 95 %.
    pub interval: (f64, f64),
    /// Two-sided p of the signs of those false positives under a fair coin.
    pub sign_p: f64,
}

impl Calibration {
    /// Of `lines` A/A comparisons, `above` with an interval wholly above 0 and `below` wholly below. `None` without comparisons.
    pub fn of(lines: u64, above: u64, below: u64) -> Option<Calibration> {
        (lines > 0).then(|| Calibration {
            false_positives: (above + below) as f64 / lines as f64,
            interval: location::clopper_pearson(above + below, lines, 0.05),
            sign_p: location::sign_test(above, below),
        })
    }
}
