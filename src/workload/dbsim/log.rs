//! The log buffer that all processes share, and waiting for it to be on disk.
//!
//! Invariant: what is in the log buffer always has a place in the current journal: who wants to write redo reserves the place
//! before it holds anything that others need. So the log writer can always flush, the database writer (which must not write a
//! block ahead of its redo) never waits in a circle with a log switch, and the switch waits for the checkpoint alone.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::sys::latch::Event;
use crate::sys::segment::{LatchedBytes, Segment, shared_struct};

use super::job::Job;
use super::journal::{self, CHUNK_HEADER, JOURNAL_HEADER};

shared_struct! {
    struct Control {
        // Under the buffer's latch:
        /// LSN of the open chunk's first byte.
        chunk: AtomicU64,
        /// Bytes in the open chunk, its header included.
        fill: AtomicU64,
        /// Bytes reserved and not yet used, at their worst.
        reserved: AtomicU64,
        /// LSN behind the current journal's last byte.
        journal_end: AtomicU64,
        /// LSN at which the current journal starts.
        journal_start: AtomicU64,
        /// 1: the journal is full; no more reservations until the switch is done.
        switching: AtomicU64,
        /// Records so far.
        records: AtomicU64,

        // Read without the latch:
        /// LSN of the next record.
        next: AtomicU64,
        /// Everything before this LSN is on disk.
        flushed: AtomicU64,
        /// The highest LSN that somebody waits for.
        wanted: AtomicU64,
        /// The checkpoint asked for: all changes before this LSN have to be in the data files.
        checkpoint_target: AtomicU64,
        /// The checkpoint reached.
        checkpoint: AtomicU64,

        // Counters:
        flushes: AtomicU64,
        flushed_bytes: AtomicU64,
        switches: AtomicU64,
        space_waits: AtomicU64,

        /// The log writer sleeps here.
        writer: Event,
        /// Reservations wait here.
        space: Event,
        checkpointed: Event,
    }
}

shared_struct! {
    struct Waiter {
        /// The LSN it waits for; 0 for none.
        lsn: AtomicU64,
        flushed: Event,
    }
}

/// The log, as every process sees it.
pub struct Log<'s> {
    control: &'s Control,
    buffer: LatchedBytes<'s>,
    waiters: &'s [Waiter],
    redo_block: u64,
    journal_bytes: u64,
}

/// What the log writer has done since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogCounts {
    pub flushes: u64,
    pub flushed_bytes: u64,
    pub switches: u64,
    /// Waits for room in the log buffer or for a log switch.
    pub space_waits: u64,
}

/// Room in log buffer and journal for what one transaction will write.
pub struct Reservation<'a> {
    log: &'a Log<'a>,
    left: u64,
}

/// A closed chunk, copied out of the buffer.
pub struct Closed {
    pub lsn: u64,
    /// Bytes, padded to the redo block.
    pub len: usize,
    /// Bytes without the padding.
    pub used: usize,
}

impl<'s> Log<'s> {
    /// Bytes of segment that the log takes.
    pub fn bytes(job: &Job, waiters: usize) -> usize {
        job.log_buffer_bytes() + waiters * size_of::<Waiter>() + (1 << 16)
    }

    /// An empty log at the start of the first journal, for processes numbered below `waiters`.
    pub fn new(segment: &'s Segment, job: &Job, waiters: usize) -> Self {
        let log = Self {
            control: segment.one(),
            buffer: segment.latched(job.log_buffer_bytes()),
            waiters: segment.many(waiters),
            redo_block: job.journal.block as u64,
            journal_bytes: job.journal.bytes - JOURNAL_HEADER as u64,
        };
        log.control.fill.store(CHUNK_HEADER as u64, SeqCst);
        log.control.next.store(CHUNK_HEADER as u64, SeqCst);
        log.control.journal_end.store(log.journal_bytes, SeqCst);
        log
    }

