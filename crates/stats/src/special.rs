//! Quantiles of the distributions that intervals need, by bisection of the distribution functions.
//!
//! Invariant: bisection runs until two neighbouring numbers remain, so a quantile is as exact as its distribution function.

use special::Beta as _;

/// Quantile of Student's t, for 0 < p < 1 and at least one degree of freedom.
pub(crate) fn t_quantile(p: f64, degrees: f64) -> f64 {
    if p < 0.5 {
        return -t_quantile(1.0 - p, degrees);
    }
    let ln_beta = (degrees / 2.0).ln_beta(0.5);
    // x = ν/(ν + t²) falls from 1 to 0 as t grows, and P(T > t) = I_x(ν/2, 1/2) / 2 (Abramowitz & Stegun 26.7.1).
    let x = bisect(|x| x.inc_beta(degrees / 2.0, 0.5, ln_beta) / 2.0, 1.0 - p);
    (degrees * (1.0 - x) / x).sqrt()
}

/// P(T > t) of Student's t with `degrees` of freedom.
pub(crate) fn t_tail(t: f64, degrees: f64) -> f64 {
    if t < 0.0 {
        return 1.0 - t_tail(-t, degrees);
    }
    (degrees / (degrees + t * t)).inc_beta(degrees / 2.0, 0.5, (degrees / 2.0).ln_beta(0.5)) / 2.0
}

/// Quantile of the beta distribution.
pub(crate) fn beta_quantile(p: f64, a: f64, b: f64) -> f64 {
    let ln_beta = a.ln_beta(b);
    bisect(|x| x.inc_beta(a, b, ln_beta), p)
}

/// The x in 0..1 at which the increasing function `f` reaches `p`.
fn bisect(f: impl Fn(f64) -> f64, p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    loop {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            return middle;
        }
        if f(middle) < p { low = middle } else { high = middle }
    }
}
