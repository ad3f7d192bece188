//! The recorder: all waits of a trial, from the rings of all CPUs.
//!
//! Invariant: events of all CPUs are processed in the order of their times, and lost events are counted.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::format::{Field, Format};
use super::names::{IMAGE, MUTEX, SPIN};
use super::pairing::{Pairing, WaitBegin, Waiter};
use super::tracefs::Tracefs;
use crate::recorder::Recorder;
use crate::sampled::programs::Programs;
use crate::sampled::record::{Record, Sample, records};
use crate::sampled::recorder::{online, refusal};
use bigiron_model::waits::Traced;
use bigiron_sys::perf::{Ring, Tracepoint};

/// How often the rings are emptied, by the clock of the traced processes: virtual time in a guest under the exact clock.
const EVERY: Duration = Duration::from_millis(20);

/// Bytes of a ring: some twenty thousand waits of a CPU between two emptyings. A user who may not lock that much memory gets the next smaller size.
const RINGS: [usize; 3] = [4 << 20, 1 << 20, 1 << 18];

/// Most waits kept of a trial: 24 bytes each.
const MOST: usize = 4 << 20;

/// The futex operations that wait (linux/futex.h), with all combinations of their flags.
fn waiting_operations() -> std::ffi::CString {
    let [wait, lock_pi, wait_bitset, wait_requeue_pi, lock_pi2] = [0, 6, 9, 11, 13];
    let all = [wait, lock_pi, wait_bitset, wait_requeue_pi, lock_pi2];
    let terms: Vec<String> =
        [0, 128, 256, 384].iter().flat_map(|flags| all.map(|op| format!("op=={}", op + flags))).collect();
    std::ffi::CString::new(terms.join("||")).expect("no zero byte in it")
}

/// The result of a futex wait whose word had already changed: there was no wait.
const CHANGED: u64 = -(libc::EAGAIN as i64) as u64;

/// The positions of the fields used in an event's record.
#[derive(Debug)]
struct EventLayout {
    kind: Field,
    format: Format,
}

impl EventLayout {
    fn of(format: Format) -> Result<Self, String> {
        Ok(Self { kind: format.field("common_type")?, format })
    }

    fn is_it(&self, raw: &[u8]) -> bool {
        self.kind.read(raw) == Some(self.format.id)
    }
}

/// The available events.
#[derive(Debug)]
struct EventLayouts {
    /// Begin, with lock and flags; end, with lock.
    locks: Option<(EventLayout, Field, Field, EventLayout, Field)>,
    /// Begin of a system call; end, with its result.
    futex: Option<(EventLayout, EventLayout, Field)>,
    /// Why lock events are missing.
    untold: Option<String>,
}

impl EventLayouts {
    fn here() -> Result<Self, String> {
        let tracefs = Tracefs::open()?;
        let both = |begin: &str, end: &str| Ok::<_, String>(tracefs.tracepoint(begin)?.zip(tracefs.tracepoint(end)?));
        let locks = both("lock/contention_begin", "lock/contention_end")?.map(|(begin, end)| {
            let (lock, flags, ended) = (begin.field("lock_addr")?, begin.field("flags")?, end.field("lock_addr")?);
            Ok::<_, String>((EventLayout::of(begin)?, lock, flags, EventLayout::of(end)?, ended))
        });
        let futex = both("syscalls/sys_enter_futex", "syscalls/sys_exit_futex")?.map(|(begin, end)| {
            let returned = end.field("ret")?;
            Ok::<_, String>((EventLayout::of(begin)?, EventLayout::of(end)?, returned))
        });
        let untold = locks.is_none().then(|| {
            let release = rustix::system::uname().release().to_string_lossy().into_owned();
            format!("Linux {release} has no tracepoints `lock:contention_begin` and `lock:contention_end`; they came with 5.19")
        });
        Ok(Self { locks: locks.transpose()?, futex: futex.transpose()?, untold })
    }

