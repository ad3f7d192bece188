//! Latency histograms that processes fill while others may read them: the counts of a worker that dies remain.
//!
//! Invariant: log-linear buckets (as in HDR histograms, G. Tene): 1,024 per power of two, so a bucket is at most 0.1 % wide. Memory does not grow
//! with the number of processes: if there are more than [`SHARDS`], they share shards by the CPU on which they run.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rustix::thread::sched_getcpu;

use crate::load::Histogram;
use crate::segment::Segment;

const SUB_BITS: u32 = 10;
const SUB: u64 = 1 << SUB_BITS;
/// Longest distinguishable latency: 2^40 ns, 18 minutes. Longer ones are counted in the last bucket.
const TOP_BITS: u32 = 40;
/// Number of buckets.
pub const BUCKETS: usize = ((TOP_BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// The histogram's place in a shared segment.
#[derive(Clone, Copy)]
pub struct SharedHistogram<'s> {
    buckets: &'s [AtomicU64],
    sum: &'s AtomicU64,
}

impl<'s> SharedHistogram<'s> {
    /// Bytes that it needs of a segment. Only pages that are written to are populated.
    pub const BYTES: usize = BUCKETS * 8 + 128;

    /// An empty histogram in a new part of `segment`.
    pub fn new(segment: &'s Segment) -> Self {
        Self { buckets: segment.many(BUCKETS), sum: segment.one() }
    }

    /// The recorder that counts into it.
    pub fn recorder(self) -> Recorder<'s> {
        Recorder { shards: vec![self], alone: true }
    }

    /// A recorder that counts in lots of at most this many.
    pub fn lot_recorder(self, lot: usize) -> LotRecorder<'s> {
        LotRecorder::of(self.recorder(), lot)
    }

    /// Everything counted so far.
    pub fn read(&self) -> Histogram {
        let mut h = Histogram::new();
        for (i, n) in self.buckets.iter().enumerate() {
            match n.load(Relaxed) {
                0 => {}
                n => h.add(middle(i), n),
            }
        }
        h.set_sum(u128::from(self.sum.load(Relaxed)));
        h
    }
}

/// Most shards of a [`ShardedHistogram`]: enough that few CPUs of a large machine share one, few enough that ten thousand processes need no more
/// memory than eight.
pub const SHARDS: usize = 8;

/// A histogram that many processes fill, in a limited number of shards.
pub struct ShardedHistogram<'s> {
    shards: Vec<SharedHistogram<'s>>,
    /// Whether every process has its own shard.
    alone: bool,
}

impl<'s> ShardedHistogram<'s> {
    /// Bytes that it needs of a segment for this many processes.
    pub const fn bytes(processes: usize) -> usize {
        let shards = if processes < SHARDS { processes } else { SHARDS };
        shards * (SharedHistogram::BYTES + 64)
    }

    /// An empty histogram for processes numbered below `processes`, in a new part of `segment`.
    pub fn new(segment: &'s Segment, processes: usize) -> Self {
        let shards = (0..processes.min(SHARDS)).map(|_| SharedHistogram::new(segment)).collect();
        Self { shards, alone: processes <= SHARDS }
    }

    /// The recorder of one process; each process has at most one.
    pub fn recorder(&self, process: usize) -> Recorder<'s> {
        let shards = if self.alone { vec![self.shards[process]] } else { self.shards.clone() };
        Recorder { shards, alone: self.alone }
    }

    /// The recorder of one process that counts in lots.
    pub fn lot_recorder(&self, process: usize) -> LotRecorder<'s> {
        LotRecorder::of(self.recorder(process), LOT)
    }

    /// Everything that all processes have counted so far.
    pub fn read(&self) -> Histogram {
        let mut all = Histogram::new();
        for shard in &self.shards {
            all.merge(&shard.read());
        }
        all
    }
}

/// Counts latencies into a [`SharedHistogram`] of its own, or into the shards that processes share.
pub struct Recorder<'s> {
    shards: Vec<SharedHistogram<'s>>,
    alone: bool,
}

