//! A warning for intervals that may be too narrow: B changed the shape of the distribution, not only its location.
//!
//! The flip interval is exact if B only shifts the distribution. If only B has a long tail, a nominal 95 % interval covers less (`cargo xtask sim`:
//! 89–93 %). Skewness of the differences is hard to see in ten pairs, but it is easy to see that one arm varies more than the other. Invariant: the
//! flag never changes a verdict, it only warns.

use crate::flip::{Block, Flip};
use crate::location;

/// Level of the test behind the flag.
pub const FLAG_LEVEL: f64 = 0.05;

/// The factor by which an interval is widened to cover about 95 % even if only B has a long tail (`cargo xtask sim` checks it).
pub const WIDER: f64 = 1.3;

/// The interval around `mean`, [`WIDER`] times as wide.
pub fn widened((low, high): (f64, f64), mean: f64) -> (f64, f64) {
    (mean - WIDER * (mean - low), mean + WIDER * (high - mean))
}

/// Two-sided p of "both arms vary equally", from (ln A, ln B) of each machine's pairs.
///
/// The flip test of `(D − its median) · (S − its median)` with D = ln B − ln A and S = ln A + ln B: B varies more if large differences go with large
/// sums. Exchanging the arms of a pair reverses the sign, and drift of the machine only moves S. Medians are used because one outlier in a mean would
/// shift all other pairs to one side. They are those of the pairs of one order; with several machines, S has its machine's, because machines are
/// unlike in speed, and running second is part of every S. `flip` makes the flip test of the values of each machine.
pub fn spread_p(blocks: &[Block<(f64, f64)>], flip: impl FnOnce(&[Block]) -> Flip) -> f64 {
    let all = Block::pooled(blocks);
    let differences = [median_of(&all.ab, difference), median_of(&all.ba, difference)];
    let products = |pairs: &[(f64, f64)], d: f64, s: f64| {
        pairs.iter().map(|pair| (difference(pair) - d) * (sum(pair) - s)).collect()
    };
    let of_block = |block: &Block<(f64, f64)>| {
        let sums = match blocks {
            [_] => [median_of(&block.ab, sum), median_of(&block.ba, sum)],
            _ => [median_of(&[&block.ab[..], &block.ba].concat(), sum); 2],
        };
        Block { ab: products(&block.ab, differences[0], sums[0]), ba: products(&block.ba, differences[1], sums[1]) }
    };
    flip(&blocks.iter().map(of_block).collect::<Vec<Block>>()).p(0.0)
}

fn difference((a, b): &(f64, f64)) -> f64 {
    b - a
}

fn sum((a, b): &(f64, f64)) -> f64 {
    a + b
}

fn median_of(pairs: &[(f64, f64)], of: fn(&(f64, f64)) -> f64) -> f64 {
    location::median(&pairs.iter().map(of).collect::<Vec<f64>>())
}

/// Whether to warn: the spreads of the arms differ at [`FLAG_LEVEL`]. Same arguments as [`spread_p`].
pub fn flagged(blocks: &[Block<(f64, f64)>], flip: impl FnOnce(&[Block]) -> Flip) -> bool {
    spread_p(blocks, flip) <= FLAG_LEVEL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Designs, Flips};

    #[test]
    fn an_arm_that_varies_more_is_flagged_and_a_wandering_machine_is_not() {
        let wobble = [0.01, -0.02, 0.03, -0.01, 0.02, -0.03];
        let wild: Vec<(f64, f64)> = wobble.iter().map(|x| (x * 0.1, x * 4.0)).collect();
        let designs = Designs::new(Flips::Balanced, 0);
        let flagged = |pairs: &[(f64, f64)]| {
            let one = flagged(&[Block::new(pairs, pairs)], |blocks| designs.flip_blocks(blocks));
            // The same on two machines, of which the second is slower.
            let slow: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (a + 9.0, b + 9.0)).collect();
            let two = [Block::new(pairs, pairs), Block::new(&slow, &slow)];
            assert_eq!(one, super::flagged(&two, |blocks| designs.flip_blocks(blocks)));
            one
        };
        assert!(flagged(&wild));
        let calm: Vec<(f64, f64)> = wobble.iter().map(|x| (*x, -x)).collect();
        assert!(!flagged(&calm));
        let wandering: Vec<(f64, f64)> = wobble.iter().enumerate().map(|(i, x)| (i as f64 + x, i as f64 - x)).collect();
        assert!(!flagged(&wandering));
    }
}
