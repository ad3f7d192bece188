//! Several primary metrics in one study: which claims survive together, and whether nothing regressed.
//!
//! Invariant: adjustment only ever takes a claim away; it never makes one.

use crate::{Flip, Verdict, multiplicity};

/// A primary metric's verdict after Holm's adjustment over all primaries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adjusted {
    pub verdict: Verdict,
    /// What the line would have said alone.
    pub unadjusted: Verdict,
    /// Holm-adjusted p of the line's claim; 1 where it claims nothing.
    pub p: f64,
}

/// Two-sided p of what a verdict claims: against the margin for `better` and `worse`, against 0 for `slightly-better` and `slightly-worse`,
/// 1 for the others. `flip` is in improvement orientation, as the verdict is.
pub fn claim_p(flip: &Flip, verdict: Verdict, margin: f64) -> f64 {
    let one_sided = match verdict {
        Verdict::Better => flip.p_greater(margin),
        Verdict::SlightlyBetter => flip.p_greater(0.0),
        Verdict::SlightlyWorse => flip.p_less(0.0),
        Verdict::Worse => flip.p_less(-margin),
        Verdict::Same | Verdict::Inconclusive | Verdict::Invalid => 1.0,
    };
    (2.0 * one_sided).min(1.0)
}

/// Holm over the primaries, given as (verdict, p of its claim): a claim whose adjusted p is above `alpha` becomes `inconclusive`.
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

/// "No workload regressed": every primary's *unadjusted* verdict is `same` or on the better side. An intersection–union test: each
/// line must pass at 5 %, and then all of them do, without correction (Berger 1982). False without lines.
pub fn no_regression(unadjusted: &[Verdict]) -> bool {
    !unadjusted.is_empty()
        && unadjusted.iter().all(|v| matches!(v, Verdict::Same | Verdict::SlightlyBetter | Verdict::Better))
}

/// Share of void pairs above which a session is `invalid`.
pub const VOID_LIMIT: f64 = 0.25;

/// Whether `void` of `planned` pairs leave a session that cannot be used.
pub fn too_many_void(void: u32, planned: u32) -> bool {
    f64::from(void) > VOID_LIMIT * f64::from(planned)
}
