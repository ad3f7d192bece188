//! MSER-5: the end of a series' warm-up.
//!
//! Invariant: the cut is chosen from the series alone and lies in its first half, so a series that never settles is not reduced to a remnant that
//! looks settled.

/// Observations per batch, the "5" of the name.
const BATCH: usize = 5;

/// The number of leading observations to leave out: the cut that minimises the standard error of the mean of the rest, over batches of five (White,
/// Cobb & Spratt 2000). `None` if the series is too short (fewer than 4 batches), or if the minimum lies at the end of the first half: the series had
/// not settled.
pub fn mser5(x: &[f64]) -> Option<usize> {
    let batches: Vec<f64> = x.chunks_exact(BATCH).map(|b| b.iter().sum::<f64>() / BATCH as f64).collect();
    if batches.len() < 4 {
        return None;
    }
    let last = batches.len() / 2;
    let mut best = (0, f64::INFINITY);
    for cut in 0..=last {
        let rest = &batches[cut..];
        let n = rest.len() as f64;
        let mean = rest.iter().sum::<f64>() / n;
        let score = rest.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / (n * n);
        if score < best.1 {
            best = (cut, score);
        }
    }
    (best.0 < last).then_some(best.0 * BATCH)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_short_series_or_one_that_never_settles_has_no_cut() {
        assert_eq!(super::mser5(&[1.0; 19]), None);
        assert_eq!(super::mser5(&[1.0; 20]), Some(0));
        let rising: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(super::mser5(&rising), None);
    }
}
