//! The log buffer shared by all processes, and the waits for it to be on disk.
//!
//! Invariant: the contents of the log buffer always have a place in the current journal: a process that writes redo reserves the
//! place before it holds anything that others need. So the log writer can always flush, the database writer (which must not write
//! a block ahead of its redo) never waits in a cycle with a log switch, and the switch waits only for checkpoint and archiver.
//!
//! The buffer is a ring of chunks: closed ones that the log writer has yet to take, then the open one. The cost depends only on the number of
//! processes that wait: commits queue up in the order of their LSNs, and waits for room are served first come, first served.

mod reservation;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::Duration;

use bigiron_sys::broadcast::Broadcast;
use bigiron_sys::latch::EventCount;
use bigiron_sys::load::now_ns;
use bigiron_sys::segment::{LatchedBytes, LockedBytes, Segment, shared_struct};

use super::block::BLOCK;
use super::job::{ClassKind, Job, Wake};
use super::journal::{CHUNK_HEADER, JOURNAL_HEADER};
use super::poll::Poll;
use super::stages::Stages;
use super::turns::{TurnCounts, Turns};

pub use reservation::{Commit, Reservation};

shared_struct! {
    struct Control {
        // Changed under the buffer's latch, two cache lines:
        /// LSN of the first byte that the log writer has not taken.
        head: AtomicU64,
        /// LSN of the open chunk's first byte.
        chunk: AtomicU64,
        /// Bytes in the open chunk, including its header.
        fill: AtomicU64,
        /// Worst-case bytes that are reserved and not yet used.
        reserved: AtomicU64,
        /// 1: the journal is full; no more reservations until the switch is done.
        switching: AtomicU64,
        /// Records so far.
        records: AtomicU64,
        /// Time of the first commit request in the open chunk, in nanoseconds; 0: none.
        first_post: AtomicU64,
        /// Number of waits for room so far, and of those that have ended: the queue is the difference.
        queued: AtomicU64,
        granted: AtomicU64,
        /// Commits posted so far.
        posted: AtomicU64,
        /// Number of chunks closed and taken so far: the open chunk has the number `closed`.
        closed: AtomicU64,
        taken: AtomicU64,
        /// LSN of the next record. Read without the latch.
        next: AtomicU64,
        /// The highest LSN that a process waits for. Changed without the latch as well.
        wanted: AtomicU64,
        unused: [AtomicU64; 2],

        // Changed only by the log writer:
        /// Everything before this LSN is on disk.
        flushed: AtomicU64,
        /// Commits acknowledged so far.
        acknowledged: AtomicU64,
        flushes: AtomicU64,
        flushed_bytes: AtomicU64,
        /// Where processes other than foregrounds wait for redo to be on disk.
        published: EventCount,
        spare: [AtomicU64; 3],

        /// 1: the log writer sleeps, or is about to.
        asleep: AtomicU64,
        /// The log writer sleeps here.
        writer: EventCount,
    }
}

shared_struct! {
    /// The waiting state of one process: a cache line.
    struct Slot {
        /// Bytes of room it waits for; 0 for none.
        want: AtomicU64,
        /// The LSN of its last acknowledged commit, when the log writer took that commit's redo, and when it was durable.
        acknowledged: AtomicU64,
        taken: AtomicU64,
        durable: AtomicU64,
        room: EventCount,
        unused: [AtomicU64; 3],
    }
}

shared_struct! {
    /// A commit that waits for the log writer.
    struct Posted {
        lsn: AtomicU64,
        process: AtomicU64,
    }
}

/// The log, as every process sees it.
pub struct Log<'s> {
    control: &'s Control,
    pub turns: Turns<'s>,
    buffer: LatchedBytes<'s>,
    /// By process.
    slots: &'s [Slot],
    /// A ring of processes that wait for room.
    queue: &'s [AtomicU64],
    /// A ring of commits, in the order of their LSNs.
    posted: &'s [Posted],
    /// Where processes sleep whose commits are in the same chunk: by chunk, as a ring. The ring is as long as the number of
    /// processes, so that with a chunk for each commit no process is woken for another's.
    groups: &'s [Broadcast],
    redo_block: u64,
    group_bytes: u64,
    group_wait: Duration,
    wake: Wake,
}

/// The log writer's work since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogCounts {
    pub flushes: u64,
    pub flushed_bytes: u64,
    /// Waits for room in the log buffer or for a log switch.
    pub space_waits: u64,
    pub turns: TurnCounts,
}

