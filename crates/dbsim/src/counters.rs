//! The counters of each process, in memory that the parent reads.
//!
//! Invariant: only the process itself changes its counters, so no locked instruction is needed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use bigiron_sys::segment::shared_struct;

shared_struct! {
    /// The counters of one process.
    pub struct ProcessCounters {
        /// Blocks requested from the cache, and cache hits.
        pub gets: AtomicU64,
        pub hits: AtomicU64,
        /// Commits that waited for the log.
        pub commits: AtomicU64,
        /// Blocks or extents read, blocks written.
        pub reads: AtomicU64,
        pub writes: AtomicU64,
        /// Write batches of the database writer.
        pub batches: AtomicU64,
        /// Transactions rolled back, and pieces of work that began after their intended start.
        pub rollbacks: AtomicU64,
        pub late: AtomicU64,
        /// Bytes read in bulk.
        pub bytes: AtomicU64,
        /// Nanoseconds that the window's transactions spent outside all waits.
        pub outside_ns: AtomicU64,
        /// Jobs of the sideline classes, and their traffic.
        pub jobs: AtomicU64,
        pub read_bytes: AtomicU64,
        pub written_bytes: AtomicU64,
        /// Blocks of its file that a loader has made durable.
        pub loaded_blocks: AtomicU64,
    }
}

impl ProcessCounters {
    /// Adds one. Only for counters that a single process changes: no locked instruction.
    pub fn bump(counter: &AtomicU64) {
        Self::grow(counter, 1);
    }

    /// Adds `by`, likewise.
    pub fn grow(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Relaxed) + by, Release);
    }
}
