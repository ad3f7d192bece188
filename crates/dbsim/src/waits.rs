//! Wait events: what a process waits for, how often and how long, under a name from a closed list.
//!
//! Invariant: no instant belongs to two events. A wait inside a wait (a latch while looking for a free buffer) counts only for
//! the inner one, so that a process's waits may be summed.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use bigiron_sys::latch;
use bigiron_sys::latch::Contended;
use bigiron_sys::load::now_ns;
use bigiron_sys::segment::shared_struct;
use bigiron_sys::shared_memory::SharedMemory;

use super::audit::{Audit, Auditor};

mod event;

pub use event::WaitEvent;

/// Number of events.
const EVENTS: usize = WaitEvent::ALL.len();

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
    ///
    /// A wait that was in progress at `before` may have got another event since ([`WaitGuard::becomes`]). Its time until then then counts
    /// for neither event, so that the sum is never longer than the time between the two readings.
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.with(before, u64::saturating_sub);
        let mut renamed: u64 = self.0.iter().zip(&before.0).map(|(now, then)| then.ns.saturating_sub(now.ns)).sum();
        while renamed > 0 {
            let longest = since.0.iter_mut().max_by_key(|t| t.ns).expect("There are events");
            let taken = longest.ns.min(renamed);
            if taken == 0 {
                break;
            }
            longest.ns -= taken;
            renamed -= taken;
        }
        since
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