/// A closed chunk, copied out of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub lsn: u64,
    /// Number of chunks closed before it.
    number: u64,
    /// Bytes, padded to the redo block.
    pub len: usize,
    /// Bytes without the padding.
    pub used: usize,
    /// When the log writer began to take it, in nanoseconds.
    pub taken: u64,
}

/// Maximum bytes of a record.
const RECORD_MAX: usize = 2 * BLOCK;

/// Reads a word that is changed only under the buffer's latch.
fn get(word: &AtomicU64) -> u64 {
    word.load(Acquire)
}

/// Changes such a word. Must be called with the latch held: no locked instruction is needed.
fn put(word: &AtomicU64, value: u64) {
    word.store(value, Release);
}

/// Whether there is room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Free,
    /// Not in the buffer, until the log writer has taken some of it.
    BufferFull,
    JournalFull,
}

impl<'s> Log<'s> {
    /// Bytes of segment for the log.
    pub fn bytes(job: &Job, processes: usize) -> usize {
        let per_process = size_of::<Slot>() + 8 + size_of::<Posted>() + size_of::<Broadcast>();
        job.log_buffer_bytes() + Turns::bytes(job) + processes * per_process + (1 << 16)
    }

    /// An empty log at the start of the first journal, for processes numbered below `processes`.
    pub fn new(segment: &'s Segment, job: &Job, processes: usize) -> Self {
        let (group_bytes, group_wait, wake) = match job.log_writer().map(|c| &c.kind) {
            Some(ClassKind::LogWriter { group_bytes, group_wait, wake, .. }) => (*group_bytes, *group_wait, *wake),
            _ => (usize::MAX, Duration::ZERO, Wake::Post),
        };
        let redo_block = job.journal.block as u64;
        let log = Self {
            control: segment.one(),
            turns: Turns::new(segment, job),
            buffer: segment.latched(job.log_buffer_bytes().next_multiple_of(job.journal.block)),
            slots: segment.many(processes),
            queue: segment.many(processes),
            posted: segment.many(processes),
            groups: segment.many(processes),
            redo_block,
            group_bytes: (group_bytes.min(job.log_buffer_bytes()) as u64).next_multiple_of(redo_block),
            group_wait,
            wake,
        };
        log.control.fill.store(CHUNK_HEADER as u64, SeqCst);
        log.control.next.store(CHUNK_HEADER as u64, SeqCst);
        log
    }

    /// The worst-case cost of a record besides its bytes: it may be the last of its chunk, which is padded and followed by a
    /// header.
    fn overhead(&self) -> u64 {
        self.redo_block + CHUNK_HEADER as u64
    }

    /// Whether `want` bytes can be reserved now; if not, requests what would make it possible. Must be called with the latch
    /// held.
    fn room(&self, want: u64) -> Room {
        let c = self.control;
        let next = get(&c.chunk) + get(&c.fill);
        let worst = next + get(&c.reserved) + want + self.overhead();
        if get(&c.switching) == 1 || worst > self.turns.end() {
            put(&c.switching, 1);
            Room::JournalFull
        } else if worst - get(&c.head) > self.buffer.len() as u64 {
            if next > get(&c.head) + CHUNK_HEADER as u64 {
                c.wanted.fetch_max(next, SeqCst);
            }
            Room::BufferFull
        } else {
            Room::Free
        }
    }

    /// Gives room to waiting processes, first come, first served, and returns them. Must be called with the latch held.
    fn grant(&self) -> Vec<usize> {
        let c = self.control;
        let mut granted = Vec::new();
        loop {
            let at = get(&c.granted);
            if at == get(&c.queued) {
                return granted;
            }
            let process = self.queue[at as usize % self.queue.len()].load(SeqCst) as usize;
            let want = self.slots[process].want.load(SeqCst);
            if self.room(want) != Room::Free {
                return granted;
            }
            put(&c.reserved, get(&c.reserved) + want);
            put(&c.granted, at + 1);
            granted.push(process);
        }
    }

    /// Wakes the processes that [`Log::grant`] returned. Must be called without the latch.
    fn let_in(&self, granted: &[usize]) {
        for process in granted {
            self.slots[*process].want.store(0, SeqCst);
            self.slots[*process].room.signal();
        }
    }

    /// Whether a reservation of that size leaves most of the log buffer to others.
    pub fn fits(&self, records: usize, bytes: usize) -> bool {
        let want = bytes as u64 + records as u64 * self.overhead();
        want <= self.buffer.len() as u64 / 4
    }

    /// LSN of the next record, at least.
    pub fn next(&self) -> u64 {
        self.control.next.load(SeqCst)
    }

    /// Everything before this LSN is on disk.
    pub fn flushed(&self) -> u64 {
        self.control.flushed.load(SeqCst)
    }

