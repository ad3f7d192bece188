//! The journals' turns: the journal being written, and the conditions for writing one again.
//!
//! Invariant: turns count from 1 and only increase. A journal keeps its turn until every change in it is in the data files (the
//! checkpoint) and, if the job archives, a durable copy of it exists.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use bigiron_sys::latch::EventCount;
use bigiron_sys::segment::{Segment, shared_struct};

use super::job::{ClassKind, Job};
use super::journal::JOURNAL_HEADER;

shared_struct! {
    struct Control {
        /// The current turn.
        turn: AtomicU64,
        /// The checkpoint requested: all changes before this LSN must reach the data files.
        checkpoint_target: AtomicU64,
        /// The checkpoint reached.
        checkpoint: AtomicU64,
        /// Turns that archivers have claimed, and turns with a durable copy.
        claimed: AtomicU64,
        archived: AtomicU64,
        archived_bytes: AtomicU64,
        /// Switches that had to wait, and their waiting time, by [`SwitchCause`].
        waits: [AtomicU64; 2],
        wait_ns: [AtomicU64; 2],
        /// The longest wait of the last switch: 1 + [`SwitchCause`], or 0 for none.
        cause: AtomicU64,
        checkpointed: EventCount,
        /// Archivers sleep here.
        archiver: EventCount,
        copied: EventCount,
    }
}

/// Why a log switch has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchCause {
    /// Changes in the journal are not yet in the data files: "checkpoint incomplete".
    Checkpoint,
    /// The journal is not yet copied: "archiving needed".
    Archive,
}

/// A finished turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledJournal {
    pub turn: u64,
    /// Its journal.
    pub journal: usize,
    /// LSNs of its first chunk and after its last.
    pub start: u64,
    pub end: u64,
}

/// The contents of the journal whose turn is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// The checkpoint that makes it superfluous.
    pub checkpoint: u64,
    /// The turn that must be archived; 0 for none.
    pub archive: u64,
}

/// The work of switches and archivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCounts {
    pub switches: u64,
    pub checkpoint_waits: u64,
    pub checkpoint_wait_ns: u64,
    pub archive_waits: u64,
    pub archive_wait_ns: u64,
    /// Journals copied, and their bytes.
    pub archived: u64,
    pub archived_bytes: u64,
}

/// The journals' turns, as every process sees them.
pub struct Turns<'s> {
    control: &'s Control,
    /// By journal: the LSN at which its latest turn starts.
    starts: &'s [AtomicU64],
    archiving: bool,
    journal_bytes: u64,
}

impl<'s> Turns<'s> {
    /// Bytes of segment for the turns.
    pub fn bytes(job: &Job) -> usize {
        size_of::<Control>() + job.journal.files * 8 + 256
    }

    /// The first turn, of the first journal, at LSN 0.
    pub fn new(segment: &'s Segment, job: &Job) -> Self {
        let turns = Self {
            control: segment.one(),
            starts: segment.many(job.journal.files),
            archiving: job.classes.iter().any(|c| matches!(c.kind, ClassKind::Archiver { .. })),
            journal_bytes: job.journal.bytes - JOURNAL_HEADER as u64,
        };
        turns.control.turn.store(1, SeqCst);
        turns
    }

    /// The journal of a turn.
    pub fn journal_of(&self, turn: u64) -> usize {
        ((turn - 1) % self.starts.len() as u64) as usize
    }

    /// LSN at which a turn starts: the current one, or one whose journal has not been written since.
    fn start_of(&self, turn: u64) -> u64 {
        self.starts[self.journal_of(turn)].load(SeqCst)
    }

    /// The current turn.
    pub fn turn(&self) -> u64 {
        self.control.turn.load(SeqCst)
    }

    /// The journal whose turn it is.
    pub fn journal(&self) -> usize {
        self.journal_of(self.turn())
    }

    /// LSN at which the current journal starts.
    pub fn start(&self) -> u64 {
        self.start_of(self.turn())
    }

    /// LSN after the last byte that the current journal has room for.
    pub fn end(&self) -> u64 {
        self.start() + self.journal_bytes
    }

    // The following functions are for the log writer.

    /// The conditions for the next turn.
    pub fn reuse(&self) -> Reuse {
        let next = self.turn() + 1;
        let journals = self.starts.len() as u64;
        if next <= journals {
            return Reuse { checkpoint: 0, archive: 0 };
        }
        let holds = next - journals;
        // The turn after the one that it holds starts where that ended.
        Reuse { checkpoint: self.start_of(holds + 1), archive: if self.archiving { holds } else { 0 } }
    }

    /// Begins the next turn at `lsn`, requests the checkpoint that will free the previous journal, and wakes an archiver for it.
    pub fn advance(&self, lsn: u64) {
        let next = self.turn() + 1;
        self.starts[self.journal_of(next)].store(lsn, SeqCst);
        self.control.turn.store(next, SeqCst);
        self.ask_checkpoint(lsn);
        self.control.archiver.signal();
    }

