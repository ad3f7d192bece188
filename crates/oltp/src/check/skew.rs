//! The skew of TPC-C's customers: NURand(1023, 1, 3000) with a constant that is estimated from the draws.
//!
//! Invariant: the share is that of the tenth of the customers that the distribution favours, not of the most frequent tenth in
//! the sample: in a small sample some customers are always ahead, even with equal probabilities.

use super::super::scale::CUSTOMERS;

/// A of NURand for C_ID (clause 2.1.6).
const A: u32 = 1023;
/// A tenth of the customers.
const TOP: usize = CUSTOMERS as usize / 10;

/// The number of equally likely draws of `rand(0, A) | rand(1, 3000)` that give each value of 0..3000, before the constant is
/// added.
fn weights() -> Vec<u64> {
    let mut weights = vec![0; CUSTOMERS as usize];
    for y in 1..=CUSTOMERS {
        let (high, low) = (y & !A, y & A);
        let free = A & !low;
        // All x with the same bits outside `low` give the same value: 2^ones of them.
        let same = 1 << low.count_ones();
        let mut bits = free;
        loop {
            weights[((high | low | bits) % CUSTOMERS) as usize] += same;
            if bits == 0 {
                break;
            }
            bits = (bits - 1) & free;
        }
    }
    weights
}

/// The share of the draws for the tenth of the customers that NURand favours, with the best-fitting constant C. `counts[i]` is
/// the number of draws of customer i + 1.
pub(super) fn top_share(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let weights = weights();
    let n = weights.len();
    let drawn: Vec<(usize, u64)> = counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
    let shifted = |value: usize, constant: usize| weights[(value + n - constant) % n];
    let fit = |constant: usize| -> u128 {
        drawn.iter().map(|&(value, count)| u128::from(shifted(value, constant)) * u128::from(count)).sum()
    };
    let constant = (0..=A as usize).max_by_key(|constant| fit(*constant)).unwrap_or(0);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|value| std::cmp::Reverse(shifted(*value, constant)));
    let top: u64 = order[..TOP].iter().map(|value| counts[*value]).sum();
    if total == 0 { 0.0 } else { top as f64 / total as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_favoured_tenth_of_the_specification_has_61_per_cent() {
        let mut weights = weights();
        assert_eq!(weights.iter().sum::<u64>(), 1024 * 3000);
        assert!((top_share(&weights) - 0.613_175).abs() < 1e-6, "{}", top_share(&weights));
        // The constant only rotates them.
        weights.rotate_right(259);
        assert!((top_share(&weights) - 0.613_175).abs() < 1e-6, "{}", top_share(&weights));
    }

    #[test]
    fn equal_customers_have_a_tenth() {
        assert!((top_share(&vec![7; 3000]) - 0.1).abs() < 1e-9);
        // Few draws with equal probabilities: every customer at most once, and still not all among the favoured.
        let few: Vec<u64> = (0..3000).map(|i| u64::from(i % 7 == 0)).collect();
        assert!(top_share(&few) < 0.2, "{}", top_share(&few));
    }
}
