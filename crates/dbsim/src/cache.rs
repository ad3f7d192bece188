//! The shared buffer cache: blocks in a hash table, replaced by a clock or in LRU order, changed and read by processes under
//! latches.
//!
//! Invariant: a block is in at most one buffer. A pinned or dirty buffer is never given to another block; only the database
//! writer that owns a buffer cleans it (buffers are divided among the writers by number).
//! database writer that owns a buffer makes it clean (buffers are dealt to the writers by their numbers).

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

use anyhow::Result;

use bigiron_sys::latch::{EventCount, Latch};
use bigiron_sys::segment::{ExclusiveFrame, Frames, Segment, SharedFrame, shared_struct};

use super::block::BLOCK;
use super::checkpoints;
use super::job::{Job, Replacement};
use super::lru::Lru;
use super::waits;

/// State of a buffer: pins in the low bits (one for each process and a few of the writers, so they never overflow), and these flags.
const PINS: u32 = (1 << 24) - 1;
/// Used since the clock hand last passed. Not used by LRU replacement.
const HOT: u32 = 1 << 24;
const DIRTY: u32 = 1 << 25;
/// The only bit set in a buffer without a block.
const FREE: u32 = 1 << 26;

/// Number of buffers that a process examines in one LRU list before it tries the next.
const CANDIDATES: usize = 16;

shared_struct! {
    struct Buffer {
        state: AtomicU32,
        /// Block number + 1; 0 for none. Changed under the bucket's latch, like `next`.
        tag: AtomicU32,
        /// The next buffer of the same bucket, + 1; 0 for none.
        next: AtomicU32,
        unused: AtomicU32,
        /// All redo of this block before this LSN is applied on disk. Valid while dirty.
        first_lsn: AtomicU64,
    }
}

shared_struct! {
    struct Bucket {
        latch: Latch,
        /// First buffer of the chain, + 1; 0 for none.
        head: AtomicU32,
    }
}

shared_struct! {
    struct Control {
        hand: AtomicU32,
        unused: AtomicU32,
        /// Counts waits for a free buffer.
        free_waits: AtomicU64,
        /// Processes that wait for a free buffer.
        free: EventCount,
        /// Processes that wait for a batch to be on disk.
        written: EventCount,
    }
}

shared_struct! {
    /// A database writer, and the buffers that it owns.
    struct Writer {
        /// Dirty ones among them.
        dirty: AtomicU32,
        unused: AtomicU32,
        /// Twice the number of its batches so far; one more while a batch is on its way to disk.
        batches: AtomicU64,
        /// The writer sleeps here.
        work: EventCount,
        /// So that no two writers share a cache line.
        padding: [AtomicU64; 5],
    }
}

/// The cache, as every process sees it.
pub struct Cache<'s> {
    control: &'s Control,
    writers: &'s [Writer],
    buffers: &'s [Buffer],
    buckets: &'s [Bucket],
    frames: Frames<'s>,
    /// `None`: a clock.
    lru: Option<Lru<'s>>,
    /// Number of dirty buffers of one writer at which it starts to clean.
    dirty_limit: usize,
}

/// The database writers, to be woken.
pub struct Writers<'a>(&'a [Writer]);

impl Writers<'_> {
    pub fn signal(&self) {
        for w in self.0 {
            w.work.signal();
        }
    }
}

/// A pinned buffer: it keeps this block until dropped.
pub struct Pin<'a> {
    cache: &'a Cache<'a>,
    buffer: usize,
    /// Whether the block was in the cache.
    pub hit: bool,
}

impl<'s> Cache<'s> {
    /// Bytes of segment for the job's cache.
    pub fn bytes(job: &Job) -> usize {
        let n = job.buffers();
        let headers = n * size_of::<Buffer>() + n.next_power_of_two() * size_of::<Bucket>() + Lru::bytes(n);
        Frames::bytes(n, BLOCK) + headers + checkpoints::writers(job) * size_of::<Writer>() + (1 << 12)
    }

