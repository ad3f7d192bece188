//! The loop of plain requests: draws, submits, waits and counts.
//!
//! Invariant: between a request's two readings of the clock only the engine runs: drawing and filling come before, checking and
//! counting after. The loop allocates nothing.

mod issued;
mod verification;

use std::hint::cold_path;
use std::os::fd::BorrowedFd;

use anyhow::{Context as _, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use bigiron_sys::async_io;
use bigiron_sys::async_io::{Completion, Engine, Lists, Request};
use bigiron_sys::latch::Held;
use bigiron_sys::load::LotRecorder;
use bigiron_sys::ticks::Ticks;

use super::super::block::Address;
use super::super::instance::{Instance, Phase, ProcessCounters};
use super::super::job::RequestSpec;
use super::super::pace::{self, Starts};
use super::board::{self, RequestAction, RequestBoard};
use super::draws::{Draws, Position};
use super::page;
use issued::Issued;

/// Requests draw from separate streams, apart from those of transactions.
const STREAM: u64 = 1 << 40;

/// Number of latencies counted at once: of these several fall into one bucket, which is then loaded into the CPU's caches only
/// once.
const LOT: usize = 256;

/// Completed requests among those that started at one moment.
#[derive(Clone, Copy, Default)]
struct CompletionCounts {
    /// When they began, in ticks.
    start: u64,
    reads: u64,
    writes: u64,
}

impl CompletionCounts {
    fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

/// Requests for `slots`, the last first, each drawn on demand.
struct Drawn<'g, 'a> {
    slots: &'g [u16],
    draws: &'g Draws,
    at: &'g mut Position,
    issued: &'g mut [Issued],
    bytes: usize,
    dsync: bool,
    files: &'g [BorrowedFd<'a>],
    now: u64,
}

impl<'a> Iterator for Drawn<'_, 'a> {
    type Item = Request<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Request<'a>> {
        let (&slot, others) = self.slots.split_last()?;
        self.slots = others;
        let (address, write) = self.draws.draw(self.at);
        self.issued[usize::from(slot)] = Issued::new(address, write, self.now);
        Some(request(self.bytes, self.dsync, self.files, slot.into(), address, write))
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.slots.len(), Some(self.slots.len()))
    }
}

impl ExactSizeIterator for Drawn<'_, '_> {}

/// Accounts for requests whose completion was seen at one moment.
struct CompletionAccount<'g, 'a> {
    /// Bytes that each must transfer.
    bytes: usize,
    issued: &'g [Issued],
    free: &'g mut Vec<u16>,
    /// By file: whether it was written to.
    dirty: &'g mut [bool],
    /// `None`: the window is not open.
    recorders: Option<&'g mut [LotRecorder<'a>; board::ACTIONS]>,
    ticks: &'g Ticks,
    /// Nanoseconds to add to each latency.
    late: u64,
    /// The moment, in ticks.
    now: u64,
    /// Those of the last group with the same start.
    group: CompletionCounts,
    all: CompletionCounts,
    /// The first request that did not transfer all its bytes.
    failed: Option<Completion>,
}

impl async_io::CompletionHandler for CompletionAccount<'_, '_> {
    // Inlined, like the whole path of a batch: code lines that a batch touches displace the kernel's from the CPU's caches. For
    // the same reason `cold_path` marks branches off the plain-request path, here, in the drawing and in the engine, even if they
    // are common in other jobs.
    #[inline(always)]
    fn begin(&mut self) {
        self.now = self.ticks.now();
    }

    #[inline(always)]
    fn ended(&mut self, completion: Completion) {
        if !completion.is_of(self.bytes) {
            cold_path();
            self.failed.get_or_insert(completion);
            return;
        }
        let issued = self.issued[completion.slot];
        // Requests that were submitted together and have completed together took equally long: they are counted as one.
        if issued.start != self.group.start {
            cold_path();
            self.record();
            self.group = CompletionCounts { start: issued.start, ..CompletionCounts::default() };
        }
        if issued.writes() {
            self.group.writes += 1;
            self.dirty[issued.address().file as usize] = true;
        } else {
            self.group.reads += 1;
        }
        self.free.push(completion.slot as u16);
    }
}