    /// Counts the waits of a switch: nanoseconds by [`SwitchCause`], 0 for no wait.
    pub fn waited(&self, ns: [u64; 2]) {
        for (i, ns) in ns.into_iter().enumerate().filter(|(_, ns)| *ns > 0) {
            self.control.waits[i].fetch_add(1, SeqCst);
            self.control.wait_ns[i].fetch_add(ns, SeqCst);
        }
        let cause = match ns {
            [0, 0] => 0,
            [checkpoint, archive] if checkpoint >= archive => 1,
            _ => 2,
        };
        self.control.cause.store(cause, SeqCst);
    }

    /// The longest wait of the last switch; `None` if it waited only for the write of its header.
    pub fn cause(&self) -> Option<SwitchCause> {
        match self.control.cause.load(SeqCst) {
            1 => Some(SwitchCause::Checkpoint),
            2 => Some(SwitchCause::Archive),
            _ => None,
        }
    }

    /// Signalled when a checkpoint has been reached.
    pub fn checkpointed(&self) -> &EventCount {
        &self.control.checkpointed
    }

    /// Signalled when a journal has been archived.
    pub fn copied(&self) -> &EventCount {
        &self.control.copied
    }

    // The following functions are for checkpointers and database writers.

    /// All changes before this LSN are in the data files.
    pub fn checkpoint(&self) -> u64 {
        self.control.checkpoint.load(SeqCst)
    }

    /// Requests that all changes before `lsn` reach the data files. The caller wakes the process that writes them.
    pub fn ask_checkpoint(&self, lsn: u64) {
        self.control.checkpoint_target.fetch_max(lsn, SeqCst);
    }

    /// The requested checkpoint, if it has not been reached yet.
    pub fn checkpoint_due(&self) -> Option<u64> {
        let target = self.control.checkpoint_target.load(SeqCst);
        (target > self.checkpoint()).then_some(target)
    }

    /// Reports that all changes before `lsn` are durable in the data files.
    pub fn publish_checkpoint(&self, lsn: u64) {
        self.control.checkpoint.fetch_max(lsn, SeqCst);
        self.control.checkpointed.signal();
    }

    // The following functions are for archivers.

    /// Whether the job has an archiver.
    pub fn archives(&self) -> bool {
        self.archiving
    }

    /// Where archivers sleep.
    pub fn archiver(&self) -> &EventCount {
        &self.control.archiver
    }

    /// Whether there is a full journal that no archiver has claimed.
    pub fn archive_due(&self) -> bool {
        self.control.claimed.load(SeqCst) + 1 < self.turn()
    }

    /// Claims the oldest finished turn that no archiver has claimed.
    pub fn claim(&self) -> Option<FilledJournal> {
        let full = self.turn() - 1;
        let claimed = &self.control.claimed;
        let turn = claimed.fetch_update(SeqCst, SeqCst, |n| (n < full).then_some(n + 1)).ok()? + 1;
        let (start, end) = (self.start_of(turn), self.start_of(turn + 1));
        Some(FilledJournal { turn, journal: self.journal_of(turn), start, end })
    }

    /// Turns archived so far: all up to this one.
    pub fn archived(&self) -> u64 {
        self.control.archived.load(SeqCst)
    }

    /// Reports that a durable copy of `turn`, of this many bytes, exists. All turns before it must be archived.
    pub fn publish_archived(&self, turn: u64, bytes: u64) {
        assert_eq!(turn, self.archived() + 1, "archived out of turn");
        self.control.archived_bytes.fetch_add(bytes, SeqCst);
        self.control.archived.store(turn, SeqCst);
        self.control.copied.signal();
    }

    pub fn counts(&self) -> TurnCounts {
        let c = self.control;
        TurnCounts {
            switches: self.turn() - 1,
            checkpoint_waits: c.waits[0].load(SeqCst),
            checkpoint_wait_ns: c.wait_ns[0].load(SeqCst),
            archive_waits: c.waits[1].load(SeqCst),
            archive_wait_ns: c.wait_ns[1].load(SeqCst),
            archived: self.archived(),
            archived_bytes: c.archived_bytes.load(SeqCst),
        }
    }
}

impl TurnCounts {
    /// What was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            switches: self.switches - before.switches,
            checkpoint_waits: self.checkpoint_waits - before.checkpoint_waits,
            checkpoint_wait_ns: self.checkpoint_wait_ns - before.checkpoint_wait_ns,
            archive_waits: self.archive_waits - before.archive_waits,
            archive_wait_ns: self.archive_wait_ns - before.archive_wait_ns,
            archived: self.archived - before.archived,
            archived_bytes: self.archived_bytes - before.archived_bytes,
        }
    }
}
