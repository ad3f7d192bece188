//! Wait events: what a process waits for, how often and how long, under a name from a closed list.
//!
//! Invariant: no instant belongs to two events. A wait inside a wait (a latch while looking for a free buffer) counts only for
//! the inner one, so that a process's waits may be summed.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use bigiron_sys::latch;
use bigiron_sys::latch::Contended;
use bigiron_sys::load::now_ns;
use bigiron_sys::segment::shared_struct;
use bigiron_sys::shared_memory::SharedMemory;

use super::audit::{Audit, Auditor};

macro_rules! events {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// The events that a process may wait for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum WaitEvent { $($(#[$meta])* $name,)* }

        impl WaitEvent {
            /// All events, in the order in which lists show them.
            pub const ALL: &[WaitEvent] = &[$(WaitEvent::$name,)*];

            /// The event's name, as it is printed.
            pub fn name(self) -> &'static str {
                match self { $(WaitEvent::$name => $text,)* }
            }
        }
    };
}

events! {
    /// A commit waits for its redo to be on disk.
    LogFileSync = "log file sync",
    /// Redo waits for room in the log buffer.
    LogBufferSpace = "log buffer space",
    /// Redo (or the log writer) waits for the checkpoint that frees the next journal.
    LogSwitchCheckpoint = "log switch (checkpoint incomplete)",
    /// Redo (or the log writer) waits for the archiver to copy the next journal.
    LogSwitchArchiving = "log switch (archiving needed)",
    /// Redo waits for a log switch in progress.
    LogSwitch = "log switch completion",
    /// A block needs a buffer that is neither pinned nor dirty.
    FreeBuffer = "free buffer",
    /// A buffer that another process is changing or filling from disk.
    BufferBusy = "buffer busy",
    /// A latch that another process holds.
    Latch = "latch",
    /// A block from a data file.
    DataFileRead = "data file read",
    /// Large reads past the cache: scan, backup.
    DataFileScan = "data file scan",
    /// Blocks to data files.
    DataFileWrite = "data file write",
    /// `fdatasync` of the data files.
    DataFileSync = "data file sync",
    /// Redo to a journal, until it is durable.
    LogFileParallelWrite = "log file parallel write",
    /// A full journal, for archiving.
    LogFileRead = "log file read",
    /// The copy of a journal.
    ArchiveWrite = "archive write",
    /// Sorted runs to a temporary file.
    TempFileWrite = "temp file write",
    /// Sorted runs from a temporary file.
    TempFileRead = "temp file read",
    /// The copy of a data file.
    BackupWrite = "backup write",
    /// Plain requests of an I/O class.
    Request = "request",
    /// A block waits for its redo to be on disk.
    WriteAhead = "write-ahead log",
    /// The reply of a server process.
    Server = "server",
    /// The next request of a client.
    Client = "client",
    /// Think time between or inside transactions.
    Think = "think time",
    /// The intended start of the next piece of work.
    Pace = "pace",
    /// Nothing to do.
    Idle = "idle",
}

/// Number of events.
const EVENTS: usize = WaitEvent::ALL.len();

impl WaitEvent {
    /// Whether the process waits because it has no work, rather than for something it needs.
    pub fn idle(self) -> bool {
        matches!(self, WaitEvent::Client | WaitEvent::Think | WaitEvent::Pace | WaitEvent::Idle)
    }

    /// The name as part of a metric's or a fact's: lower case and hyphens.
    pub fn slug(self) -> String {
        let words = self.name().split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
        words.collect::<Vec<_>>().join("-")
    }
}

/// Number and nanoseconds of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTally {
    pub count: u64,
    pub ns: u64,
}

/// Waits by event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTallies([WaitTally; EVENTS]);

impl Default for WaitTallies {
    fn default() -> Self {
        Self([WaitTally::default(); EVENTS])
    }
}

impl WaitTallies {
    pub fn of(&self, event: WaitEvent) -> WaitTally {
        self.0[event as usize]
    }

    /// The events that occurred, in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = (WaitEvent, WaitTally)> {
        WaitEvent::ALL.iter().map(|e| (*e, self.of(*e))).filter(|(_, t)| t.count > 0)
    }

    /// Nanoseconds of all waits together.
    pub fn ns(&self) -> u64 {
        self.0.iter().map(|t| t.ns).sum()
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, |a, b| a - b)
    }

    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    fn with(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|i| WaitTally {
            count: f(self.0[i].count, other.0[i].count),
            ns: f(self.0[i].ns, other.0[i].ns),
        }))
    }
}

shared_struct! {
    struct Count {
        count: AtomicU64,
        ns: AtomicU64,
    }
}