    /// Sleeps until everything before `lsn` is on disk. For processes that do not commit.
    pub fn wait_flushed(&self, lsn: u64) {
        if self.flushed() >= lsn {
            return;
        }
        self.control.wanted.fetch_max(lsn, SeqCst);
        self.wake_writer();
        self.control.published.wait_until(|| self.flushed() >= lsn);
    }

    /// Waits until a commit is durable: sleeping until the log writer posts it, or polling.
    pub fn wait(&self, commit: &Commit) -> Stages {
        let slot = &self.slots[commit.process];
        let durable = || slot.acknowledged.load(SeqCst) >= commit.lsn;
        match self.wake {
            Wake::Post => self.group(commit.group).wait_until(durable),
            Wake::Poll => Poll::until(durable),
        }
        let (taken, durable) = (slot.taken.load(SeqCst), slot.durable.load(SeqCst));
        Stages::between(commit.requested, commit.posted, taken, durable, now_ns())
    }

    /// Where processes sleep whose commits are in the chunk of that number.
    fn group(&self, number: u64) -> &Broadcast {
        &self.groups[number as usize % self.groups.len()]
    }

    /// Wakes the log writer if it sleeps; only the first of many callers pays for the system call.
    fn wake_writer(&self) {
        let asleep = &self.control.asleep;
        if self.wake == Wake::Post && asleep.load(SeqCst) == 1 && asleep.swap(0, SeqCst) == 1 {
            self.control.writer.signal();
        }
    }

    /// The requested checkpoint, if it has not been reached yet.
    pub fn checkpoint_due(&self) -> Option<u64> {
        self.turns.checkpoint_due()
    }

    /// Reports that all changes before `lsn` are durable in the data files.
    pub fn publish_checkpoint(&self, lsn: u64) {
        self.turns.publish_checkpoint(lsn);
    }

    /// Wakes all sleepers of the log, so that they check whether the run has advanced to another phase.
    pub fn wake_all(&self) {
        self.control.writer.signal();
        self.turns.checkpointed().signal();
        self.turns.copied().signal();
        self.turns.archiver().signal();
    }

    /// How log writer and foregrounds are told of each other's work.
    pub fn wake(&self) -> Wake {
        self.wake
    }

    // The following functions are for the log writer.

    /// Sleeps until `due`, which must become true only before a wake-up or a signal to the log writer.
    pub fn sleep_until(&self, due: impl Fn() -> bool) {
        let c = self.control;
        if self.wake == Wake::Poll {
            return Poll::until(due);
        }
        loop {
            let ticket = c.writer.ticket();
            c.asleep.store(1, SeqCst);
            if due() {
                c.asleep.store(0, SeqCst);
                return;
            }
            c.writer.wait(ticket);
        }
    }

    /// Bytes of the largest chunk, padded: the room that [`Log::take`] needs. A record larger than a group is a group of its own.
    pub fn chunk_bytes(&self) -> usize {
        (self.group_bytes as usize).max((CHUNK_HEADER + RECORD_MAX).next_multiple_of(self.redo_block as usize))
    }

    /// Whether a process waits for redo that is not on disk, or the log switch for the last redo of the journal.
    pub fn flush_due(&self) -> bool {
        let c = self.control;
        c.wanted.load(SeqCst) > self.flushed() || {
            let _held = self.buffer.lock();
            self.drained() && c.chunk.load(SeqCst) + c.fill.load(SeqCst) > c.head.load(SeqCst) + CHUNK_HEADER as u64
        }
    }

    /// Whether the journal is full and all redo with a place in it is in the buffer. Must be called with the latch held.
    fn drained(&self) -> bool {
        self.control.switching.load(SeqCst) == 1 && self.control.reserved.load(SeqCst) == 0
    }

    /// Whether the journal is full and all redo with a place in it has been written.
    pub fn switch_due(&self) -> bool {
        let c = self.control;
        let _held = self.buffer.lock();
        let empty = c.head.load(SeqCst) == c.chunk.load(SeqCst) && c.fill.load(SeqCst) == CHUNK_HEADER as u64;
        self.drained() && empty
    }

    /// How long the log writer must let commits gather before it takes the open chunk.
    pub fn gather(&self) -> Duration {
        let c = self.control;
        let first = match self.group_wait.is_zero() || c.head.load(SeqCst) != c.chunk.load(SeqCst) {
            true => 0,
            false => c.first_post.load(SeqCst),
        };
        let waited = Duration::from_nanos(now_ns().saturating_sub(first));
        if first == 0 { Duration::ZERO } else { self.group_wait.saturating_sub(waited) }
    }

