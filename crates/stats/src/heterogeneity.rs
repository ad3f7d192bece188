//! Whether machines disagree about an effect: a permutation test.
//!
//! Invariant: if every machine's pairs come from one distribution, p is exact. It is a hint for the reader and never changes a verdict: the interval is
//! that of the mean of these machines, whether or not they agree.

use crate::flip::Block;
use crate::order;

/// Level of the test behind the hint. Machines of unlike noise are no exact case of the test: the hint then appears more often than at this level, but in
/// 5 % of studies at most (`cargo xtask sim` checks it).
pub const HINT_LEVEL: f64 = 0.01;

/// Drawn permutations: the standard error of a p of .01 is then .001.
pub const DRAWS: usize = 9_999;

/// p of "the effect is the same on every machine", from D = ln(B/A) of each machine's pairs. `None` with fewer than two machines that have pairs of both
/// orders.
///
/// `draws` permutations are drawn. The statistic is the spread of the machines' means around their own mean, each with the weight of its pairs. Pairs of
/// one order are drawn among the machines anew, so that an effect of running second stays where it is.
pub fn p(blocks: &[Block], draws: usize, seed: u64) -> Option<f64> {
    let is_complete = |block: &&Block| !block.ab.is_empty() && !block.ba.is_empty();
    let blocks: Vec<&Block> = blocks.iter().filter(is_complete).collect();
    let sizes: Vec<(usize, usize)> = blocks.iter().map(|block| (block.ab.len(), block.ba.len())).collect();
    let mut ab: Vec<f64> = blocks.iter().flat_map(|block| block.ab.iter().copied()).collect();
    let mut ba: Vec<f64> = blocks.iter().flat_map(|block| block.ba.iter().copied()).collect();
    if blocks.len() < 2 || ab.iter().chain(&ba).any(|d| !d.is_finite()) {
        return None;
    }
    let mut rng = order::rng(seed);
    let scale = ab.iter().chain(&ba).fold(0.0_f64, |m, d| m.max(d.abs()));
    let found = spread(&sizes, &ab, &ba);
    // Rounding must not turn a tie into evidence.
    let least = found - 1e-12 * scale * scale;
    let as_far = (0..draws).filter(|_| {
        order::shuffle(&mut ab, &mut rng);
        order::shuffle(&mut ba, &mut rng);
        spread(&sizes, &ab, &ba) >= least
    });
    Some((as_far.count() + 1) as f64 / (draws + 1) as f64)
}

/// The weighted sum of squares of the machines' means around the weighted mean.
fn spread(sizes: &[(usize, usize)], ab: &[f64], ba: &[f64]) -> f64 {
    let (mut at, mut from) = (0, 0);
    let (mut weights, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for &(of_ab, of_ba) in sizes {
        let mean = |d: &[f64]| d.iter().sum::<f64>() / d.len() as f64;
        let mean = (mean(&ab[at..at + of_ab]) + mean(&ba[from..from + of_ba])) / 2.0;
        (at, from) = (at + of_ab, from + of_ba);
        let weight = (of_ab + of_ba) as f64;
        weights += weight;
        sum += weight * mean;
        squares += weight * mean * mean;
    }
    squares - sum * sum / weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(blocks: &[Block], seed: u64) -> Option<f64> {
        super::p(blocks, 999, seed)
    }

    /// Eight pairs of a machine on which B differs by `effect` and running second by `second`.
    fn machine(effect: f64, second: f64) -> Block {
        let noise = [0.01, -0.02, 0.015, -0.005];
        let of = |sign: f64| noise.iter().map(|e| effect + sign * second + e * sign).collect();
        Block { ab: of(1.0), ba: of(-1.0) }
    }

    #[test]
    fn machines_that_disagree_are_told_from_machines_that_agree() {
        let agree = [machine(0.1, 0.0), machine(0.1, 0.0), machine(0.1, 0.0)];
        assert!(p(&agree, 1).unwrap() > 0.5);
        let disagree = [machine(0.1, 0.0), machine(0.1, 0.0), machine(-0.1, 0.0)];
        assert!(p(&disagree, 1).unwrap() < 0.01);
        assert_eq!(p(&disagree, 1), p(&disagree, 1));
        // What running second costs is no effect of the arm.
        assert!(p(&[machine(0.1, 0.0), machine(0.1, 0.3)], 1).unwrap() > 0.2);
        // Machines without any noise agree.
        let exact = Block { ab: vec![0.1; 4], ba: vec![0.1; 4] };
        assert_eq!(p(&[exact.clone(), exact], 1), Some(1.0));
    }

    #[test]
    fn one_machine_cannot_disagree() {
        let half = Block { ab: vec![0.1; 4], ba: Vec::new() };
        assert_eq!((p(&[machine(0.1, 0.0)], 1), p(&[machine(0.1, 0.0), half], 1), p(&[], 1)), (None, None, None));
        let broken = Block { ab: vec![f64::NAN], ba: vec![0.0] };
        assert_eq!(p(&[machine(0.1, 0.0), broken], 1), None);
    }
}
