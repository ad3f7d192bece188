//! Many comparisons at once: Holm for the metrics that a study promised to judge, Benjamini–Hochberg for exploratory ones.
//!
//! Invariant: an adjusted p is never smaller than the p, and the order of the comparisons by p stays the same.

/// Holm's step-down adjustment: rejecting results of at most α keeps the probability of any false rejection at or below α, for any dependence (Holm
/// 1979). Same order as the input.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let ascending = ranked(p);
    let mut adjusted = vec![0.0; p.len()];
    let mut largest = 0.0_f64;
    for (rank, &i) in ascending.iter().enumerate() {
        largest = largest.max(p[i] * (p.len() - rank) as f64).min(1.0);
        adjusted[i] = largest;
    }
    adjusted
}

/// Benjamini–Hochberg's step-up adjustment (q values): flagging results of at most q keeps the expected share of false flags at or below q for
/// independent or positively dependent comparisons (Benjamini & Hochberg 1995). Same order as the input.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let ascending = ranked(p);
    let mut adjusted = vec![0.0; p.len()];
    let mut smallest = 1.0_f64;
    for (rank, &i) in ascending.iter().enumerate().rev() {
        smallest = smallest.min(p[i] * p.len() as f64 / (rank + 1) as f64);
        adjusted[i] = smallest;
    }
    adjusted
}

fn ranked(p: &[f64]) -> Vec<usize> {
    let mut index: Vec<usize> = (0..p.len()).collect();
    index.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    index
}