impl CompletionAccount<'_, '_> {
    /// Everything that has completed, when, and the failures.
    #[inline(always)]
    fn close(&mut self) -> (CompletionCounts, u64, Option<Completion>) {
        self.record();
        (self.all, self.now, self.failed)
    }

    #[inline(always)]
    fn record(&mut self) {
        if self.group.reads + self.group.writes == 0 {
            return;
        }
        self.all.add(self.group);
        if let Some(recorders) = &mut self.recorders {
            record(recorders, self.ticks.ns(self.group.start, self.now) + self.late, self.group);
        }
    }
}

// By value and not inlined: a batch's counts can stay in registers, and this code exists once.
#[inline(never)]
fn record(recorders: &mut [LotRecorder<'_>; board::ACTIONS], ns: u64, ended: CompletionCounts) {
    for (action, count) in [(RequestAction::Read, ended.reads), (RequestAction::Write, ended.writes)] {
        if count > 0 {
            recorders[action as usize].record_many(ns, count);
        }
    }
}

/// One process's requests, through its own engine.
pub struct Generator<'a, E> {
    instance: &'a Instance<'a>,
    board: &'a RequestBoard<'a>,
    process: usize,
    spec: &'a RequestSpec,
    counters: &'a ProcessCounters,
    recorders: [LotRecorder<'a>; board::ACTIONS],
    files: &'a [BorrowedFd<'a>],
    engine: E,
    draws: Draws,
    at: Position,
    /// When requests begin: after a think time, or at a rate.
    starts: Starts,
    /// Whether a request must wait before it begins.
    paced: bool,
    /// Whether a batch needs more than drawing, submitting and accounting for completions.
    more_to_do: bool,
    /// Nanoseconds by which the last request began after its intended start.
    late: u64,
    /// Whether the window is open.
    measuring: bool,
    /// Maximum number of requests per submission.
    batch_max: usize,
    /// Number of slots that must be free for the next batch.
    room: usize,
    /// Slots that are not in flight.
    free: Vec<u16>,
    issued: Vec<Issued>,
    /// Verification: the blocks that this process holds, by slot.
    held: Vec<Option<Held<'a>>>,
    lists: Lists<'a>,
    sequence: u64,
    /// Writes since the last sync, and their files.
    unsynced: u32,
    dirty: Vec<bool>,
    /// When the last completions were seen, in ticks.
    now: u64,
}