/// Counts of a worker, on cache lines of its own: one for each event, then those of [`Audit`], then the wait in progress (its event + 1, and
/// from when on its time is not counted yet), then the row's version, which is odd while the worker changes the row.
const AUDIT: usize = EVENTS;
const UNDER_WAY: usize = AUDIT + 3;
const VERSION: usize = UNDER_WAY + 1;
const ROW: usize = (VERSION + 1).next_multiple_of(4);
/// For how long a row is read again until it has not changed meanwhile, in nanoseconds. Only a worker that was killed or stopped while it
/// changed its row takes as long: one without a CPU gets one sooner.
const READ_LIMIT: u64 = 10_000_000_000;

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
            here.current.set(None);
            here.auditor.take();
            here.to.replace(Some((self.clone(), worker)));
        });
    }

    /// The waits of `worker` so far; a wait in progress counts with its time until now. So the waits between two readings are
    /// never longer than the time between them.
    pub fn read(&self, worker: usize) -> WaitTallies {
        let row = self.row(worker);
        let start = now_ns();
        loop {
            let version = row[VERSION].count.load(Acquire);
            let of = |i: usize| WaitTally { count: row[i].count.load(Relaxed), ns: row[i].ns.load(Relaxed) };
            let mut tallies = WaitTallies(std::array::from_fn(of));
            let under_way = of(UNDER_WAY);
            let now = now_ns();
            fence(SeqCst);
            let changed = version % 2 == 1 || row[VERSION].count.load(Relaxed) != version;
            if changed && now.saturating_sub(start) < READ_LIMIT {
                std::thread::yield_now();
                continue;
            }
            if let Some(event) = under_way.count.checked_sub(1) {
                tallies.0[event as usize].ns += now.saturating_sub(under_way.ns);
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

/// A wait in progress, as its thread knows it.
#[derive(Clone, Copy)]
struct Wait {
    event: WaitEvent,
    /// Its time is counted until then (nanoseconds of the monotonic clock).
    until: u64,
    /// Nanoseconds counted so far, without the waits inside it.
    counted: u64,
}

/// The waiting state of this thread.
#[derive(Default)]
struct ThreadState {
    /// Where its waits are counted.
    to: RefCell<Option<(WaitTable, usize)>>,
    /// The innermost wait in progress.
    current: Cell<Option<Wait>>,
    /// Nanoseconds of all finished waits; nested ones are not counted twice.
    waited: Cell<u64>,
    auditor: RefCell<Option<Auditor>>,
}

impl ThreadState {
    /// Counts the current wait until now, then changes the row; the thread then waits for what `change` returns. Returns now.
    fn turn(&self, change: impl FnOnce(Option<Wait>, u64, Option<&[Count]>) -> Option<Wait>) -> u64 {
        let to = self.to.borrow();
        let row = to.as_ref().map(|(table, worker)| table.row(*worker));
        if let Some(row) = row {
            grow(&row[VERSION].count, 1);
        }
        // The fences order the clocks too: a reader that does not see the odd version yet has read an earlier time than this.
        fence(SeqCst);
        let now = now_ns();
        let mut current = self.current.get();
        if let Some(wait) = &mut current {
            let more = now.saturating_sub(wait.until);
            (wait.until, wait.counted) = (now, wait.counted + more);
            if let Some(row) = row {
                grow(&row[wait.event as usize].ns, more);
            }
        }
        let next = change(current, now, row);
        self.current.set(next);
        if let Some(row) = row {
            row[UNDER_WAY].count.store(next.map_or(0, |wait| wait.event as u64 + 1), Relaxed);
            row[UNDER_WAY].ns.store(now, Relaxed);
            grow(&row[VERSION].count, 1);
        }
        now
    }
}

thread_local! {
    static HERE: ThreadState = ThreadState::default();
}

/// A wait in progress; it ends when this is dropped. Waits end in the reverse order of their beginnings.
pub struct WaitGuard {
    /// Nanoseconds of the monotonic clock.
    start: u64,
    /// The wait that this one is inside of.
    outer: Option<Wait>,
    /// CPU time and run delay before the wait, if the transaction is closely examined and this is its outermost wait.
    before: Option<(u64, u64)>,
}

impl WaitGuard {
    /// Sets the event, if it becomes known during the wait: the whole wait then counts as this.
    pub fn becomes(&mut self, event: WaitEvent) {
        HERE.with(|here| {
            here.turn(|current, _, row| {
                let wait = current?;
                if let Some(row) = row {
                    let old = &row[wait.event as usize].ns;
                    old.store(old.load(Relaxed) - wait.counted, Relaxed);
                    grow(&row[event as usize].ns, wait.counted);
                }
                Some(Wait { event, ..wait })
            })
        });
    }
}

/// Begins to wait.
pub fn enter(event: WaitEvent) -> WaitGuard {
    HERE.with(|here| {
        let outermost = here.current.get().is_none();
        let before = if outermost { here.auditor.borrow().as_ref().and_then(Auditor::read) } else { None };
        let mut outer = None;
        let start = here.turn(|current, now, _| {
            outer = current;
            Some(Wait { event, until: now, counted: 0 })
        });
        WaitGuard { start, outer, before }
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
        HERE.with(|here| {
            let now = here.turn(|current, now, row| {
                if let (Some(wait), Some(row)) = (current, row) {
                    grow(&row[wait.event as usize].count, 1);
                }
                self.outer.map(|outer| Wait { until: now, ..outer })
            });
            let elapsed = now.saturating_sub(self.start);
            if self.outer.is_none() {
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

    #[test]
    fn what_is_read_during_nested_and_renamed_waits_never_decreases() {
        let table = WaitTable::new(1).unwrap();
        table.attach(0);
        let pause = || std::thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        let (before, inside);
        {
            let mut outer = enter(WaitEvent::LogBufferSpace);
            pause();
            {
                let _inner = enter(WaitEvent::Latch);
                pause();
                before = table.read(0);
                assert!(
                    u128::from(before.ns()) <= start.elapsed().as_nanos(),
                    "the outer wait does not go on meanwhile"
                );
            }
            pause();
            outer.becomes(WaitEvent::LogSwitch);
            inside = table.read(0);
            pause();
        }
        let after = table.read(0);
        // The 2 ms before the first reading are in `before` as another event; they are not in what followed.
        for (later, earlier) in [(&inside, &before), (&after, &inside), (&after, &before)] {
            let since = later.since(earlier);
            assert_eq!(since.ns(), later.ns() - earlier.ns());
            assert_eq!(since.of(WaitEvent::LogBufferSpace).ns, 0);
        }
        assert_eq!(after.of(WaitEvent::LogBufferSpace), WaitTally::default());
        assert!(after.of(WaitEvent::LogSwitch).ns >= 6_000_000 && after.of(WaitEvent::LogSwitch).count == 1);
    }

    #[test]
    fn readings_beside_the_worker_never_decrease() {
        let table = WaitTable::new(1).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (worker, stop) = (table.clone(), &done);
            scope.spawn(move || {
                worker.attach(0);
                while !stop.load(Acquire) {
                    let _outer = enter(WaitEvent::FreeBuffer);
                    during(WaitEvent::Latch, || ());
                }
            });
            // The worker may be late: without a wait there would be nothing to read.
            let start = Instant::now();
            while table.read(0).of(WaitEvent::Latch).count == 0 && start.elapsed() < Duration::from_secs(300) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // What is read of a worker that stalled for so long in the middle of a change may be torn.
            let read = || loop {
                let begun = now_ns();
                let tallies = table.read(0);
                if now_ns() - begun < READ_LIMIT {
                    break tallies;
                }
            };
            let (mut last, end, mut less) = (read(), Instant::now() + Duration::from_millis(200), None);
            while Instant::now() < end && less.is_none() {
                let now = read();
                let pairs = WaitEvent::ALL.iter().map(|event| (event, last.of(*event), now.of(*event)));
                less = pairs.into_iter().find(|(_, before, after)| before.ns > after.ns || before.count > after.count);
                last = now;
            }
            done.store(true, Release);
            assert_eq!(less, None);
        });
        assert!(table.read(0).of(WaitEvent::Latch).count > 0);
    }
}
