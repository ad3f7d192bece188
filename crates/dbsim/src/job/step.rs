//! The steps of a transaction.

use std::time::Duration;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Gets blocks of the data files.
    Read { count: u32, choice: Choice },
    /// Changes blocks that were got since the last `dirty`.
    Dirty(Amount),
    /// Bytes of redo on top of what the changes need, uniform between the two.
    Redo { min: u32, max: u32 },
    /// Waits until everything this transaction did is durable.
    Commit,
    /// Undoes the changes (which is redo too) instead of committing them.
    Rollback,
    /// Computes for so long.
    Cpu(Duration),
    /// Sleeps for so long.
    Think(Duration),
    /// Sorts this many bytes in memory.
    Sort(u64),
}

/// How many of the blocks got are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many of them.
    Count(u32),
    /// Each with this probability, in per cent.
    Percent(u32),
}

/// Which blocks are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    Uniform,
    /// A Zipf distribution with this exponent over scattered ranks.
    Zipf(f64),
    /// TPC-C's NURand(A, 0, blocks − 1).
    NuRand(u64),
    /// `gets` per cent of the gets go to `blocks` per cent of the blocks.
    Hot {
        gets: u32,
        blocks: u32,
    },
}

impl Step {
    /// Blocks that the step gets, at most.
    pub fn gets_max(&self) -> usize {
        match self {
            Step::Read { count, .. } => *count as usize,
            _ => 0,
        }
    }
}