impl Recorder<'_> {
    /// Counts one latency of `ns` nanoseconds.
    pub fn record(&self, ns: u64) {
        self.record_all([(ns, 1)]);
    }

    /// Counts latencies in nanoseconds, each this many times.
    #[inline]
    fn record_all(&self, latencies: impl IntoIterator<Item = (u64, u64)>) {
        let mut sum = 0;
        if self.alone {
            // One writer: plain loads and stores, no locked instruction on the measured path.
            let to = &self.shards[0];
            for (ns, count) in latencies {
                let bucket = &to.buckets[index(ns)];
                bucket.store(bucket.load(Relaxed) + count, Relaxed);
                sum += ns * count;
            }
            to.sum.store(to.sum.load(Relaxed) + sum, Relaxed);
        } else {
            // By CPU, so that on small machines no cache line moves between CPUs. A process that is moved in the meantime loses no count.
            let to = &self.shards[sched_getcpu() % self.shards.len()];
            for (ns, count) in latencies {
                to.buckets[index(ns)].fetch_add(count, Relaxed);
                sum += ns * count;
            }
            to.sum.fetch_add(sum, Relaxed);
        }
    }
}

/// Most entries of the [`LotRecorder`] of one of many processes: half a KiB.
const LOT: usize = 32;

/// Counts latencies in lots, the last one when it is dropped. It suits a process that sleeps between latencies and would find the histogram's pages
/// in no cache of its CPU after each wake-up, and a process whose requests leave no room in the caches for such pages. A process that dies loses its
/// current lot.
pub struct LotRecorder<'s> {
    to: Recorder<'s>,
    /// Nanoseconds, and the number of latencies that took them.
    lot: Vec<(u64, u64)>,
}

impl<'s> LotRecorder<'s> {
    fn of(to: Recorder<'s>, lot: usize) -> Self {
        Self { to, lot: Vec::with_capacity(lot.max(1)) }
    }

    /// Counts one latency of `ns` nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Counts `count` latencies of `ns` nanoseconds each, of a batch that began and ended as one.
    #[inline]
    pub fn record_many(&mut self, ns: u64, count: u64) {
        if self.lot.len() == self.lot.capacity() {
            self.flush();
        }
        self.lot.push((ns, count));
    }

    /// Counts the current lot.
    #[cold]
    #[inline(never)]
    pub fn flush(&mut self) {
        self.to.record_all(self.lot.drain(..));
    }
}

impl Drop for LotRecorder<'_> {
    fn drop(&mut self) {
        if !self.lot.is_empty() {
            self.flush();
        }
    }
}

/// The bucket of a value: itself below 2 × SUB, then SUB buckets for every power of two.
fn index(ns: u64) -> usize {
    let ns = ns.min((1 << TOP_BITS) - 1);
    let shift = (u64::BITS - 1 - (ns | SUB).leading_zeros()) - SUB_BITS;
    ((u64::from(shift) << SUB_BITS) + (ns >> shift)) as usize
}

