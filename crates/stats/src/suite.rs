//! Several primary metrics in one study: which claims survive together, and whether any workload regressed.
//!
//! Invariant: adjustment only withdraws claims; it never adds one.

use crate::{Tails, Verdict, multiplicity};

/// A primary metric's verdict after Holm's adjustment over all primaries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adjusted {
    pub verdict: Verdict,
    /// The line's verdict on its own.
    pub unadjusted: Verdict,
    /// Holm-adjusted p of the line's claim; 1 where it claims nothing.
    pub p: f64,
}

/// Two-sided p of a verdict's claim: against the margin for `better` and `worse`, against 0 for `slightly-better` and `slightly-worse`, 1 for the
/// others. `tails` have improvement orientation, like the verdict.
pub fn claim_p(tails: &impl Tails, verdict: Verdict, margin: f64) -> f64 {
    let one_sided = match verdict {
        Verdict::Better => tails.p_greater(margin),
        Verdict::SlightlyBetter => tails.p_greater(0.0),
        Verdict::SlightlyWorse => tails.p_less(0.0),
        Verdict::Worse => tails.p_less(-margin),
        Verdict::Same | Verdict::Inconclusive | Verdict::Invalid => 1.0,
    };
    (2.0 * one_sided).min(1.0)
}

/// Holm over the primaries, given as (verdict, p of its claim): a claim with an adjusted p above `alpha` becomes `inconclusive`.
pub fn adjust(lines: &[(Verdict, f64)], alpha: f64) -> Vec<Adjusted> {
    let p: Vec<f64> = lines.iter().map(|line| line.1).collect();
    let adjusted = multiplicity::holm(&p);
    lines
        .iter()
        .zip(adjusted)
        .map(|(&(unadjusted, _), p)| {
            let claims = !matches!(unadjusted, Verdict::Same | Verdict::Inconclusive | Verdict::Invalid);
            let verdict = if claims && p > alpha { Verdict::Inconclusive } else { unadjusted };
            Adjusted { verdict, unadjusted, p }
        })
        .collect()
}

/// "No workload regressed": every primary's *unadjusted* verdict is `same` or on the better side. This is an intersection–union test: each line must
/// pass at 5 %, and then all of them do, without correction (Berger 1982). False without lines.
pub fn no_regression(unadjusted: &[Verdict]) -> bool {
    !unadjusted.is_empty()
        && unadjusted.iter().all(|v| matches!(v, Verdict::Same | Verdict::SlightlyBetter | Verdict::Better))
}

/// With a larger share of void pairs a session is `invalid`.
pub const VOID_LIMIT: f64 = 0.25;

/// Whether `void` of `planned` pairs make a session unusable.
pub fn too_many_void(void: u32, planned: u32) -> bool {
    f64::from(void) > VOID_LIMIT * f64::from(planned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flip;

    #[test]
    fn a_claim_that_does_not_survive_is_taken_back() {
        let lines = [
            (Verdict::Better, 0.004),
            (Verdict::SlightlyWorse, 0.03),
            (Verdict::Same, 1.0),
            (Verdict::Inconclusive, 1.0),
        ];
        let adjusted = adjust(&lines, 0.05);
        assert_eq!((adjusted[0].verdict, adjusted[0].p), (Verdict::Better, 0.016));
        assert_eq!((adjusted[1].verdict, adjusted[1].unadjusted), (Verdict::Inconclusive, Verdict::SlightlyWorse));
        assert_eq!((adjusted[2].verdict, adjusted[3].verdict), (Verdict::Same, Verdict::Inconclusive));
        assert!(adjust(&[], 0.05).is_empty());
    }

    #[test]
    fn a_claim_stands_exactly_where_its_verdict_does() {
        // Twelve pairs around +3 %: beyond a margin of 2 %, not beyond 3 %.
        let ab = [0.031, 0.028, 0.034, 0.029, 0.030, 0.033];
        let ba = [0.027, 0.032, 0.030, 0.031, 0.026, 0.029];
        let flip = Flip::new(&ab, &ba, 0);
        assert!(claim_p(&flip, Verdict::Better, 0.02) <= 0.05);
        assert!(claim_p(&flip, Verdict::Better, 0.03) > 0.05);
        assert!(claim_p(&flip, Verdict::SlightlyBetter, 0.03) <= 0.05);
        assert_eq!(claim_p(&flip, Verdict::Worse, 0.02), 1.0);
        assert_eq!(claim_p(&flip, Verdict::Same, 0.02), 1.0);
    }

    #[test]
    fn no_regression_needs_every_line() {
        use Verdict::{Better, Inconclusive, Same, SlightlyBetter, SlightlyWorse};
        assert!(no_regression(&[Same, Better, SlightlyBetter]));
        assert!(!no_regression(&[Same, SlightlyWorse]));
        assert!(!no_regression(&[Same, Inconclusive]));
        assert!(!no_regression(&[]));
    }

    #[test]
    fn a_quarter_of_the_pairs_may_be_void() {
        assert!(!too_many_void(3, 12));
        assert!(too_many_void(4, 12));
    }
}