    /// What one record may cost beyond its bytes: it may be the last of its chunk, which is padded and followed by a header.
    fn overhead(&self) -> u64 {
        self.redo_block + CHUNK_HEADER as u64
    }

    /// Reserves room for `records` records of `bytes` together. To be called without a latch held. Waits for the log writer if
    /// the buffer is full, and for the log switch if the journal is.
    pub fn reserve(&self, records: usize, bytes: usize) -> Reservation<'_> {
        let c = self.control;
        let want = bytes as u64 + records as u64 * self.overhead();
        loop {
            let ticket = c.space.ticket();
            {
                let _held = self.buffer.lock();
                let fill = c.fill.load(SeqCst);
                let worst = fill + c.reserved.load(SeqCst) + want + self.overhead();
                if c.switching.load(SeqCst) == 0 {
                    if c.chunk.load(SeqCst) + worst > c.journal_end.load(SeqCst) {
                        c.switching.store(1, SeqCst);
                    } else if worst > self.buffer.len() as u64 {
                        if fill > CHUNK_HEADER as u64 {
                            c.wanted.fetch_max(c.next.load(SeqCst), SeqCst);
                        }
                    } else {
                        c.reserved.fetch_add(want, SeqCst);
                        return Reservation { log: self, left: want };
                    }
                }
                c.space_waits.fetch_add(1, SeqCst);
            }
            c.writer.signal();
            c.space.wait(ticket);
        }
    }

    /// LSN of the next record, at least.
    pub fn next(&self) -> u64 {
        self.control.next.load(SeqCst)
    }

    /// Everything before this LSN is on disk.
    pub fn flushed(&self) -> u64 {
        self.control.flushed.load(SeqCst)
    }

    /// Sleeps until everything before `lsn` is on disk.
    pub fn wait_flushed(&self, process: usize, lsn: u64) {
        if self.flushed() >= lsn {
            return;
        }
        let waiter = &self.waiters[process];
        waiter.lsn.store(lsn, SeqCst);
        self.control.wanted.fetch_max(lsn, SeqCst);
        self.control.writer.signal();
        waiter.flushed.wait_until(|| self.flushed() >= lsn);
        waiter.lsn.store(0, SeqCst);
    }

    // What follows is for the log writer.

    /// Where the log writer sleeps.
    pub fn writer(&self) -> &Event {
        &self.control.writer
    }

    /// Whether somebody waits for redo that is not on disk.
    pub fn flush_due(&self) -> bool {
        self.control.wanted.load(SeqCst) > self.flushed()
    }

    /// Whether the journal is full and everything that had a place in it is there.
    pub fn switch_due(&self) -> bool {
        let c = self.control;
        let _held = self.buffer.lock();
        c.switching.load(SeqCst) == 1 && c.reserved.load(SeqCst) == 0 && c.fill.load(SeqCst) == CHUNK_HEADER as u64
    }

    /// Closes the open chunk, if there is anything in it, and copies it to the start of `out`, padded.
    pub fn close(&self, out: &mut [u8]) -> Option<Closed> {
        let c = self.control;
        let buffer = self.buffer.lock();
        let used = c.fill.load(SeqCst);
        if used == CHUNK_HEADER as u64 {
            return None;
        }
        let lsn = c.chunk.load(SeqCst);
        let len = used.next_multiple_of(self.redo_block);
        out[CHUNK_HEADER..used as usize].copy_from_slice(&buffer[CHUNK_HEADER..used as usize]);
        out[used as usize..len as usize].fill(0);
        c.chunk.store(lsn + len, SeqCst);
        c.fill.store(CHUNK_HEADER as u64, SeqCst);
        c.next.store(lsn + len + CHUNK_HEADER as u64, SeqCst);
        drop(buffer);
        c.space.signal();
        Some(Closed { lsn, len: len as usize, used: used as usize })
    }

    /// Byte in the current journal at which the chunk at `lsn` belongs.
    pub fn journal_offset(&self, lsn: u64) -> u64 {
        JOURNAL_HEADER as u64 + lsn - self.control.journal_start.load(SeqCst)
    }

    /// Tells that everything before the end of `chunk` is on disk, and wakes those who wait for it.
    pub fn publish_flushed(&self, chunk: &Closed) {
        let c = self.control;
        let flushed = chunk.lsn + chunk.len as u64;
        c.flushes.fetch_add(1, SeqCst);
        c.flushed_bytes.fetch_add(chunk.len as u64, SeqCst);
        c.flushed.store(flushed, SeqCst);
        for w in self.waiters {
            if (1..=flushed).contains(&w.lsn.load(SeqCst)) {
                w.flushed.signal();
            }
        }
    }

    /// LSN at which the current journal starts: the checkpoint that the other journal's reuse has to wait for.
    pub fn journal_start(&self) -> u64 {
        self.control.journal_start.load(SeqCst)
    }

    /// LSN at which the next journal will start. Only to be used while a switch is due: nothing moves then.
    pub fn switch_lsn(&self) -> u64 {
        self.control.chunk.load(SeqCst)
    }

    /// Makes the next journal the current one, asks for the checkpoint that will free the last one, and lets redo flow again.
    pub fn switched(&self) {
        let c = self.control;
        {
            let _held = self.buffer.lock();
            let start = c.chunk.load(SeqCst);
            c.journal_start.store(start, SeqCst);
            c.journal_end.store(start + self.journal_bytes, SeqCst);
            c.switching.store(0, SeqCst);
            c.checkpoint_target.store(start, SeqCst);
        }
        c.switches.fetch_add(1, SeqCst);
        c.space.signal();
    }

    /// Signalled when a checkpoint has been reached.
    pub fn checkpointed(&self) -> &Event {
        &self.control.checkpointed
    }

    /// All changes before this LSN are in the data files.
    pub fn checkpoint(&self) -> u64 {
        self.control.checkpoint.load(SeqCst)
    }

    // What follows is for the database writer.

    /// The checkpoint to be reached, if it has not been yet.
    pub fn checkpoint_due(&self) -> Option<u64> {
        let target = self.control.checkpoint_target.load(SeqCst);
        (target > self.checkpoint()).then_some(target)
    }

    /// Tells that all changes before `lsn` are in the data files, durably.
    pub fn publish_checkpoint(&self, lsn: u64) {
        self.control.checkpoint.store(lsn, SeqCst);
        self.control.checkpointed.signal();
    }

    pub fn counts(&self) -> LogCounts {
        let c = self.control;
        LogCounts {
            flushes: c.flushes.load(SeqCst),
            flushed_bytes: c.flushed_bytes.load(SeqCst),
            switches: c.switches.load(SeqCst),
            space_waits: c.space_waits.load(SeqCst),
        }
    }
}

impl Reservation<'_> {
    /// Appends one record and returns the LSN behind it.
    pub fn append(&mut self, record: &[u8]) -> u64 {
        let c = self.log.control;
        let cost = record.len() as u64 + self.log.overhead();
        self.left = self.left.checked_sub(cost).expect("more redo than was reserved");
        let mut buffer = self.log.buffer.lock();
        let fill = c.fill.load(SeqCst);
        let place = &mut buffer[fill as usize..fill as usize + record.len()];
        place.copy_from_slice(record);
        let sequence = c.records.load(SeqCst) + 1;
        journal::number_record(place, sequence);
        c.records.store(sequence, SeqCst);
        let lsn = c.chunk.load(SeqCst) + fill + record.len() as u64;
        c.fill.store(fill + record.len() as u64, SeqCst);
        c.next.store(lsn, SeqCst);
        c.reserved.fetch_sub(cost, SeqCst);
        lsn
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let c = self.log.control;
        let left = {
            let _held = self.log.buffer.lock();
            c.reserved.fetch_sub(self.left, SeqCst) - self.left
        };
        c.space.signal();
        if left == 0 && c.switching.load(SeqCst) == 1 {
            c.writer.signal();
        }
    }
}