    pub fn new(segment: &'s Segment, job: &Job) -> Self {
        let n = job.buffers();
        // Without a writer no buffer stays dirty for long, but every buffer needs an owner.
        let writers = checkpoints::writers(job).max(1);
        let cache = Self {
            control: segment.one(),
            writers: segment.many(writers),
            buffers: segment.many(n),
            buckets: segment.many(n.next_power_of_two()),
            frames: segment.frames(n, BLOCK),
            lru: (job.cache.replacement == Replacement::Lru).then(|| Lru::new(segment, n)),
            dirty_limit: n * job.cache.dirty_percent as usize / 100 / writers,
        };
        for b in cache.buffers {
            b.state.store(FREE, SeqCst);
        }
        cache
    }

    /// Pins the buffer of `block`, calling `read` to fill it if the block is not in the cache.
    pub fn get(&self, block: u32, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Pin<'_>> {
        let bucket = self.bucket(block);
        loop {
            if let Some(buffer) = self.pin_cached(bucket, block) {
                self.used(buffer);
                return Ok(Pin { cache: self, buffer, hit: true });
            }
            let buffer = self.victim();
            // Latched before others can find it: a process that finds it waits until the block is there.
            let mut frame = self.frames.exclusive(buffer);
            {
                let _held = bucket.latch.lock();
                if self.find(bucket, block).is_some() {
                    self.buffers[buffer].state.store(FREE, SeqCst);
                    continue;
                }
                let b = &self.buffers[buffer];
                b.tag.store(block + 1, SeqCst);
                b.next.store(bucket.head.load(SeqCst), SeqCst);
                bucket.head.store(buffer as u32 + 1, SeqCst);
                b.state.store(self.hot() + 1, SeqCst);
            }
            self.used(buffer);
            read(&mut frame)?;
            return Ok(Pin { cache: self, buffer, hit: false });
        }
    }

    fn bucket(&self, block: u32) -> &'s Bucket {
        let hash = block.wrapping_mul(0x9e37_79b1) >> 8;
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    fn pin_cached(&self, bucket: &Bucket, block: u32) -> Option<usize> {
        let _held = bucket.latch.lock();
        let buffer = self.find(bucket, block)?;
        let state = &self.buffers[buffer].state;
        state.fetch_add(1, SeqCst);
        if self.lru.is_none() {
            state.fetch_or(HOT, SeqCst);
        }
        Some(buffer)
    }

    /// Marks a buffer as recently used, for the clock.
    fn hot(&self) -> u32 {
        if self.lru.is_none() { HOT } else { 0 }
    }

    /// Updates the LRU lists; must be called without a latch.
    fn used(&self, buffer: usize) {
        if let Some(lru) = &self.lru {
            lru.touch(buffer);
        }
    }

    /// Must be called with the bucket's latch held.
    fn find(&self, bucket: &Bucket, block: u32) -> Option<usize> {
        let mut at = bucket.head.load(SeqCst);
        while at != 0 {
            let buffer = &self.buffers[at as usize - 1];
            if buffer.tag.load(SeqCst) == block + 1 {
                return Some(at as usize - 1);
            }
            at = buffer.next.load(SeqCst);
        }
        None
    }

    /// A free buffer, pinned once. Waits for the database writers if all buffers are pinned, hot or dirty.
    fn victim(&self) -> usize {
        loop {
            let ticket = self.control.free.ticket();
            let found = match &self.lru {
                None => self.clock_victim(),
                Some(lru) => self.lru_victim(lru),
            };
            if let Some(buffer) = found {
                return buffer;
            }
            self.control.free_waits.fetch_add(1, SeqCst);
            self.writer().signal();
            waits::during(waits::WaitEvent::FreeBuffer, || self.control.free.wait(ticket));
        }
    }

    fn clock_victim(&self) -> Option<usize> {
        // Two rounds: the first round makes hot buffers cold.
        let step = |_| self.control.hand.fetch_add(1, SeqCst) as usize % self.buffers.len();
        (0..=2 * self.buffers.len()).map(step).find(|at| self.evict(*at))
    }