    fn rings(&self) -> Result<Vec<Ring>, String> {
        let filter = waiting_operations();
        let mut points = Vec::new();
        let plain = |event: &EventLayout| Tracepoint { id: event.format.id, stack: false, filter: None };
        if let Some((begin, _, _, end, _)) = &self.locks {
            points.extend([Tracepoint { stack: true, ..plain(begin) }, plain(end)]);
        }
        if let Some((enter, exit, _)) = &self.futex {
            points.extend([Tracepoint { filter: Some(&filter), ..plain(enter) }, plain(exit)]);
        }
        if points.is_empty() {
            return Err(self.untold.clone().unwrap_or_default());
        }
        let all = |data| online().into_iter().map(|cpu| Ring::of_tracepoints(&points, cpu, data)).collect();
        let mut made: io::Result<Vec<Ring>> = all(RINGS[0]);
        for data in &RINGS[1..] {
            if made.is_err() {
                made = all(*data);
            }
        }
        made.map_err(|e| refusal(&e))
    }
}

/// What was waited for, and by which process: few distinct values, with many waits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub what: WaitTarget,
    /// The image of its process, in [`Recording::programs`].
    pub image: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitTarget {
    /// A kernel lock: the tracepoint's flags, without [`SPIN`] where that changes within a wait; the lock's address, if it may be a variable; and the
    /// number of the stack.
    Lock {
        flags: u32,
        variable: Option<u64>,
        stack: u32,
    },
    Futex,
}

/// A wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub begin: u64,
    pub ns: u64,
    /// Index into [`Recording::origins`].
    pub origin: u32,
    /// Whether it never slept.
    pub spun: bool,
}

/// Numbers in order of first appearance. The hash is the same in every run, and under the exact clock so is the time that it takes.
type Numbers<T> = HashMap<T, u32, BuildHasherDefault<DefaultHasher>>;

/// The whole recording.
#[derive(Debug, Default)]
pub struct Recording {
    pub waits: Vec<Wait>,
    pub origins: Vec<Origin>,
    pub stacks: Vec<Vec<u64>>,
    pub programs: Programs,
    pub traced: Traced,
    pub cpus: u32,
    origin_numbers: Numbers<Origin>,
    stack_numbers: Numbers<Vec<u64>>,
}

/// The key of a futex wait: a thread waits for one at a time, and no lock has this address.
const FUTEX: u64 = 0;

/// Turns events into a recording.
#[derive(Debug)]
struct Collector {
    events: EventLayouts,
    pairing: Pairing<u32>,
    /// Not yet in order.
    pending: BTreeMap<(u64, u64), Record>,
    seen: u64,
    recording: Recording,
}

impl Collector {
    fn new(events: EventLayouts, cpus: u32) -> Self {
        let traced = Traced { untold: events.untold.clone(), ..Traced::default() };
        let recording = Recording { traced, cpus, ..Recording::default() };
        Self { events, pairing: Pairing::default(), pending: BTreeMap::new(), seen: 0, recording }
    }

    /// Adds what was taken from the rings; no event before `until` is still to come.
    fn add(&mut self, taken: &[Vec<u8>], until: u64) {
        for record in taken.iter().flat_map(|bytes| records(bytes)) {
            match record {
                Ok((_, Record::Other)) => {}
                Ok((time, record)) => {
                    self.seen += 1;
                    self.pending.insert((time, self.seen), record);
                }
                Err(_) => self.recording.traced.lost += 1,
            }
        }
        let later = self.pending.split_off(&(until, 0));
        for ((time, _), record) in std::mem::replace(&mut self.pending, later) {
            self.take(time, record);
        }
    }

    fn take(&mut self, time: u64, record: Record) {
        let programs = &mut self.recording.programs;
        match record {
            Record::Sample(sample) => {
                self.recording.traced.events += 1;
                self.event(time, sample);
            }
            Record::Mapped { pid, mapping } => programs.map(pid, mapping),
            Record::Forked { pid, parent } => programs.fork(pid, parent),
            Record::Named { pid, name, executes } => programs.name(pid, &name, executes),
            Record::Lost(n) => {
                self.recording.traced.lost += n;
                self.pairing.lost();
            }
            Record::Throttled | Record::Other => {}
        }
    }

