//! The steps of a transaction.

use std::time::Duration;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Gets blocks of the data files.
    Read { count: u32, choice: Choice },
    /// Changes blocks that were got since the last `dirty`.
    Dirty(Amount),
    /// Bytes of redo in addition to the changes' own, uniform between the two.
    Redo { min: u32, max: u32 },
    /// Waits until everything this transaction did is durable.
    Commit,
    /// Undoes the changes (which also writes redo) instead of committing them.
    Rollback,
    /// Computes for this time.
    Cpu(Duration),
    /// Sleeps for this time.
    Think(Duration),
    /// Sorts this many bytes in memory.
    Sort(u64),
}

/// The number of blocks that are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many of them.
    Count(u32),
    /// Each with this probability, in per cent.
    Percent(u32),
}

/// The distribution of blocks.
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
    /// Maximum number of blocks that the step gets.
    pub fn gets_max(&self) -> usize {
        match self {
            Step::Read { count, .. } => *count as usize,
            _ => 0,
        }
    }
}
