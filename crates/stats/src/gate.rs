//! The A/A gate: the same kernel as A and B through the whole pipeline must show no difference.
//!
//! Invariant: the gate judges the machine, never a kernel: it accepts only comparisons of an arm with itself.

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

/// The result of many A/A sessions about the pipeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Share of 95 % intervals that exclude no change; it should be at most .05.
    pub false_positives: f64,
    /// Clopper–Pearson, 95 %.
    pub interval: (f64, f64),
    /// Two-sided p of the signs of those false positives under a fair coin.
    pub sign_p: f64,
}

impl Calibration {
    /// For `lines` A/A comparisons, of which `above` have an interval wholly above 0 and `below` wholly below. `None` without comparisons.
    pub fn of(lines: u64, above: u64, below: u64) -> Option<Calibration> {
        (lines > 0).then(|| Calibration {
            false_positives: (above + below) as f64 / lines as f64,
            interval: location::clopper_pearson(above + below, lines, 0.05),
            sign_p: location::sign_test(above, below),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_passes_only_if_nothing_differs_and_nothing_is_far_off() {
        let line = Line { p: 0.4, mean: 0.002, margin: 0.02 };
        assert!(passes(&[line; 4]));
        // One p of .02 among four survives no adjustment, but a single one does.
        assert!(passes(&[line, line, line, Line { p: 0.02, ..line }]));
        assert!(!passes(&[Line { p: 0.02, ..line }]));
        assert!(!passes(&[line, Line { mean: -0.010, ..line }]));
        assert!(!passes(&[Line { mean: f64::NAN, ..line }]));
    }

    #[test]
    fn false_positives_that_all_point_one_way_are_seen() {
        let calibration = Calibration::of(200, 9, 1).unwrap();
        assert_eq!(calibration.false_positives, 0.05);
        assert!(calibration.interval.0 < 0.05 && 0.05 < calibration.interval.1);
        assert!(calibration.sign_p < 0.05 && Calibration::of(200, 5, 5).unwrap().sign_p == 1.0);
        assert_eq!(Calibration::of(0, 0, 0), None);
    }
}