    fn event(&mut self, time: u64, sample: Sample) -> Option<()> {
        let (waiter, raw) = (Waiter::new(sample.tid, sample.cpu), &sample.raw);
        let image = self.recording.programs.image(sample.pid);
        if let Some((begin, lock, flags, end, ended)) = &self.events.locks {
            if begin.is_it(raw) {
                let (lock, flags) = (lock.read(raw)?, flags.read(raw)? as u32);
                let goes_on = flags & MUTEX != 0;
                let kept = if goes_on { flags & !SPIN } else { flags };
                let variable = (lock >= IMAGE).then_some(lock);
                let what = WaitTarget::Lock { flags: kept, variable, stack: self.recording.stack(sample.stack.kernel) };
                let origin = self.recording.origin(Origin { what, image });
                self.pairing.begin(waiter, lock, WaitBegin { time, origin, spins: flags & SPIN != 0, goes_on });
                return Some(());
            }
            if end.is_it(raw) {
                let ended = self.pairing.end(waiter, ended.read(raw)?, time)?;
                self.recording.wait(Wait { begin: ended.begin, ns: ended.ns, origin: ended.origin, spun: ended.spun });
                return Some(());
            }
        }
        let (enter, exit, returned) = self.events.futex.as_ref()?;
        if enter.is_it(raw) {
            let origin = self.recording.origin(Origin { what: WaitTarget::Futex, image });
            // The previous wait may have ended with its thread.
            self.pairing.forget(waiter, FUTEX);
            self.pairing.begin(waiter, FUTEX, WaitBegin { time, origin, spins: false, goes_on: false });
        } else if exit.is_it(raw) {
            // Ends of other operations are recorded without a begin.
            let before = self.pairing.unpaired;
            let ended = self.pairing.end(waiter, FUTEX, time);
            self.pairing.unpaired = before;
            let ended = ended.filter(|_| returned.read(raw) != Some(CHANGED))?;
            self.recording.wait(Wait { begin: ended.begin, ns: ended.ns, origin: ended.origin, spun: false });
        }
        Some(())
    }

    fn finish(mut self) -> Recording {
        // A wait still open here never got its lock.
        self.recording.traced.unpaired = self.pairing.unpaired;
        self.recording
    }
}

impl Recording {
    fn wait(&mut self, wait: Wait) {
        if self.waits.len() < MOST {
            self.waits.push(wait);
        } else {
            self.traced.lost += 1;
        }
    }

    fn origin(&mut self, origin: Origin) -> u32 {
        let next = self.origins.len() as u32;
        let origins = &mut self.origins;
        *self.origin_numbers.entry(origin).or_insert_with(|| {
            origins.push(origin);
            next
        })
    }

    fn stack(&mut self, stack: Vec<u64>) -> u32 {
        if let Some(number) = self.stack_numbers.get(&stack) {
            return *number;
        }
        let number = self.stacks.len() as u32;
        self.stacks.push(stack.clone());
        self.stack_numbers.insert(stack, number);
        number
    }
}

/// Whether this process may trace all others; if not, why, and what would be needed.
///
/// # Errors
/// The refusal.
pub fn permitted() -> Result<(), String> {
    EventLayouts::here()?.rings().map(drop)
}

/// Rings that are being filled and not yet emptied.
#[derive(Debug)]
pub struct Armed {
    events: EventLayouts,
    rings: Vec<Ring>,
}

impl Armed {
    /// Starts recording events. Processes that this one forks from now on belong to the trial.
    ///
    /// # Errors
    /// Why it is impossible, as in [`permitted`].
    pub fn new() -> Result<Self, String> {
        let events = EventLayouts::here()?;
        let rings = events.rings()?;
        rings.iter().try_for_each(Ring::enable).map_err(|e| refusal(&e))?;
        Ok(Self { events, rings })
    }

    /// Starts a thread of this process that empties the rings.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(self) -> Result<Recorder<Recording>, String> {
        Recorder::start(move |stopped| self.record(stopped))
    }

    fn record(mut self, stopped: &AtomicBool) -> Recording {
        let mut collector = Collector::new(self.events, self.rings.len() as u32);
        // Only after the rings report new processes, so that none is missed.
        collector.recording.programs = Programs::running(std::process::id());
        let mut taken = vec![Vec::new(); self.rings.len()];
        // Events before the previous emptying are in the rings of all CPUs by now.
        let mut until = 0;
        loop {
            let last = stopped.load(Ordering::Acquire);
            if last {
                self.rings.iter().for_each(|ring| drop(ring.disable()));
            }
            let now = now();
            for (ring, bytes) in self.rings.iter_mut().zip(&mut taken) {
                bytes.clear();
                ring.take(bytes);
            }
            collector.add(&taken, if last { u64::MAX } else { until });
            if last {
                return collector.finish();
            }
            until = now;
            thread::park_timeout(EVERY);
        }
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
