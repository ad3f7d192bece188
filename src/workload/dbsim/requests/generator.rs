//! The loop of plain requests: it draws, hands over, waits and counts.
//!
//! Invariant: between a request's two readings of the clock there is nothing but the engine: drawing and filling come before,
//! checking and counting behind. Nothing is allocated in the loop.

use std::os::fd::BorrowedFd;

use anyhow::{Context as _, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::load::LotRecorder;
use crate::sys::async_io::{Completion, Engine, Request};
use crate::sys::latch::Held;

use super::super::block::Address;
use super::super::instance::{Counters, Instance, Phase};
use super::super::job::Requests;
use super::super::pace::{self, Starts};
use super::board::{self, Action, Board};
use super::draws::{Draws, Position};
use super::{check_block, page};

/// Requests of this class draw from streams of their own, apart from those of transactions.
const STREAM: u64 = 1 << 40;

/// A slot's request.
#[derive(Clone, Copy)]
struct Issued {
    address: Address,
    write: bool,
    /// When it was handed over, in ticks.
    start: u64,
}

/// Requests that have ended of those that began at one moment.
#[derive(Clone, Copy, Default)]
struct Ended {
    /// When they began, in ticks.
    start: u64,
    reads: u64,
    writes: u64,
}

impl Ended {
    fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

/// One process's requests, by an engine of its own.
pub struct Generator<'a, E> {
    instance: &'a Instance<'a>,
    board: &'a Board<'a>,
    process: usize,
    spec: &'a Requests,
    counters: &'a Counters,
    recorders: [LotRecorder<'a>; board::ACTIONS],
    files: &'a [BorrowedFd<'a>],
    engine: E,
    draws: Draws,
    at: Position,
    /// When requests are to begin: so long after the last, or at a rate.
    starts: Starts,
    /// Whether there is anything to wait for before a request begins.
    paced: bool,
    /// Nanoseconds by which the last request began after its intended start.
    late: u64,
    /// Whether the window is open.
    measuring: bool,
    /// Requests handed over at once, at most.
    batch_max: usize,
    free: Vec<usize>,
    issued: Vec<Issued>,
    /// Verification: the blocks that this process has, by slot.
    held: Vec<Option<Held<'a>>>,
    batch: Vec<Request<'a>>,
    done: Vec<Completion>,
    sequence: u64,
    /// Writes since the last sync, and the files that they went to.
    unsynced: u32,
    dirty: Vec<bool>,
    /// When the last completions were seen, in ticks.
    now: u64,
}

impl<'a, E: Engine> Generator<'a, E> {
    /// The generator of one process. `engine` has the job's depth and has been told of `files`, the data files.
    pub fn new(
        instance: &'a Instance<'a>,
        process: usize,
        spec: &'a Requests,
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
        let latency = board.latency(process).context("A process of no request class")?;
        let here = Issued { address: Address { file: 0, block: 0 }, write: false, start: 0 };
        let draws = Draws::new(job, spec, instance.seed);
        let at = draws.start(seeds.next_u64(), instance.roles[process].number);
        let class = instance.class(process);
        let place = (instance.roles[process].number, class.count);
        let starts = Starts::new(class.pace, instance.seed, process as u64, place, 0, pace::now());
        Ok(Self {
            instance,
            board,
            process,
            spec,
            counters: &instance.counters[process],
            recorders: latency.map(|h| h.lot_recorder()),
            files,
            engine,
            draws,
            at,
            paced: !matches!(starts, Starts::Closed { think } if think.is_zero()),
            starts,
            late: 0,
            measuring: false,
            batch_max: spec.engine.batch.clamp(1, depth),
            free: (0..depth).rev().collect(),
            issued: vec![here; depth],
            held: (0..depth).map(|_| None).collect(),
            batch: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
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
        let mut left = count;
        while left > 0 && !self.instance.reached(Phase::Close) {
            left -= self.cycle(left)?;
        }
        self.end()
    }

    /// Issues requests until the window closes; those in it count.
    pub fn until_closed(&mut self) -> Result<()> {
        let instance = self.instance;
        while !instance.reached(Phase::Close) {
            self.measuring = instance.reached(Phase::Measure);
            self.cycle(u64::MAX)?;
        }
        self.measuring = false;
        self.end()
    }

    /// Waits for what is in flight; all latencies are on record then.
    fn end(&mut self) -> Result<()> {
        self.drain()?;
        self.recorders.iter_mut().for_each(LotRecorder::settle);
        Ok(())
    }

    /// One batch, at most `left`: drawn, handed over, and as many waited for as make room for the next. Returns how many were
    /// handed over.
    #[inline]
    fn cycle(&mut self, left: u64) -> Result<u64> {
        if self.paced && !self.pause() {
            return Ok(0);
        }
        let depth = self.issued.len();
        // A batch as large as the depth would empty the queue each time: then what has ended is replaced, be it little.
        let full = if self.batch_max < depth { self.batch_max } else { 1 };
        let size = left.min(self.batch_max as u64).min(self.free.len() as u64) as usize;
        if self.spec.verify {
            self.draw_verifiable(size)?;
        } else {
            self.draw(size)?;
        }
        let room = self.free.len();
        let min = if room >= full { 0 } else { (full - room).min(depth - room) };
        // No more are taken than can be replaced by the next batch: the depth is what is in flight, also as the latencies see it.
        self.exchange(min, self.batch_max)?;
        if self.spec.fdatasync_every > 0 && self.unsynced >= self.spec.fdatasync_every {
            self.drain()?;
            self.sync()?;
        }
        if self.paced && matches!(self.starts, Starts::Closed { .. }) {
            self.drain()?;
        }
        Ok(size as u64)
    }

    /// Sleeps until the next batch is due; whether it is, or the run goes on without it.
    #[inline(never)]
    fn pause(&mut self) -> bool {
        let due = match &mut self.starts {
            Starts::Closed { think } => pace::now() + think.as_nanos() as u64,
            Starts::Open(arrivals) => arrivals.take(),
        };
        while pace::now() < due {
            // The opening of the window is no reason to begin early.
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

    /// Draws `size` requests into free slots and puts them into the batch.
    #[inline]
    fn draw(&mut self, size: usize) -> Result<()> {
        let rest = self.free.len().checked_sub(size).context("A batch larger than the depth")?;
        // A copy, so that it can be in registers.
        let mut at = self.at.clone();
        let Self { draws, issued, files, spec, now, .. } = self;
        self.batch.extend(self.free[rest..].iter().rev().map(|&slot| {
            let (address, write) = draws.draw(&mut at);
            issued[slot] = Issued { address, write, start: *now };
            request(spec, files, slot, address, write)
        }));
        self.at = at;
        self.free.truncate(rest);
        Ok(())
    }

    /// The same for verifiable requests: each has its block for itself, and what it writes is filled in.
    #[inline(never)]
    fn draw_verifiable(&mut self, size: usize) -> Result<()> {
        for _ in 0..size {
            let (address, write) = self.draws.draw(&mut self.at);
            let held = self.take(address)?;
            let slot = self.free.pop().context("A batch larger than the depth")?;
            self.held[slot] = Some(held);
            if write {
                self.seal(slot, address);
            }
            self.issued[slot] = Issued { address, write, start: 0 };
            self.batch.push(request(self.spec, self.files, slot, address, write));
        }
        self.start_now();
        Ok(())
    }

    /// Takes a block for this process alone. Nobody sleeps for a block with another in hand: what is under way is ended first.
    fn take(&mut self, address: Address) -> Result<Held<'a>> {
        if let Some(held) = self.board.try_lock(address) {
            return Ok(held);
        }
        self.start_now();
        self.drain()?;
        Ok(self.board.lock(address))
    }

    /// Has the batch begin now. With verification there were blocks to fill, and others to check, since the last reading.
    fn start_now(&mut self) {
        let start = self.board.ticks.now();
        for r in &self.batch {
            self.issued[r.slot].start = start;
        }
    }

    fn seal(&mut self, slot: usize, address: Address) {
        let version = self.board.version(address) + 1;
        self.sequence += 1;
        let label = page::Label { address, version, process: self.process as u32, sequence: self.sequence };
        page::seal(&mut self.engine.buffer(slot)[..self.spec.bytes], &label);
    }

    /// Hands the batch over and waits until nothing is in flight.
    #[inline(never)]
    fn drain(&mut self) -> Result<()> {
        let min = self.engine.pending() + self.batch.len();
        if min > 0 { self.exchange(min, min) } else { Ok(()) }
    }

    /// Hands the batch over, waits for at least `min` requests, and accounts for what has ended, `max` requests at most.
    #[inline]
    fn exchange(&mut self, min: usize, max: usize) -> Result<()> {
        if let Err(e) = self.engine.submit_and_take(&self.batch, min, max, &mut self.done) {
            return self.refused(e);
        }
        self.batch.clear();
        self.now = self.board.ticks.now();
        if !self.done.is_empty() {
            self.account()?;
        }
        Ok(())
    }

    #[inline]
    fn account(&mut self) -> Result<()> {
        if self.spec.verify {
            self.verify()?;
        }
        let (mut batch, mut all) = (Ended::default(), Ended::default());
        for i in 0..self.done.len() {
            let c = self.done[i];
            let Issued { address, write, start } = self.issued[c.slot];
            if !c.is_of(self.spec.bytes) {
                return Err(self.failure(c));
            }
            // What was handed over together and has ended together took equally long: it is counted as one.
            if start != batch.start {
                self.record(batch);
                all.add(batch);
                batch = Ended { start, ..Ended::default() };
            }
            if write {
                batch.writes += 1;
                self.dirty[address.file as usize] = true;
            } else {
                batch.reads += 1;
            }
        }
        self.record(batch);
        all.add(batch);
        self.free.extend(self.done.iter().map(|c| c.slot));
        self.done.clear();
        self.unsynced += all.writes as u32;
        Counters::grow(&self.counters.reads, all.reads);
        Counters::grow(&self.counters.writes, all.writes);
        Counters::grow(&self.counters.batches, 1);
        Ok(())
    }

    #[inline]
    fn record(&mut self, ended: Ended) {
        if !self.measuring || ended.reads + ended.writes == 0 {
            return;
        }
        let ns = self.board.ticks.ns(ended.start, self.now) + self.late;
        for (action, count) in [(Action::Read, ended.reads), (Action::Write, ended.writes)] {
            if count > 0 {
                self.recorders[action as usize].record_many(ns, count);
            }
        }
    }

    /// The engine has refused a batch.
    #[cold]
    fn refused(&self, error: std::io::Error) -> Result<()> {
        Err(error).with_context(|| format!("Cannot do requests by {}", self.engine.describe()))
    }

    /// What is wrong with a request that has ended so.
    #[cold]
    fn failure(&self, completion: Completion) -> anyhow::Error {
        let Issued { address, write, .. } = self.issued[completion.slot];
        match completion.result() {
            Ok(n) => anyhow::anyhow!("Only {n} of {} bytes of {address} were transferred", self.spec.bytes),
            Err(e) => {
                let text = format!("Cannot {} {address}: {e}", if write { "write" } else { "read" });
                anyhow::Error::from(std::io::Error::from(e.kind())).context(text)
            }
        }
    }

    /// Verifiable requests have ended: what was read is checked, what was written is on record, and others may have the blocks.
    #[inline(never)]
    fn verify(&mut self) -> Result<()> {
        for i in 0..self.done.len() {
            let completion = self.done[i];
            if !completion.is_of(self.spec.bytes) {
                return Err(self.failure(completion));
            }
            let slot = completion.slot;
            let Issued { address, write, .. } = self.issued[slot];
            let version = self.board.version(address);
            if write {
                self.board.written(address, version + 1);
            } else {
                check_block(&self.engine.buffer(slot)[..self.spec.bytes], address, version)?;
            }
            self.held[slot] = None;
        }
        Ok(())
    }

    #[inline(never)]
    fn sync(&mut self) -> Result<()> {
        for (file, dirty) in self.files.iter().zip(&mut self.dirty) {
            if std::mem::take(dirty) {
                let start = self.board.ticks.now();
                rustix::fs::fdatasync(file).context("Cannot sync a data file")?;
                self.now = self.board.ticks.now();
                if self.measuring {
                    self.recorders[Action::Sync as usize].record(self.board.ticks.ns(start, self.now));
                }
            }
        }
        self.unsynced = 0;
        Ok(())
    }
}

/// The request of a slot.
#[inline]
fn request<'a>(spec: &Requests, files: &[BorrowedFd<'a>], slot: usize, address: Address, write: bool) -> Request<'a> {
    Request {
        slot,
        fd: files[address.file as usize],
        offset: u64::from(address.block) * spec.bytes as u64,
        len: spec.bytes,
        write,
        dsync: spec.dsync,
    }
}
