//! The number of operations that a latency percentile needs before it may be printed.
//!
//! Invariant: the rule depends only on the percentile, not on the data, so it is known before the first boot.

/// The number of operations in one boot from which the percentile `q` (.999 for p99.9) is reported: ten times the number at which the sample's
/// maximum lies beyond it with 97.5 % confidence. 36,880 for p99.9.
///
/// # Panics
/// `q` is not between 0 and 1.
pub fn operations_for(q: f64) -> u64 {
    assert!(q > 0.0 && q < 1.0, "{q} is not a percentile; it must be between 0 and 1");
    10 * (0.025_f64.ln() / q.ln()).ceil() as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn operations_for_percentiles() {
        for (q, operations) in [(0.5, 60), (0.99, 3_680), (0.999, 36_880)] {
            assert_eq!(super::operations_for(q), operations);
        }
    }
}