/// Counts of a worker: one for each event, then those of [`Audit`], then the wait in progress (its event + 1, and its start), on
/// cache lines of its own.
/// began), on cache lines that it shares with nobody.
const AUDIT: usize = EVENTS;
const UNDER_WAY: usize = AUDIT + 3;
const ROW: usize = (UNDER_WAY + 1).next_multiple_of(4);

/// The waits of all workers, in shared memory: each row is written only by its worker.
#[derive(Clone)]
pub struct WaitTable {
    memory: Arc<SharedMemory>,
    workers: usize,
}

impl WaitTable {
    /// A table for this many workers; must be created before they are forked.
    pub fn new(workers: usize) -> io::Result<Self> {
        let memory = Arc::new(SharedMemory::new((workers * ROW * size_of::<Count>()).max(1))?);
        Ok(Self { memory, workers })
    }

    fn row(&self, worker: usize) -> &[Count] {
        &self.memory.slice::<Count>(0, self.workers * ROW)[worker * ROW..][..ROW]
    }

    /// Counts the calling thread's waits as `worker`'s from now on.
    pub fn attach(&self, worker: usize) {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        observe_latches();
        HERE.with(|here| {
            here.inner.set(0);
            here.depth.set(0);
            here.auditor.take();
            here.to.replace(Some((self.clone(), worker)));
        });
    }

    /// The waits of `worker` so far; a wait in progress counts with its time until now. So the waits between two readings are
    /// never longer than the time between them.
    pub fn read(&self, worker: usize) -> WaitTallies {
        let row = self.row(worker);
        let under_way = || (row[UNDER_WAY].count.load(SeqCst), row[UNDER_WAY].ns.load(SeqCst));
        let mut tries = 0;
        loop {
            let before = under_way();
            let of = |i: usize| WaitTally { count: row[i].count.load(SeqCst), ns: row[i].ns.load(SeqCst) };
            let mut tallies = WaitTallies(std::array::from_fn(of));
            let now = now_ns();
            tries += 1;
            // It has continued meanwhile: the values read are inconsistent. A worker that continues all the time has only short
            // waits.
            if under_way() != before && tries < 8 {
                continue;
            }
            if let (Some(event), start) = (before.0.checked_sub(1), before.1) {
                tallies.0[event as usize].ns += now.saturating_sub(start);
            }
            return tallies;
        }
    }

    /// The closely examined transactions of `worker`.
    pub fn audit(&self, worker: usize) -> Audit {
        let row = &self.row(worker)[AUDIT..];
        Audit {
            count: row[0].count.load(Acquire),
            time: row[0].ns.load(Acquire),
            waits: row[1].count.load(Acquire),
            cpu: row[1].ns.load(Acquire),
            run_queue: row[2].count.load(Acquire),
        }
    }

    /// Adds a closely examined transaction. Must be called by the worker itself.
    pub fn add_audit(&self, worker: usize, audit: &Audit) {
        let row = &self.row(worker)[AUDIT..];
        grow(&row[0].count, audit.count);
        grow(&row[0].ns, audit.time);
        grow(&row[1].count, audit.waits);
        grow(&row[1].ns, audit.cpu);
        grow(&row[2].count, audit.run_queue);
    }
}

/// Adds to a counter that only this thread changes: no locked instruction.
fn grow(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed) + by, Release);
}

/// The waiting state of this thread.
#[derive(Default)]
struct ThreadState {
    /// Where its waits are counted.
    to: RefCell<Option<(WaitTable, usize)>>,
    /// Nanoseconds of finished waits inside the one in progress.
    inner: Cell<u64>,
    /// Depth of nested waits in progress.
    depth: Cell<u32>,
    /// Nanoseconds of all finished waits; nested ones are not counted twice.
    waited: Cell<u64>,
    auditor: RefCell<Option<Auditor>>,
}

thread_local! {
    static HERE: ThreadState = ThreadState::default();
}

/// A wait in progress; it ends when this is dropped.
pub struct WaitGuard {
    event: WaitEvent,
    /// Nanoseconds of the monotonic clock.
    start: u64,
    /// Time waited inside the enclosing wait.
    outer: u64,
    /// CPU time and run delay before the wait, if the transaction is closely examined and this is its outermost wait.
    before: Option<(u64, u64)>,
}

impl WaitGuard {
    /// Sets the event, if it becomes known during the wait.
    pub fn becomes(&mut self, event: WaitEvent) {
        self.event = event;
    }
}

