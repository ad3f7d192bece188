//! Replicates on all cores.
//!
//! Invariant: chunk number and cell decide a chunk's random stream, so results do not depend on which thread ran which chunk.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use bigiron_stats::order::{self, ChaCha12Rng};

use super::Setting;

const CHUNK: u64 = 50;

/// Counters of one cell that can be summed over chunks.
pub(super) trait Tally: Default + Send {
    fn merge(&mut self, other: Self);
}

/// Runs `replicates` of `one` for the cell named `cell`.
pub(super) fn replicate<T: Tally>(
    setting: &Setting,
    replicates: u64,
    cell: &str,
    one: impl Fn(&mut ChaCha12Rng, &mut T) + Sync,
) -> T {
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    let work = || {
        let mut tally = T::default();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            let first = chunk * CHUNK;
            if first >= replicates {
                return tally;
            }
            let mut rng = order::rng(setting.seed);
            rng.set_stream(stream(cell, chunk));
            for _ in first..replicates.min(first + CHUNK) {
                one(&mut rng, &mut tally);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut sum = T::default();
        for worker in workers {
            sum.merge(worker.join().expect("A worker panicked"));
        }
        sum
    })
}

/// FNV-1a over the cell's name and the chunk's number.
fn stream(cell: &str, chunk: u64) -> u64 {
    cell.bytes()
        .chain(chunk.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