impl<'a, E: Engine> Generator<'a, E> {
    /// The generator of one process. `engine` has the job's depth and knows `files`, the data files.
    pub fn new(
        instance: &'a Instance<'a>,
        process: usize,
        spec: &'a RequestSpec,
        files: &'a [BorrowedFd<'a>],
        mut engine: E,
    ) -> Result<Self> {
        let job = instance.job;
        let depth = spec.engine.depth;
        let mut seeds = ChaCha8Rng::seed_from_u64(instance.seed);
        seeds.set_stream(STREAM + process as u64);
        for slot in 0..depth {
            page::prepare(engine.buffer(slot), seeds.next_u64());
        }
        let board = &instance.requests;
        let latency = board.latency(process).context("The process is not of a request class")?;
        let none = Issued::new(Address { file: 0, block: 0 }, false, 0);
        let draws = Draws::new(job, spec, instance.seed);
        let at = draws.start(seeds.next_u64(), instance.roles[process].number);
        let class = instance.class(process);
        let place = (instance.roles[process].number, class.count);
        let starts = Starts::new(class.pace, instance.seed, process as u64, place, 0, pace::now());
        let paced = !matches!(starts, Starts::Closed { think } if think.is_zero());
        let batch_max = spec.engine.batch.clamp(1, depth);
        Ok(Self {
            instance,
            board,
            process,
            spec,
            counters: &instance.counters[process],
            recorders: latency.map(|h| h.lot_recorder(LOT)),
            files,
            engine,
            draws,
            at,
            paced,
            more_to_do: paced || spec.verify || spec.fdatasync_every > 0,
            starts,
            late: 0,
            measuring: false,
            batch_max,
            // A batch as large as the depth would empty the queue each time; then completed requests are replaced at once,
            // however few.
            room: if batch_max < depth { batch_max } else { 1 },
            free: (0..depth as u16).rev().collect(),
            issued: vec![none; depth],
            held: (0..depth).map(|_| None).collect(),
            lists: Lists::of(depth),
            sequence: 0,
            unsynced: 0,
            dirty: vec![false; files.len()],
            now: board.ticks.now(),
        })
    }

    /// From now on requests count: the window is open.
    pub fn measure(&mut self) {
        self.measuring = true;
    }

    /// Issues `count` requests and waits for all of them.
    pub fn requests(&mut self, count: u64) -> Result<()> {
        self.now = self.board.ticks.now();
        self.run(count, false)
    }

    /// Issues requests until the window closes; those in the window count.
    pub fn until_closed(&mut self) -> Result<()> {
        self.run(u64::MAX, true)
    }

    /// Issues at most `left` requests while the window is not closed. `wait`: requests count that complete after the window
    /// opens.
    fn run(&mut self, mut left: u64, wait: bool) -> Result<()> {
        let instance = self.instance;
        while left > 0 {
            let phase = instance.phase();
            if phase >= Phase::Close as u32 {
                break;
            }
            if wait {
                self.measuring = phase >= Phase::Measure as u32;
            }
            left -= self.cycle(left)?;
        }
        if wait {
            self.measuring = false;
        }
        self.end()
    }

    /// Waits for all requests in flight; then all latencies are recorded.
    fn end(&mut self) -> Result<()> {
        self.drain()?;
        self.recorders.iter_mut().for_each(LotRecorder::flush);
        Ok(())
    }

    /// One batch of at most `left`: drawn and submitted, then waits until there is room for the next. Returns the number
    /// submitted.
    #[inline(always)]
    fn cycle(&mut self, left: u64) -> Result<u64> {
        let size = left.min(self.batch_max as u64).min(self.free.len() as u64) as usize;
        if self.more_to_do {
            cold_path();
            return self.cycle_with_more(size);
        }
        self.draw(size)?;
        self.exchange_for_room()?;
        Ok(size as u64)
    }

    /// The same for a batch of `size` requests that needs more work.
    #[inline(never)]
    fn cycle_with_more(&mut self, size: usize) -> Result<u64> {
        if self.paced && !self.pause() {
            return Ok(0);
        }
        if self.spec.verify {
            self.draw_verifiable(size)?;
        } else {
            self.draw(size)?;
        }
        self.exchange_for_room()?;
        if self.spec.fdatasync_every > 0 && self.unsynced >= self.spec.fdatasync_every {
            self.drain()?;
            self.sync()?;
        }
        if self.paced && matches!(self.starts, Starts::Closed { .. }) {
            self.drain()?;
        }
        Ok(size as u64)
    }

    /// Submits the batch and waits for enough completions to make room for the next.
    #[inline(always)]
    fn exchange_for_room(&mut self) -> Result<()> {
        let free = self.free.len();
        let min = if free >= self.room { 0 } else { (self.room - free).min(self.issued.len() - free) };
        // No more completions are taken than the next batch can replace: the depth is the number in flight, also as the latencies
        // see it.
        self.exchange(min, self.batch_max)
    }

    /// Sleeps until the next batch is due; returns false if the run ends without it.
    #[inline(never)]
    fn pause(&mut self) -> bool {
        let due = match &mut self.starts {
            Starts::Closed { think } => pace::now() + think.as_nanos() as u64,
            Starts::Open(arrivals) => arrivals.take(),
        };
        while pace::now() < due {
            // The opening of the window is not a reason to begin early.
            if !self.instance.sleep_until(due) && self.instance.reached(Phase::Close) {
                return false;
            }
        }
        if matches!(self.starts, Starts::Open(_)) {
            self.late = pace::now() - due;
        }
        self.now = self.board.ticks.now();
        true
    }

    /// Draws `size` requests into free slots and makes them ready.
    #[inline(always)]
    fn draw(&mut self, size: usize) -> Result<()> {
        let rest = self.free.len().saturating_sub(size);
        let drawn = Drawn {
            slots: &self.free[rest..],
            draws: &self.draws,
            at: &mut self.at,
            issued: &mut self.issued,
            bytes: self.spec.bytes,
            dsync: self.spec.dsync,
            files: self.files,
            now: self.now,
        };
        if let Err(e) = self.engine.prepare(drawn, &mut self.lists) {
            return self.refused(e);
        }
        self.free.truncate(rest);
        Ok(())
    }

    /// Submits the batch and waits until nothing is in flight.
    #[inline(never)]
    fn drain(&mut self) -> Result<()> {
        let min = self.engine.pending() + self.lists.requests.len();
        if min > 0 { self.exchange(min, min) } else { Ok(()) }
    }

    /// Submits the batch, waits for at least `min` requests, and accounts for at most `max` completions.
    #[inline(always)]
    fn exchange(&mut self, min: usize, max: usize) -> Result<()> {
        let before = self.free.len();
        let mut account = CompletionAccount {
            bytes: self.spec.bytes,
            issued: &self.issued,
            free: &mut self.free,
            dirty: &mut self.dirty,
            recorders: self.measuring.then_some(&mut self.recorders),
            ticks: &self.board.ticks,
            late: self.late,
            now: self.now,
            group: CompletionCounts::default(),
            all: CompletionCounts::default(),
            failed: None,
        };
        if let Err(e) = self.engine.exchange(min, max, &mut self.lists, &mut account) {
            return self.refused(e);
        }
        let (all, now, failed) = account.close();
        self.now = now;
        if let Some(completion) = failed {
            return Err(self.failure(completion));
        }
        if self.free.len() > before {
            if self.spec.verify {
                cold_path();
                self.verify(before)?;
            }
            self.unsynced += all.writes as u32;
            let ProcessCounters { reads, writes, batches, .. } = self.counters;
            ProcessCounters::grow(reads, all.reads);
            ProcessCounters::grow(writes, all.writes);
            ProcessCounters::grow(batches, 1);
        }
        Ok(())
    }

    /// The engine has refused a batch.
    #[cold]
    fn refused(&self, error: std::io::Error) -> Result<()> {
        Err(error).with_context(|| format!("Cannot do requests with {}", self.engine.describe()))
    }

    /// The error for a failed completion.
    #[cold]
    fn failure(&self, completion: Completion) -> anyhow::Error {
        let issued = self.issued[completion.slot];
        let (address, write) = (issued.address(), issued.writes());
        match completion.result() {
            Ok(n) => anyhow::anyhow!("Only {n} of {} bytes of {address} were transferred", self.spec.bytes),
            Err(e) => {
                let text = format!("Cannot {} {address}: {e}", if write { "write" } else { "read" });
                anyhow::Error::from(std::io::Error::from(e.kind())).context(text)
            }
        }
    }

    #[inline(never)]
    fn sync(&mut self) -> Result<()> {
        for (file, dirty) in self.files.iter().zip(&mut self.dirty) {
            if std::mem::take(dirty) {
                let start = self.board.ticks.now();
                rustix::fs::fdatasync(file).context("Cannot sync a data file")?;
                self.now = self.board.ticks.now();
                if self.measuring {
                    self.recorders[RequestAction::Sync as usize].record(self.board.ticks.ns(start, self.now));
                }
            }
        }
        self.unsynced = 0;
        Ok(())
    }
}

/// The request of a slot.
#[inline(always)]
fn request<'a>(
    bytes: usize,
    dsync: bool,
    files: &[BorrowedFd<'a>],
    slot: usize,
    address: Address,
    write: bool,
) -> Request<'a> {
    Request {
        slot,
        fd: files[address.file as usize],
        offset: u64::from(address.block) * bytes as u64,
        len: bytes,
        write,
        dsync,
        dontcache: false,
    }
}