/// Begins to wait.
pub fn enter(event: WaitEvent) -> WaitGuard {
    HERE.with(|here| {
        let outer = here.inner.replace(0);
        let depth = here.depth.replace(here.depth.get() + 1);
        let before = if depth == 0 { here.auditor.borrow().as_ref().and_then(Auditor::read) } else { None };
        let start = now_ns();
        if depth == 0
            && let Some((table, worker)) = &*here.to.borrow()
        {
            let under_way = &table.row(*worker)[UNDER_WAY];
            under_way.ns.store(start, Release);
            under_way.count.store(event as u64 + 1, Release);
        }
        WaitGuard { event, start, outer, before }
    })
}

/// Nanoseconds that this thread has waited so far, for anything.
pub fn waited() -> u64 {
    HERE.with(|here| here.waited.get())
}

/// Reports every wait of this thread to `auditor` from now on; returns the previous auditor.
pub fn tell(auditor: Option<Auditor>) -> Option<Auditor> {
    HERE.with(|here| here.auditor.replace(auditor))
}

/// Waits by running `f`.
pub fn during<T>(event: WaitEvent, f: impl FnOnce() -> T) -> T {
    let _waiting = enter(event);
    f()
}

/// Counts sleeps for latches and for latched buffers as waits.
fn observe_latches() {
    latch::observe(|what, sleep| {
        let event = match what {
            Contended::Latch => WaitEvent::Latch,
            Contended::Frame => WaitEvent::BufferBusy,
        };
        during(event, sleep);
    });
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let elapsed = now_ns().saturating_sub(self.start);
        HERE.with(|here| {
            here.depth.set(here.depth.get() - 1);
            if let Some((table, worker)) = &*here.to.borrow() {
                let row = table.row(*worker);
                if here.depth.get() == 0 {
                    row[UNDER_WAY].count.store(0, Release);
                }
                let count = &row[self.event as usize];
                grow(&count.count, 1);
                grow(&count.ns, elapsed.saturating_sub(here.inner.get()));
            }
            here.inner.set(self.outer + elapsed);
            if here.depth.get() == 0 {
                here.waited.set(here.waited.get() + elapsed);
            }
            if let (Some(before), Some(auditor)) = (self.before, here.auditor.borrow_mut().as_mut()) {
                auditor.left(before, elapsed);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn names_are_unlike_each_other_and_slugs_plain() {
        let mut slugs: Vec<_> = WaitEvent::ALL.iter().map(|e| e.slug()).collect();
        assert_eq!(WaitEvent::LogSwitchCheckpoint.slug(), "log-switch-checkpoint-incomplete");
        slugs.sort();
        slugs.dedup();
        assert_eq!(slugs.len(), EVENTS);
    }

    #[test]
    fn a_wait_under_way_counts_until_now() {
        let table = WaitTable::new(1).unwrap();
        table.attach(0);
        let start = Instant::now();
        let waiting = enter(WaitEvent::Idle);
        std::thread::sleep(Duration::from_millis(4));
        let inside = table.read(0);
        assert_eq!(inside.of(WaitEvent::Idle).count, 0);
        assert!(inside.of(WaitEvent::Idle).ns >= 4_000_000);
        std::thread::sleep(Duration::from_millis(2));
        drop(waiting);
        let after = table.read(0).since(&inside).of(WaitEvent::Idle);
        assert!(after.count == 1 && after.ns >= 2_000_000);
        assert!(u128::from(table.read(0).ns()) <= start.elapsed().as_nanos());
    }

    #[test]
    fn no_instant_is_counted_twice() {
        let table = WaitTable::new(2).unwrap();
        table.attach(1);
        let (start, waited) = (Instant::now(), waited());
        {
            let mut outer = enter(WaitEvent::FreeBuffer);
            std::thread::sleep(Duration::from_millis(3));
            during(WaitEvent::Latch, || std::thread::sleep(Duration::from_millis(5)));
            during(WaitEvent::Latch, || ());
            outer.becomes(WaitEvent::LogBufferSpace);
        }
        let elapsed = start.elapsed().as_nanos() as u64;
        let tallies = table.read(1);
        assert_eq!(table.read(0), WaitTallies::default());
        assert_eq!(tallies.of(WaitEvent::FreeBuffer), WaitTally::default());
        assert_eq!((tallies.of(WaitEvent::LogBufferSpace).count, tallies.of(WaitEvent::Latch).count), (1, 2));
        assert!(tallies.of(WaitEvent::LogBufferSpace).ns >= 3_000_000 && tallies.of(WaitEvent::Latch).ns >= 5_000_000);
        assert!(tallies.ns() <= elapsed, "{} of {elapsed}", tallies.ns());
        assert_eq!(super::waited() - waited, tallies.ns());
    }
}
