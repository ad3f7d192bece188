//! The shared buffer cache: blocks by hash, replaced by a clock, changed and read under latches by processes.
//!
//! Invariant: a block is in at most one buffer. A buffer that is pinned or dirty is never given to another block; only the
//! database writer makes a dirty buffer clean.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

use anyhow::Result;

use crate::sys::latch::{Event, Latch};
use crate::sys::segment::{ExclusiveFrame, Frames, Segment, SharedFrame, shared_struct};

use super::block::BLOCK;
use super::job::Job;

/// State of a buffer: pins in the low bits, and these.
const PINS: u32 = 0xffff;
const HOT: u32 = 1 << 16;
const DIRTY: u32 = 1 << 17;
/// All bits clear but this one: belongs to no block.
const FREE: u32 = 1 << 18;

shared_struct! {
    struct Buffer {
        state: AtomicU32,
        /// Block number + 1; 0 for none. Changed under the bucket's latch, like `next`.
        tag: AtomicU32,
        /// The next buffer of the same bucket, + 1; 0 for none.
        next: AtomicU32,
        unused: AtomicU32,
        /// No redo before this LSN is missing on disk for this block. Valid while dirty.
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
        dirty: AtomicU32,
        /// 1 while a batch of blocks is on its way to disk.
        writing: AtomicU32,
        unused: AtomicU32,
        /// Counts the database writer's batches: what a waiter for a free buffer waits for.
        batches: AtomicU64,
        /// Counts waits for a free buffer.
        free_waits: AtomicU64,
        batch_done: Event,
        /// The database writer sleeps here.
        writer: Event,
    }
}

/// The cache, as every process sees it.
pub struct Cache<'s> {
    control: &'s Control,
    buffers: &'s [Buffer],
    buckets: &'s [Bucket],
    frames: Frames<'s>,
}

/// A pinned buffer: stays this block's until dropped.
pub struct Pin<'a> {
    cache: &'a Cache<'a>,
    buffer: usize,
    /// Whether the block was there already.
    pub hit: bool,
}

impl<'s> Cache<'s> {
    /// Bytes of segment that the job's cache takes.
    pub fn bytes(job: &Job) -> usize {
        job.buffers() * (BLOCK + size_of::<Buffer>() + 2 * size_of::<Bucket>() + 64) + (1 << 16)
    }

    pub fn new(segment: &'s Segment, job: &Job) -> Self {
        let n = job.buffers();
        let cache = Self {
            control: segment.one(),
            buffers: segment.many(n),
            buckets: segment.many(n.next_power_of_two()),
            frames: segment.frames(n, BLOCK),
        };
        for b in cache.buffers {
            b.state.store(FREE, SeqCst);
        }
        cache
    }

    /// Pins the buffer that holds `block`, calling `read` to fill it if the block is not in the cache.
    pub fn get(&self, block: u32, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Pin<'_>> {
        let bucket = self.bucket(block);
        loop {
            if let Some(buffer) = self.pin_cached(bucket, block) {
                return Ok(Pin { cache: self, buffer, hit: true });
            }
            let buffer = self.victim();
            // Latched before anybody can find it: who finds it waits until the block is there.
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
                b.state.store(HOT + 1, SeqCst);
            }
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
        state.fetch_or(HOT, SeqCst);
        Some(buffer)
    }

    /// To be called with the bucket's latch held.
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

    /// A buffer of no block, pinned once. Waits for the database writer if everything is pinned, hot or dirty.
    fn victim(&self) -> usize {
        loop {
            let batches = self.control.batches.load(SeqCst);
            // Twice round: the first round makes hot buffers cold.
            for _ in 0..=2 * self.buffers.len() {
                let at = self.control.hand.fetch_add(1, SeqCst) as usize % self.buffers.len();
                if self.evict(at) {
                    return at;
                }
            }
            self.control.free_waits.fetch_add(1, SeqCst);
            self.control.writer.signal();
            self.control.batch_done.wait_until(|| self.control.batches.load(SeqCst) != batches);
        }
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
        // Under the latch nobody can pin it, and only who has a pin can make it dirty.
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

    /// Dirty buffers right now.
    pub fn dirty(&self) -> usize {
        self.control.dirty.load(SeqCst) as usize
    }

    /// Whether so much is dirty that the database writer should clean some (a quarter, so that the clock finds clean buffers).
    pub fn too_dirty(&self) -> bool {
        self.dirty() > self.buffers.len() / 4
    }

    /// How often a process had to wait for a free buffer.
    pub fn free_waits(&self) -> u64 {
        self.control.free_waits.load(SeqCst)
    }

    /// Where the database writer sleeps; whoever has work for it signals.
    pub fn writer(&self) -> &Event {
        &self.control.writer
    }

    /// To be called by the database writer before a batch goes to disk.
    pub fn batch_begins(&self) {
        self.control.writing.store(1, SeqCst);
    }

    /// To be called by the database writer after each batch, and after it has found nothing to write: lets those go on who wait
    /// for a free buffer or for the batch.
    pub fn batch_done(&self) {
        self.control.writing.store(0, SeqCst);
        self.control.batches.fetch_add(1, SeqCst);
        self.control.batch_done.signal();
    }

    /// Sleeps until the batch that is on its way, if one is, has been written.
    pub fn wait_written(&self) {
        let c = self.control;
        let batches = c.batches.load(SeqCst);
        c.batch_done.wait_until(|| c.writing.load(SeqCst) == 0 || c.batches.load(SeqCst) != batches);
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Where the clock hand is: buffers from here on are the next to be looked at for replacement.
    pub fn hand(&self) -> usize {
        self.control.hand.load(SeqCst) as usize % self.buffers.len()
    }

    /// Whether `buffer` is dirty, with changes from before LSN `before`, and (if `cold`) not used lately.
    pub fn wants_writing(&self, buffer: usize, before: u64, cold: bool) -> bool {
        let b = &self.buffers[buffer];
        let state = b.state.load(SeqCst);
        state & DIRTY != 0 && !(cold && state & HOT != 0) && b.first_lsn.load(SeqCst) < before
    }

    /// The number of a dirty buffer's block.
    pub fn block_of(&self, buffer: usize) -> u32 {
        self.buffers[buffer].tag.load(SeqCst) - 1
    }

    /// Takes a dirty buffer for writing: copies the block to `page`, makes the buffer clean, and keeps it pinned until the write
    /// is done. Returns the block's number. For the database writer alone: nobody else makes a buffer clean, so a buffer seen
    /// dirty stays so, and stays the same block's, until here.
    pub fn take_dirty(&self, buffer: usize, page: &mut [u8]) -> (u32, Pin<'_>) {
        let b = &self.buffers[buffer];
        b.state.fetch_add(1, SeqCst);
        let frame = self.frames.shared(buffer);
        page.copy_from_slice(&frame);
        b.state.fetch_and(!DIRTY, SeqCst);
        self.control.dirty.fetch_sub(1, SeqCst);
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

    /// Marks the block dirty. To be called with the frame latched by [`Pin::write`], and before the change gets its LSN, which
    /// must not be smaller than `lsn`: a checkpoint that looks for changes up to some LSN must not miss this one.
    pub fn dirty(&self, lsn: u64) {
        let b = &self.cache.buffers[self.buffer];
        if b.state.load(SeqCst) & DIRTY == 0 {
            b.first_lsn.store(lsn, SeqCst);
            b.state.fetch_or(DIRTY, SeqCst);
            self.cache.control.dirty.fetch_add(1, SeqCst);
            if self.cache.too_dirty() {
                self.cache.control.writer.signal();
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