    /// Closes the open chunk, if it is not empty. Must be called with the latch held.
    fn close(&self, buffer: &mut LockedBytes<'_>) {
        let c = self.control;
        let (lsn, used) = (get(&c.chunk), get(&c.fill));
        let len = used.next_multiple_of(self.redo_block);
        // Chunks begin at multiples of the redo block, and so does the ring: a header never wraps.
        let at = (lsn % buffer.len() as u64) as usize;
        buffer[at..at + 8].copy_from_slice(&used.to_le_bytes());
        put(&c.chunk, lsn + len);
        put(&c.fill, CHUNK_HEADER as u64);
        put(&c.next, lsn + len + CHUNK_HEADER as u64);
        put(&c.first_post, 0);
        put(&c.closed, get(&c.closed) + 1);
    }

    /// Takes the oldest chunk from the buffer, if it is not empty: copies it to the start of `out`, padded.
    pub fn take(&self, out: &mut [u8]) -> Option<Closed> {
        let c = self.control;
        let taken = now_ns();
        let mut buffer = self.buffer.lock();
        let lsn = get(&c.head);
        if lsn == get(&c.chunk) {
            if get(&c.fill) == CHUNK_HEADER as u64 {
                return None;
            }
            self.close(&mut buffer);
        }
        let at = (lsn % buffer.len() as u64) as usize;
        let used = u64::from_le_bytes(*buffer[at..].first_chunk().expect("a header never wraps")) as usize;
        let len = used.next_multiple_of(self.redo_block as usize);
        let tail = used.min(buffer.len() - at);
        out[CHUNK_HEADER..tail].copy_from_slice(&buffer[at..][CHUNK_HEADER..tail]);
        out[tail..used].copy_from_slice(&buffer[..used - tail]);
        out[used..len].fill(0);
        put(&c.head, lsn + len as u64);
        let number = get(&c.taken);
        put(&c.taken, number + 1);
        let granted = self.grant();
        drop(buffer);
        self.let_in(&granted);
        Some(Closed { lsn, number, len, used, taken })
    }

    /// The offset in the current journal of the chunk at `lsn`.
    pub fn journal_offset(&self, lsn: u64) -> u64 {
        JOURNAL_HEADER as u64 + lsn - self.turns.start()
    }

    /// Reports that everything before the end of `chunk` is on disk, and acknowledges the commits in it.
    pub fn publish_flushed(&self, chunk: &Closed) {
        let c = self.control;
        let durable = now_ns();
        let flushed = chunk.lsn + chunk.len as u64;
        c.flushes.fetch_add(1, SeqCst);
        c.flushed_bytes.fetch_add(chunk.len as u64, SeqCst);
        c.flushed.store(flushed, SeqCst);
        let mut acknowledged = get(&c.acknowledged);
        let posted = get(&c.posted);
        while acknowledged < posted {
            let posted = &self.posted[acknowledged as usize % self.posted.len()];
            let lsn = get(&posted.lsn);
            if lsn > flushed {
                break;
            }
            let slot = &self.slots[get(&posted.process) as usize];
            acknowledged += 1;
            // Before the word that releases the process, which may then reuse its place in the ring.
            put(&c.acknowledged, acknowledged);
            put(&slot.taken, chunk.taken);
            put(&slot.durable, durable);
            put(&slot.acknowledged, lsn);
        }
        if self.wake == Wake::Post {
            self.group(chunk.number).call();
        }
        c.published.signal();
    }

    /// LSN at which the next journal will start. Only valid while a switch is due: nothing moves then.
    pub fn switch_lsn(&self) -> u64 {
        self.control.chunk.load(SeqCst)
    }

    /// Makes the next journal the current one, requests the checkpoint that will free the last one, and lets redo flow again.
    pub fn switched(&self) {
        let granted = {
            let _held = self.buffer.lock();
            self.turns.advance(self.control.chunk.load(SeqCst));
            self.control.switching.store(0, SeqCst);
            self.grant()
        };
        self.let_in(&granted);
    }

    pub fn counts(&self) -> LogCounts {
        let c = self.control;
        LogCounts {
            flushes: c.flushes.load(SeqCst),
            flushed_bytes: c.flushed_bytes.load(SeqCst),
            space_waits: c.queued.load(SeqCst),
            turns: self.turns.counts(),
        }
    }
}

impl LogCounts {
    /// What was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            flushes: self.flushes - before.flushes,
            flushed_bytes: self.flushed_bytes - before.flushed_bytes,
            space_waits: self.space_waits - before.space_waits,
            turns: self.turns.since(before.turns),
        }
    }
}
