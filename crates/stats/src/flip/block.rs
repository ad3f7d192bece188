//! Pairs by the machine on which they ran: the blocks within which the order of the arms was drawn.
//!
//! Invariant: no pair is lost: what cannot be balanced within its block is balanced within another one.

/// Number of pairs in the two orders.
pub(super) type Size = (usize, usize);

/// What the pairs of one machine gave, by the order in which a pair's two arms ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Block<T = f64> {
    /// Run A-then-B.
    pub ab: Vec<T>,
    /// Run B-then-A.
    pub ba: Vec<T>,
}

impl<T> Default for Block<T> {
    fn default() -> Self {
        Block { ab: Vec::new(), ba: Vec::new() }
    }
}

impl<T: Clone> Block<T> {
    pub fn new(ab: &[T], ba: &[T]) -> Block<T> {
        Block { ab: ab.to_vec(), ba: ba.to_vec() }
    }

    /// All pairs as one block.
    pub fn pooled(blocks: &[Block<T>]) -> Block<T> {
        let mut all = Block::default();
        blocks.iter().for_each(|block| all.join(block));
        all
    }

    fn join(&mut self, other: &Block<T>) {
        self.ab.extend_from_slice(&other.ab);
        self.ba.extend_from_slice(&other.ba);
    }

    /// The blocks that have pairs of both orders. Those that have lost all pairs of one order count with the first of them.
    pub(super) fn complete(blocks: &[Block<T>]) -> Vec<Block<T>> {
        let is_complete = |block: &&Block<T>| !block.ab.is_empty() && !block.ba.is_empty();
        let mut complete: Vec<Block<T>> = blocks.iter().filter(is_complete).cloned().collect();
        match complete.first_mut() {
            None => vec![Block::pooled(blocks)],
            Some(first) => {
                blocks.iter().filter(|block| !is_complete(block)).for_each(|block| first.join(block));
                complete
            }
        }
    }
}

impl<T> Block<T> {
    pub fn len(&self) -> usize {
        self.ab.len() + self.ba.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn size(&self) -> Size {
        (self.ab.len(), self.ba.len())
    }
}

fn mean(d: &[f64]) -> f64 {
    d.iter().sum::<f64>() / d.len() as f64
}

impl Block {
    /// The mean of the means of the two orders; the plain mean if one order is missing. NaN without pairs.
    pub fn mean(&self) -> f64 {
        match (self.ab.is_empty(), self.ba.is_empty()) {
            (false, false) => (mean(&self.ab) + mean(&self.ba)) / 2.0,
            (false, true) => mean(&self.ab),
            (true, _) => mean(&self.ba),
        }
    }

    /// The weight of a block's mean: with it, every exchange moves the estimate as far as the sum of the pairs that change places. In a block with
    /// equally many pairs of either order it is a quarter of their number.
    fn weight(&self) -> f64 {
        let (ab, ba) = (self.ab.len() as f64, self.ba.len() as f64);
        ab * ba / (ab + ba)
    }

    /// The weighted mean of [complete](Block::complete) blocks.
    pub(super) fn mean_of(blocks: &[Block]) -> f64 {
        if let [one] = blocks {
            return one.mean();
        }
        let weights: f64 = blocks.iter().map(Block::weight).sum();
        blocks.iter().map(|block| block.weight() * block.mean()).sum::<f64>() / weights
    }

    /// Standard deviation of D without the effect of running second, which each block has for itself: around the mean of all blocks, because exchanges
    /// do not keep the blocks' differences out of the interval. 0 if there are too few pairs.
    pub(super) fn sd_of(blocks: &[Block]) -> f64 {
        if let [one] = blocks {
            return within_order_sd(&one.ab, &one.ba);
        }
        let settled: Vec<f64> = blocks
            .iter()
            .flat_map(|block| {
                let half = (mean(&block.ab) - mean(&block.ba)) / 2.0;
                block.ab.iter().map(move |d| d - half).chain(block.ba.iter().map(move |d| d + half))
            })
            .collect();
        let degrees = settled.len().saturating_sub(1 + blocks.len());
        if degrees == 0 {
            return 0.0;
        }
        let mean = mean(&settled);
        (settled.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / degrees as f64).sqrt()
    }
}

/// Standard deviation around the means of the two orders, with one degree of freedom less for each non-empty order.
pub(crate) fn within_order_sd(ab: &[f64], ba: &[f64]) -> f64 {
    let squares = |d: &[f64]| {
        let mean = mean(d);
        d.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
    };
    let degrees = ab.len().saturating_sub(1) + ba.len().saturating_sub(1);
    if degrees == 0 {
        return 0.0;
    }
    let total: f64 = [ab, ba].iter().filter(|d| !d.is_empty()).map(|d| squares(d)).sum();
    (total / degrees as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_without_a_counterpart_count_with_another_machine() {
        let whole = Block::new(&[1.0, 2.0], &[3.0]);
        let (no_ba, none) = (Block::new(&[9.0], &[]), Block::new(&[], &[]));
        let complete = Block::complete(&[no_ba.clone(), whole.clone(), none.clone(), whole.clone()]);
        assert_eq!(complete, [Block::new(&[1.0, 2.0, 9.0], &[3.0]), whole]);
        assert_eq!(Block::complete(&[no_ba.clone(), none, no_ba]), [Block::new(&[9.0, 9.0], &[])]);
    }

    #[test]
    fn the_spread_of_blocks_lacks_what_running_second_costs_on_each() {
        let block = |at: f64, second: f64| Block::new(&[at + second, at + second], &[at - second, at - second]);
        // Machines that differ only in what running second costs have no spread.
        assert_eq!(Block::sd_of(&[block(1.0, 0.5), block(1.0, -3.0)]), 0.0);
        // Two machines two apart: eight squares of 1, and 8 − 1 − 2 degrees of freedom.
        let sd = Block::sd_of(&[block(1.0, 0.5), block(3.0, 0.25)]);
        assert!((sd - (8.0_f64 / 5.0).sqrt()).abs() < 1e-12, "{sd}");
        // One pair in each order is enough if there are machines.
        let small = [Block::new(&[1.0], &[1.0]), Block::new(&[2.0], &[2.0])];
        assert!((Block::sd_of(&small) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn blocks_of_equally_many_pairs_have_the_plain_mean() {
        let blocks = [Block::new(&[1.0, 5.0], &[2.0, 4.0]), Block::new(&[7.0, 1.0], &[0.0, 0.0])];
        assert!((Block::mean_of(&blocks) - 2.5).abs() < 1e-12);
        // Three pairs weigh less than four, and running second is still no part of it.
        let second = 10.0;
        let lost = [Block::new(&[2.0 + second, 2.0 + second], &[2.0 - second]), Block::new(&[5.0], &[5.0])];
        let want = (2.0 * 2.0 / 3.0 + 5.0 * 0.5) / (2.0 / 3.0 + 0.5);
        assert!((Block::mean_of(&lost) - want).abs() < 1e-12);
    }
}
