//! Several primary metrics in one study: which claims survive together, and whether any workload regressed.
//!
//! Invariant: adjustment only weakens or withdraws claims; it never adds one.
//!
//! Each line has two nested null hypotheses: "no change", and "within the margin", which is true wherever the first is. [`nested`] tests them so that
//! the probability of any false rejection is at most α for any dependence between lines. It follows from the partitioning principle (Finner &
//! Strassburger 2002): divide the parameters into cells by the state of each line, unchanged, changed within the margin, or beyond it. The truth lies
//! in one cell, so every cell may be tested at the full α, and a hypothesis is rejected if every cell in which it is true is. Test the cell in which `n`
//! lines are not beyond by Bonferroni: against α/n, the p of "no change" of its unchanged lines and the p of "within the margin" of its changed ones.
//! Because the second p is never smaller than the first, the hardest cells have all other lines changed, and the procedure becomes: Holm over the
//! claims beyond the margin; then each of the `n` lines left over differs if its p of "no change" is at most α/n. It is also the graph of Bretz et
//! al. (2009) in which a line passes its share first to its own second hypothesis, and then to the other lines.
//!
//! A two-sided p contains both directions. The direction of a claim is protected with it for lines within the margin; a claim in the wrong direction
//! about a line beyond the margin is not counted as an error by the proof. `cargo xtask sim` counts it.

use crate::{Tails, Verdict, multiplicity};

/// A primary metric's verdict after adjustment over all primaries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adjusted {
    pub verdict: Verdict,
    /// The line's verdict on its own.
    pub unadjusted: Verdict,
    /// p of the verdict's claim, or of "no change" where a claim was withdrawn; 1 where the line claims nothing. Before and after adjustment.
    pub claim_p: f64,
    pub p: f64,
    /// Whether the line differs from "no change" after adjustment, whatever its verdict claims.
    pub differs: bool,
}

/// A primary metric's verdict on its own, and the two-sided p of its two hypotheses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    pub verdict: Verdict,
    /// p of "no change".
    pub no_change: f64,
    /// p of "within the margin": the smaller of both directions'. Never less than `no_change`.
    pub within: f64,
}

impl Claim {
    /// `tails` have improvement orientation, like the verdict.
    pub fn of(tails: &impl Tails, verdict: Verdict, margin: f64) -> Claim {
        let two_sided = |above: f64, below: f64| (2.0 * tails.p_greater(above).min(tails.p_less(below))).min(1.0);
        Claim { verdict, no_change: two_sided(0.0, 0.0), within: two_sided(margin, -margin) }
    }

    /// Two-sided p of the verdict's claim: against the margin for `better` and `worse`, against 0 for `slightly-better` and `slightly-worse`, 1 for
    /// the others.
    pub fn p(&self) -> f64 {
        match self.verdict {
            Verdict::Better | Verdict::Worse => self.within,
            Verdict::SlightlyBetter | Verdict::SlightlyWorse => self.no_change,
            Verdict::Same | Verdict::Inconclusive | Verdict::Invalid => 1.0,
        }
    }
}

/// Adjusted p of both hypotheses of every line: `(no change, within the margin)`, in the order of `lines`, which are given likewise. A hypothesis is
/// rejected at α if its adjusted p is at most α; see the module's documentation.
pub fn nested(lines: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let within: Vec<f64> = lines.iter().map(|line| line.1).collect();
    let beyond = multiplicity::holm(&within);
    let mut ascending = beyond.clone();
    ascending.sort_by(f64::total_cmp);
    // At an α in ascending[k − 1] ≤ α < ascending[k], k lines are beyond the margin and the others share α.
    let smallest = |p: f64| {
        let count = ascending.len();
        let at = |k: usize| {
            let (from, below) = (if k == 0 { 0.0 } else { ascending[k - 1] }, ascending[k]);
            Some((p * (count - k) as f64).max(from)).filter(|alpha| *alpha < below)
        };
        (0..count).filter_map(at).fold(1.0, f64::min)
    };
    lines.iter().zip(&beyond).map(|(line, &beyond)| (smallest(line.0).min(beyond), beyond)).collect()
}