    fn lru_victim(&self, lru: &Lru<'_>) -> Option<usize> {
        let idle = |buffer: usize| matches!(self.buffers[buffer].state.load(SeqCst), 0 | FREE);
        // Two rounds: others may take the buffers that this process has found.
        for _ in 0..2 * lru.lists() {
            let mut found = [0; CANDIDATES];
            let n = lru.oldest(lru.turn(), &mut found, idle);
            if let Some(buffer) = found[..n].iter().find(|b| self.evict(**b)) {
                return Some(*buffer);
            }
        }
        None
    }

    fn evict(&self, at: usize) -> bool {
        let b = &self.buffers[at];
        match b.state.load(SeqCst) {
            FREE => return b.state.compare_exchange(FREE, 1, SeqCst, SeqCst).is_ok(),
            HOT => {
                b.state.fetch_and(!HOT, SeqCst);
                return false;
            }
            0 => {}
            _ => return false,
        }
        let tag = b.tag.load(SeqCst);
        if tag == 0 {
            return false;
        }
        let bucket = self.bucket(tag - 1);
        let _held = bucket.latch.lock();
        // Under the latch nobody can pin it, and only the holder of a pin can make it dirty.
        if b.tag.load(SeqCst) != tag || b.state.compare_exchange(0, 1, SeqCst, SeqCst).is_err() {
            return false;
        }
        self.unlink(bucket, at);
        b.tag.store(0, SeqCst);
        true
    }

    fn unlink(&self, bucket: &Bucket, buffer: usize) {
        let next = self.buffers[buffer].next.load(SeqCst);
        let mut link = &bucket.head;
        while link.load(SeqCst) != buffer as u32 + 1 {
            link = &self.buffers[link.load(SeqCst) as usize - 1].next;
        }
        link.store(next, SeqCst);
    }

    /// Present number of dirty buffers.
    pub fn dirty(&self) -> usize {
        self.writers.iter().map(|w| w.dirty.load(SeqCst) as usize).sum()
    }

    /// Number of waits for a free buffer.
    pub fn free_waits(&self) -> u64 {
        self.control.free_waits.load(SeqCst)
    }

