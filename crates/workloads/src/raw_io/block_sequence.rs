//! The blocks that a cell's requests access, and the contents that writes leave there.
//!
//! Invariant: every request slot (of every process) has its own share of the disk, so that two writes never race for a block, and
//! the last write of a block can be computed from the seed and the counts.

use super::options::{Cell, Matrix, Pattern};
use bigiron_sys::load::rng::SplitMix64;
use bigiron_sys::load::stamp::BLOCK;

/// The successive places of one slot of a process's engine.
pub struct BlockSequence {
    /// Blocks of this slot; number k is `k * depth` blocks after the first.
    count: u64,
    first: u64,
    stride: u64,
    block: u64,
    pattern: Pattern,
    rng: SplitMix64,
    next: u64,
}

impl BlockSequence {
    /// The places of `slot` of `process` in a cell.
    pub fn new(matrix: &Matrix, cell: &Cell, seed: u64, process: usize, slot: usize) -> Self {
        let (block, depth) = (cell.block as u64, cell.engine.depth as u64);
        let sharers = matrix.sharers(cell) as u64;
        let region = matrix.bytes / sharers / block;
        let first = (process / matrix.disks) as u64 * region + slot as u64;
        Self {
            count: region / depth,
            first,
            stride: depth,
            block,
            pattern: cell.pattern,
            rng: SplitMix64::stream(seed, &format!("{}/{process}/{slot}", cell.name)),
            next: 0,
        }
    }

    /// The offset of the next request.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let k = match self.pattern {
            Pattern::Sequential => self.next % self.count,
            Pattern::Random => self.rng.below(self.count),
        };
        self.next += 1;
        (self.first + k * self.stride) * self.block
    }
}

/// Requests of each slot before the measured part, and in it.
pub fn shares(matrix: &Matrix, cell: &Cell) -> (u64, u64) {
    let slots = (cell.processes * cell.engine.depth) as u64;
    let measured = matrix.requests.div_ceil(slots);
    (measured.div_ceil(8), measured)
}

/// The generation that a write leaves in its pages: never 0, which is the initial one.
#[inline]
pub fn generation(cell: usize, slot: usize, number: u64) -> u64 {
    (cell as u64 + 1) << 48 | (slot as u64) << 36 | (number + 1)
}

/// The last generation of every page of every disk.
pub fn last_writes(matrix: &Matrix, seed: u64) -> Vec<Vec<u64>> {
    let pages = (matrix.bytes / BLOCK as u64) as usize;
    let mut last = vec![vec![0; pages]; matrix.disks];
    for (number, cell) in matrix.cells.iter().enumerate().filter(|(_, c)| c.write) {
        let (warm_up, measured) = shares(matrix, cell);
        for process in 0..cell.processes {
            for slot in 0..cell.engine.depth {
                let mut places = BlockSequence::new(matrix, cell, seed, process, slot);
                for n in 0..warm_up + measured {
                    let page = (places.take() / BLOCK as u64) as usize;
                    last[process % matrix.disks][page..][..cell.block / BLOCK].fill(generation(number, slot, n));
                }
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_model::clock::Clock;
    use std::collections::BTreeSet;

    fn matrix(settings: &[(&str, &str)]) -> Matrix {
        let options = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Matrix::parse(&options, Clock::Exact).unwrap()
    }

    #[test]
    fn no_two_slots_share_a_block_and_none_leaves_the_disk() {
        let matrix =
            matrix(&[("processes", "5"), ("disks", "2"), ("engines", "libaio"), ("size", "8M"), ("depth", "7")]);
        for cell in &matrix.cells {
            let mut seen = BTreeSet::new();
            for process in 0..5 {
                for slot in 0..7 {
                    let mut places = BlockSequence::new(&matrix, cell, 3, process, slot);
                    let own: BTreeSet<_> = (0..100).map(|_| (process % 2, places.take())).collect();
                    assert!(own.iter().all(|(_, at)| at + cell.block as u64 <= matrix.bytes));
                    assert!(own.iter().all(|place| seen.insert(*place)), "{}", cell.name);
                }
            }
        }
    }

    #[test]
    fn sequential_slots_go_on_together() {
        let matrix = matrix(&[("engines", "libaio"), ("depth", "4"), ("blocks", "4K")]);
        let mut slots: Vec<_> = (0..4).map(|slot| BlockSequence::new(&matrix, &matrix.cells[0], 1, 0, slot)).collect();
        let places: Vec<_> =
            (0..3).flat_map(|_| slots.iter_mut().map(BlockSequence::take).collect::<Vec<_>>()).collect();
        assert!(places.iter().enumerate().all(|(n, at)| *at == n as u64 * 4096));
    }

    #[test]
    fn the_last_write_of_a_page_is_known() {
        let matrix = matrix(&[("engines", "sync"), ("operations", "write"), ("blocks", "8K"), ("size", "1M")]);
        let last = last_writes(&matrix, 5);
        // 288 sequential writes cover 128 blocks a little more than twice; random ones come after.
        let random = last[0].iter().filter(|g| **g >> 48 == 2).count();
        assert!(random > 150 && random < 256, "{random}");
        assert!(last[0].iter().all(|g| *g > 0));
        assert!(last[0].chunks(2).all(|pair| pair[0] == pair[1]));
    }
}