/// Adjusts the verdicts of primaries for their number by [`nested`]: a claim beyond the margin that is only shown to differ becomes `slightly-better`
/// or `slightly-worse`; a claim that is not shown to differ becomes `inconclusive`.
pub fn adjust(lines: &[Claim], alpha: f64) -> Vec<Adjusted> {
    let p: Vec<(f64, f64)> = lines.iter().map(|line| (line.no_change, line.within)).collect();
    let of = |(line, (no_change, within)): (&Claim, (f64, f64))| {
        let verdict = match line.verdict {
            Verdict::Better | Verdict::Worse if within <= alpha => line.verdict,
            Verdict::Better if no_change <= alpha => Verdict::SlightlyBetter,
            Verdict::Worse if no_change <= alpha => Verdict::SlightlyWorse,
            Verdict::SlightlyBetter | Verdict::SlightlyWorse if no_change <= alpha => line.verdict,
            Verdict::Same | Verdict::Inconclusive | Verdict::Invalid => line.verdict,
            _ => Verdict::Inconclusive,
        };
        let (claim_p, p) = match verdict {
            Verdict::Better | Verdict::Worse => (line.within, within),
            _ if line.verdict.claims() => (line.no_change, no_change),
            _ => (1.0, 1.0),
        };
        Adjusted { verdict, unadjusted: line.verdict, claim_p, p, differs: no_change <= alpha }
    };
    lines.iter().zip(nested(&p)).map(of).collect()
}

/// The first rule, for studies planned with it: Holm over the verdicts' claims, in which a claim with an adjusted p above `alpha` becomes
/// `inconclusive` even if the line differs. `differs` is not adjusted.
pub fn adjust_flat(lines: &[Claim], alpha: f64) -> Vec<Adjusted> {
    let p: Vec<f64> = lines.iter().map(Claim::p).collect();
    let of = |(line, p): (&Claim, f64)| {
        let verdict = if line.verdict.claims() && p > alpha { Verdict::Inconclusive } else { line.verdict };
        Adjusted { verdict, unadjusted: line.verdict, claim_p: line.p(), p, differs: line.no_change <= alpha }
    };
    lines.iter().zip(multiplicity::holm(&p)).map(of).collect()
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
    use crate::{Flip, Flips};

    fn claim(verdict: Verdict, no_change: f64, within: f64) -> Claim {
        Claim { verdict, no_change, within }
    }

    #[test]
    fn a_claim_that_does_not_survive_keeps_what_is_shown() {
        use Verdict::{Better, Inconclusive, Same, SlightlyBetter, SlightlyWorse, Worse};
        let lines = [
            claim(Better, 0.001, 0.004),
            claim(Better, 0.004, 0.03),
            claim(Worse, 0.02, 0.04),
            claim(SlightlyWorse, 0.03, 0.5),
            claim(Same, 0.001, 1.0),
        ];
        let verdicts = |adjusted: Vec<Adjusted>| adjusted.iter().map(|line| line.verdict).collect::<Vec<_>>();
        // .05/5 for the first claim beyond the margin; the four left over differ at .05/4.
        let adjusted = adjust(&lines, 0.05);
        assert_eq!(verdicts(adjusted.clone()), [Better, SlightlyBetter, Inconclusive, Inconclusive, Same]);
        assert_eq!(adjusted.iter().map(|line| line.differs).collect::<Vec<_>>(), [true, true, false, false, true]);
        assert_eq!((adjusted[0].p, adjusted[1].p, adjusted[2].unadjusted), (0.02, 0.02, Worse));
        assert!((adjusted[3].p - 0.12).abs() < 1e-12 && adjusted[4].p == 1.0);
        // The first rule throws away that the second line differs.
        assert_eq!(verdicts(adjust_flat(&lines, 0.05)), [Better, Inconclusive, Inconclusive, Inconclusive, Same]);
        assert!(adjust(&[], 0.05).is_empty());
    }

    #[test]
    fn lines_beyond_the_margin_leave_their_share_to_the_others() {
        // Alone at .05/2 the second line would not differ; once the first is beyond the margin, it may use all of .05.
        let adjusted = nested(&[(0.001, 0.002), (0.04, 0.9)]);
        assert_eq!(adjusted, [(0.002, 0.004), (0.04, 0.9)]);
        // But not if the first line only differs.
        assert_eq!(nested(&[(0.001, 0.1), (0.04, 0.9)])[1], (0.08, 0.9));
    }

    #[test]
    fn a_claim_stands_exactly_where_its_verdict_does() {
        // Twelve pairs around +3 %: beyond a margin of 2 %, not beyond 3 %.
        let ab = [0.031, 0.028, 0.034, 0.029, 0.030, 0.033];
        let ba = [0.027, 0.032, 0.030, 0.031, 0.026, 0.029];
        let flip = Flip::new(Flips::Balanced, &ab, &ba, 0);
        let p = |verdict, margin| Claim::of(&flip, verdict, margin).p();
        assert!(p(Verdict::Better, 0.02) <= 0.05);
        assert!(p(Verdict::Better, 0.03) > 0.05);
        assert!(p(Verdict::SlightlyBetter, 0.03) <= 0.05);
        assert_eq!(p(Verdict::Same, 0.02), 1.0);
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