/// The middle value of a bucket.
fn middle(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 * SUB {
        return index;
    }
    let shift = (index >> SUB_BITS) - 1;
    let low = (index - (shift << SUB_BITS)) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, fork_child};
    use proptest::prelude::*;

    #[test]
    fn a_childs_counts_are_read_by_its_parent() {
        let segment = Segment::new(SharedHistogram::BYTES + 64).unwrap();
        let histogram = SharedHistogram::new(&segment);
        let child = fork_child(|| {
            let recorder = histogram.recorder();
            for ns in 1..=10_000 {
                recorder.record(ns * 1_000);
            }
            0
        });
        assert_eq!(child.unwrap().wait().unwrap(), Exit::Status(0));
        let read = histogram.read();
        assert_eq!(read.count(), 10_000);
        assert_eq!(read.mean(), Some(5_000_500.0));
        let p99 = read.quantile(0.99).unwrap() as f64;
        assert!((p99 / 9_900_000.0 - 1.0).abs() < 0.002, "{p99}");
    }

    #[test]
    fn a_batch_is_as_many_single_ones() {
        let segment = Segment::new(2 * SharedHistogram::BYTES + 128).unwrap();
        let (batch, single) = (SharedHistogram::new(&segment), SharedHistogram::new(&segment));
        for (ns, count) in [(700, 16), (5_000_000, 3), (700, 1)] {
            batch.lot_recorder(1).record_many(ns, count);
            (0..count).for_each(|_| single.recorder().record(ns));
        }
        let (batch, single) = (batch.read(), single.read());
        assert_eq!((batch.count(), batch.mean()), (20, single.mean()));
        assert_eq!(batch.quantile(0.9), single.quantile(0.9));
    }

    #[test]
    fn a_lot_is_as_many_single_ones() {
        for processes in [1, SHARDS + 1] {
            let segment = Segment::new(2 * ShardedHistogram::bytes(processes) + 128).unwrap();
            let (lots, single) =
                (ShardedHistogram::new(&segment, processes), ShardedHistogram::new(&segment, processes));
            let mut recorder = lots.lot_recorder(0);
            // Two full lots, and a third that the recorder keeps until it is dropped.
            for ns in (1..=2 * LOT as u64 + 5).map(|i| i * i * 997) {
                recorder.record(ns);
                single.recorder(0).record(ns);
            }
            assert_eq!(lots.read().count(), 2 * LOT as u64);
            drop(recorder);
            let (lots, single) = (lots.read(), single.read());
            assert_eq!((lots.count(), lots.mean()), (2 * LOT as u64 + 5, single.mean()));
            for q in [0.1, 0.5, 0.9, 1.0] {
                assert_eq!(lots.quantile(q), single.quantile(q));
            }
        }
    }

    #[test]
    fn no_count_of_many_processes_is_lost() {
        const PROCESSES: usize = 2 * SHARDS + 3;
        let segment = Segment::new(ShardedHistogram::bytes(PROCESSES) + 64).unwrap();
        let histogram = ShardedHistogram::new(&segment, PROCESSES);
        let children: Vec<_> = (0..PROCESSES)
            .map(|process| {
                let recorder = histogram.recorder(process);
                fork_child(move || {
                    for ns in 1..=5_000 {
                        recorder.record(ns);
                    }
                    0
                })
                .unwrap()
            })
            .collect();
        for child in children {
            assert_eq!(child.wait().unwrap(), Exit::Status(0));
        }
        let read = histogram.read();
        assert_eq!(read.count(), 5_000 * PROCESSES as u64);
        assert_eq!(read.mean(), Some(2_500.5));
    }

    #[test]
    fn memory_is_bounded_by_the_shards() {
        assert_eq!(ShardedHistogram::bytes(10_000), ShardedHistogram::bytes(SHARDS));
        assert!(ShardedHistogram::bytes(2) < ShardedHistogram::bytes(3));
    }

    #[test]
    fn values_beyond_the_top_are_counted() {
        assert_eq!(index(u64::MAX), BUCKETS - 1);
        assert_eq!(index(0), 0);
    }

    proptest! {
        #[test]
        fn a_buckets_middle_is_near_every_value_in_it(ns in 0u64..1 << TOP_BITS) {
            let m = middle(index(ns));
            prop_assert!(m.abs_diff(ns) as f64 <= ns as f64 * 0.0005);
            prop_assert_eq!(index(m), index(ns));
        }

        #[test]
        fn percentiles_are_near_the_sorted_list(
            // From a nanosecond to five minutes, every order of magnitude equally likely.
            exponents in prop::collection::vec(0.0f64..38.0, 1..600), seed in any::<u64>()
        ) {
            let mut values: Vec<u64> = exponents.iter().map(|e| (e.exp2() + (seed % 97) as f64) as u64).collect();
            let segment = Segment::new(SharedHistogram::BYTES + 64).unwrap();
            let histogram = SharedHistogram::new(&segment);
            let recorder = histogram.recorder();
            for ns in &values {
                recorder.record(*ns);
            }
            values.sort_unstable();
            let read = histogram.read();
            for q in [0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
                let exact = values[rank - 1] as f64;
                prop_assert!((read.quantile(q).unwrap() as f64 / exact - 1.0).abs() <= 0.002, "{q} of {exact}");
            }
        }
    }

    #[test]
    fn minutes_are_told_apart() {
        let segment = Segment::new(SharedHistogram::BYTES + 64).unwrap();
        let histogram = SharedHistogram::new(&segment);
        let minutes = |n: u64| n * 60_000_000_000;
        for n in [1, 5, 18] {
            histogram.recorder().record(minutes(n));
        }
        let read = histogram.read();
        for (q, n) in [(0.3, 1), (0.6, 5), (1.0, 18)] {
            let found = read.quantile(q).unwrap();
            assert!((found as f64 / minutes(n) as f64 - 1.0).abs() < 0.002, "{found}");
        }
    }
}