    /// Where the database writers sleep; a process with work for them signals.
    pub fn writer(&self) -> Writers<'_> {
        Writers(self.writers)
    }

    /// Sleeps until every batch now on its way to disk has arrived.
    pub fn wait_written(&self) {
        let under_way: Vec<_> = self.writers.iter().map(|w| w.batches.load(SeqCst)).collect();
        for (w, batch) in self.writers.iter().zip(under_way).filter(|(_, batch)| batch % 2 == 1) {
            self.control.written.wait_until(|| w.batches.load(SeqCst) != batch);
        }
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    // The following functions are for the database writers, numbered from 0.

    /// Sleeps until `writer` has something to clean, or `other` returns true. `served` is the number of waits for a free buffer
    /// that it already knows of.
    pub fn wait_work(&self, writer: usize, served: u64, other: impl Fn() -> bool) {
        let own = &self.writers[writer];
        own.work.wait_until(|| {
            let dirty = own.dirty.load(SeqCst) as usize;
            let asked = self.free_waits() != served || (dirty > 0 && self.control.free.waiting() > 0);
            asked || dirty > self.dirty_limit || other()
        });
    }

    /// Must be called before a batch of `writer` goes to disk.
    pub fn batch_begins(&self, writer: usize) {
        self.writers[writer].batches.fetch_add(1, SeqCst);
    }

    /// Must be called when the batch is on disk: wakes those that wait for it.
    pub fn batch_ends(&self, writer: usize) {
        self.writers[writer].batches.fetch_add(1, SeqCst);
        self.control.written.signal();
    }

    /// Must be called when `count` buffers have been cleaned and unpinned, and after a round with nothing to clean: wakes as many
    /// waiters for a free buffer as can get one. With nothing left to clean, all of them must look again.
    pub fn cleaned(&self, count: usize) {
        if self.dirty() == 0 {
            self.control.free.signal();
        } else if count > 0 {
            self.control.free.signal_some(count as u32);
        }
    }

    /// Buffers of `writer` that are dirty with changes from before LSN `before`.
    pub fn dirty_before(&self, writer: usize, before: u64) -> impl Iterator<Item = usize> + '_ {
        let own = (writer..self.buffers.len()).step_by(self.writers.len());
        own.filter(move |b| {
            let b = &self.buffers[*b];
            b.state.load(SeqCst) & DIRTY != 0 && b.first_lsn.load(SeqCst) < before
        })
    }

    /// At most `max` dirty buffers of `writer`: those that replacement reaches next.
    pub fn coldest_dirty(&self, writer: usize, max: usize) -> Vec<usize> {
        let state = |b: usize| self.buffers[b].state.load(SeqCst);
        let own = |b: usize| b % self.writers.len() == writer;
        if let Some(lru) = &self.lru {
            let mut due = Vec::with_capacity(max);
            let mut found = vec![0; max.div_ceil(lru.lists())];
            for list in 0..lru.lists() {
                let n = lru.oldest(list, &mut found, |b| own(b) && state(b) & DIRTY != 0);
                due.extend_from_slice(&found[..n]);
            }
            due.truncate(max);
            return due;
        }
        let hand = self.control.hand.load(SeqCst) as usize;
        // Hot ones only if there are no others.
        for unwanted in [HOT, 0] {
            let ahead = (0..self.buffers.len()).map(|i| (hand + i) % self.buffers.len());
            let due = ahead.filter(|b| own(*b) && state(*b) & (DIRTY | unwanted) == DIRTY).take(max);
            let due: Vec<_> = due.collect();
            if !due.is_empty() {
                return due;
            }
        }
        Vec::new()
    }

    /// The number of a dirty buffer's block.
    pub fn block_of(&self, buffer: usize) -> u32 {
        self.buffers[buffer].tag.load(SeqCst) - 1
    }

    /// Takes a dirty buffer for writing: copies the block to `page`, marks the buffer clean, and keeps it pinned until the write
    /// is done. Returns the block's number. Only for the writer that owns the buffer: nobody else cleans it, so a dirty buffer
    /// stays dirty, and keeps its block, until this call.
    pub fn take_dirty(&self, buffer: usize, page: &mut [u8]) -> (u32, Pin<'_>) {
        let b = &self.buffers[buffer];
        b.state.fetch_add(1, SeqCst);
        let frame = self.frames.shared(buffer);
        page.copy_from_slice(&frame);
        b.state.fetch_and(!DIRTY, SeqCst);
        self.writers[buffer % self.writers.len()].dirty.fetch_sub(1, SeqCst);
        (self.block_of(buffer), Pin { cache: self, buffer, hit: true })
    }
}

impl<'a> Pin<'a> {
    /// The block for reading.
    pub fn read(&self) -> SharedFrame<'a> {
        self.cache.frames.shared(self.buffer)
    }

    /// The block for changing.
    pub fn write(&self) -> ExclusiveFrame<'a> {
        self.cache.frames.exclusive(self.buffer)
    }

    /// Marks the block dirty. Must be called with the frame latched by [`Pin::write`] and before the change gets its LSN, which
    /// must not be smaller than `lsn`: a checkpoint that looks for changes up to some LSN must not miss this one.
    pub fn dirty(&self, lsn: u64) {
        let b = &self.cache.buffers[self.buffer];
        if b.state.load(SeqCst) & DIRTY == 0 {
            b.first_lsn.store(lsn, SeqCst);
            b.state.fetch_or(DIRTY, SeqCst);
            let owner = &self.cache.writers[self.buffer % self.cache.writers.len()];
            if owner.dirty.fetch_add(1, SeqCst) as usize >= self.cache.dirty_limit {
                owner.work.signal();
            }
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let before = self.cache.buffers[self.buffer].state.fetch_sub(1, SeqCst);
        debug_assert!(before & PINS > 0, "unpinned too often");
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
