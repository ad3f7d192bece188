//! Plain requests, as an I/O generator issues them: one loop that draws, hands over, waits and counts.
//!
//! Invariant: between a request's two readings of the clock there is nothing but the engine: drawing and filling come before,
//! checking and counting behind. Nothing is allocated in the loop.

mod board;
mod outcome;
mod page;
mod verify;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::load::Recorder;
use crate::sys::async_io::{self, BUFFER_BYTES, Completion, Engine, Method, Request};
use crate::sys::latch::Held;

use super::block::{self, Address, BLOCK};
use super::choice::Chooser;
use super::files;
use super::instance::{Counters, Instance, Milestone, Phase};
use super::job::{Choice, Job, Kind, Pace, Requests};
use super::pace::{self, Starts};
use super::transaction::share;

pub use board::{Action, Board, saved_bytes};
pub use outcome::{RequestsOutcome, counts, engines, outcome};
pub use page::PageError;
pub use verify::verify;

/// Requests of this class draw from streams of their own, apart from those of transactions.
const STREAM: u64 = 1 << 40;

/// What is wrong with the job's request classes; the error says what would be right.
pub fn check(job: &Job) -> Result<(), String> {
    let mut verified = None;
    for class in &job.classes {
        let Kind::Requests(r) = &class.kind else { continue };
        let name = &class.name;
        let (min, max) = BUFFER_BYTES;
        if !(min..=max).contains(&r.bytes) || !r.bytes.is_multiple_of(min) {
            return Err(format!(
                "Requests of `{name}` cannot be of {} bytes; a multiple of {min} up to {max}",
                r.bytes
            ));
        }
        if board::per_file(job, r.bytes) == 0 {
            return Err(format!("Requests of `{name}` are larger than a data file; at most its size"));
        }
        if r.read_percent > 100 {
            return Err(format!("`{name}` cannot read {} per cent; 0 to 100", r.read_percent));
        }
        if matches!(r.engine.method, Method::Sync | Method::Vectored) && r.engine.depth != 1 {
            return Err(format!("`{name}` has one blocking call in flight at a time; its depth can be 1 only"));
        }
        if matches!(class.pace, Pace::Open { .. }) && r.engine.depth != 1 {
            return Err(format!("`{name}` has a rate, so its depth can be 1 only; more processes keep more in flight"));
        }
        let writes = r.read_percent < 100;
        if writes && job.transactors() > 0 {
            return Err(format!(
                "`{name}` would overwrite the database's blocks; beside transactions it can only read"
            ));
        }
        if r.verify && r.engine.method == Method::Null && r.read_percent > 0 {
            return Err(format!("`{name}` has nothing to verify: the null engine reads nothing"));
        }
        if r.verify {
            verified.get_or_insert((name, r.bytes));
        }
    }
    let Some((first, bytes)) = verified else { return Ok(()) };
    for class in &job.classes {
        let Kind::Requests(r) = &class.kind else { continue };
        if r.verify && r.bytes != bytes {
            return Err(format!(
                "`{}` and `{first}` verify blocks of different sizes; {bytes} bytes for both",
                class.name
            ));
        }
        if !r.verify && r.read_percent < 100 {
            return Err(format!("`{}` would overwrite what `{first}` verifies; it can verify as well", class.name));
        }
    }
    Ok(())
}

/// Whether nobody looks at what is in the data files, so that a device need not be laid out (a file has to be, for its blocks to be
/// allocated).
pub fn blind(job: &Job) -> bool {
    job.classes.iter().all(|c| matches!(&c.kind, Kind::Requests(r) if !r.verify))
}

/// Whether the window ends when all requests have been done.
pub fn counted(job: &Job) -> bool {
    job.classes.iter().any(|c| matches!(&c.kind, Kind::Requests(r) if r.count.is_some()))
}

/// Whether plain requests are what the job does: there is no database then.
pub fn alone(job: &Job) -> bool {
    job.transactors() == 0 && job.classes.iter().any(|c| matches!(c.kind, Kind::Requests(_)))
}

/// Runs process `process` of a request class: its share of the ramp, then of the window, or until the window closes.
pub fn run(instance: &Instance<'_>, process: usize, spec: &Requests) -> Result<()> {
    let job = instance.job;
    let files = (0..job.data.files)
        .map(|f| files::open(&files::data_path(instance.dir, f), spec.direct, false))
        .collect::<Result<Vec<_>>>()?;
    let mut g = Generator::new(instance, process, spec, &files)?;
    let class = instance.class(process);
    let share = |total| share(total, instance.roles[process].number, class.count);
    match spec.count {
        Some(count) => {
            let ramp = if instance.by_time() { 0 } else { count.div_ceil(4) };
            g.requests(share(ramp))?;
            instance.arrive(Milestone::Ready)?;
            instance.wait_for(Phase::Measure);
            g.measuring = true;
            g.requests(share(count))?;
            instance.arrive(Milestone::Done)?;
        }
        None => {
            instance.arrive(Milestone::Ready)?;
            g.until_closed()?;
        }
    }
    instance.wait_for(Phase::Leave);
    Ok(())
}

/// A slot's request.
#[derive(Clone, Copy)]
struct Issued {
    address: Address,
    write: bool,
    /// When it was handed over, in ticks.
    start: u64,
}

struct Generator<'a> {
    instance: &'a Instance<'a>,
    board: &'a Board<'a>,
    process: usize,
    spec: &'a Requests,
    counters: &'a Counters,
    recorders: [Recorder<'a>; board::ACTIONS],
    files: Vec<BorrowedFd<'a>>,
    engine: Box<dyn Engine>,
    random: Xoshiro256PlusPlus,
    chooser: Chooser,
    /// Requests in each file, and in all of them.
    per_file: u32,
    blocks: u32,
    /// Next block of sequential requests.
    next: u32,
    /// A draw below this reads: the read percentage in units of 2^-32.
    reads: u64,
    /// When requests are to begin: so long after the last, or at a rate.
    starts: Starts,
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

impl<'a> Generator<'a> {
    fn new(instance: &'a Instance<'a>, process: usize, spec: &'a Requests, files: &'a [File]) -> Result<Self> {
        let job = instance.job;
        let depth = spec.engine.depth;
        let descriptors: Vec<_> = files.iter().map(File::as_fd).collect();
        let mut engine = async_io::open(&spec.engine, spec.bytes, &descriptors).context("Cannot open the engine")?;
        let mut seeds = ChaCha8Rng::seed_from_u64(instance.seed);
        seeds.set_stream(STREAM + process as u64);
        for slot in 0..depth {
            page::prepare(engine.buffer(slot), seeds.next_u64());
        }
        let per_file = board::per_file(job, spec.bytes);
        let blocks = per_file * job.data.files as u32;
        let board = &instance.requests;
        let latency = board.latency(process).context("A process of no request class")?;
        let here = Issued { address: Address { file: 0, block: 0 }, write: false, start: 0 };
        let class = instance.class(process);
        let place = (instance.roles[process].number, class.count);
        let starts = Starts::new(class.pace, instance.seed, process as u64, place, 0, pace::now());
        Ok(Self {
            instance,
            board,
            process,
            spec,
            counters: &instance.counters[process],
            recorders: latency.map(|h| h.recorder()),
            files: descriptors,
            engine,
            random: Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64()),
            chooser: if spec.random {
                Chooser::new(spec.choice, blocks, instance.seed)
            } else {
                Chooser::new(Choice::Uniform, blocks, instance.seed)
            },
            per_file,
            blocks,
            // Sequential: each process begins at a file of its own, as far as there are enough.
            next: instance.roles[process].number as u32 % job.data.files as u32 * per_file,
            reads: (u64::from(spec.read_percent) << 32).div_ceil(100),
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

    /// Issues `count` requests and waits for all of them.
    fn requests(&mut self, count: u64) -> Result<()> {
        self.now = self.board.ticks.now();
        let mut left = count;
        while left > 0 && !self.instance.reached(Phase::Close) {
            left -= self.cycle(left)?;
        }
        self.drain()
    }

    /// Issues requests until the window closes; those in it count.
    fn until_closed(&mut self) -> Result<()> {
        let instance = self.instance;
        while !instance.reached(Phase::Close) {
            self.measuring = instance.reached(Phase::Measure);
            self.cycle(u64::MAX)?;
        }
        self.measuring = false;
        self.drain()
    }

    /// One batch, at most `left`: drawn, handed over, and as many waited for as make room for the next. Returns how many were
    /// handed over.
    fn cycle(&mut self, left: u64) -> Result<u64> {
        if !self.pause() {
            return Ok(0);
        }
        let depth = self.issued.len();
        // A batch as large as the depth would empty the queue each time: then what has ended is replaced, be it little.
        let full = if self.batch_max < depth { self.batch_max } else { 1 };
        let size = left.min(self.batch_max as u64).min(self.free.len() as u64) as usize;
        for _ in 0..size {
            self.draw()?;
        }
        // With verification there is a block to fill and another to check between two readings.
        let start = if self.spec.verify { self.board.ticks.now() } else { self.now };
        for r in &self.batch {
            self.issued[r.slot].start = start;
        }
        let room = self.free.len();
        let min = if room >= full { 0 } else { (full - room).min(depth - room) };
        self.exchange(min)?;
        if self.spec.fdatasync_every > 0 && self.unsynced >= self.spec.fdatasync_every {
            self.drain()?;
            self.sync()?;
        }
        if matches!(self.starts, Starts::Closed { think } if !think.is_zero()) {
            self.drain()?;
        }
        Ok(size as u64)
    }

    /// Sleeps until the next batch is due; whether it is, or the run goes on without it.
    #[inline]
    fn pause(&mut self) -> bool {
        let due = match &mut self.starts {
            Starts::Closed { think } if think.is_zero() => return true,
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

    /// Draws a request into a free slot and puts it into the batch.
    #[inline]
    fn draw(&mut self) -> Result<()> {
        let number = if self.spec.random {
            self.chooser.draw(self.random.next_u64())
        } else {
            let number = self.next;
            self.next = if number + 1 == self.blocks { 0 } else { number + 1 };
            number
        };
        let write = match self.reads {
            0 => true,
            reads if reads >> 32 != 0 => false,
            reads => self.random.next_u64() >> 32 >= reads,
        };
        let address = Address { file: number / self.per_file, block: number % self.per_file };
        let held = if self.spec.verify { Some(self.take(address)?) } else { None };
        let slot = self.free.pop().context("A batch larger than the depth")?;
        if let Some(held) = held {
            self.held[slot] = Some(held);
            if write {
                self.seal(slot, address);
            }
        }
        self.issued[slot] = Issued { address, write, start: 0 };
        self.batch.push(Request {
            slot,
            fd: self.files[address.file as usize],
            offset: u64::from(address.block) * self.spec.bytes as u64,
            len: self.spec.bytes,
            write,
            dsync: self.spec.dsync,
        });
        Ok(())
    }

    /// Takes a block for this process alone. Nobody sleeps for a block with another in hand: what is under way is ended first.
    fn take(&mut self, address: Address) -> Result<Held<'a>> {
        if let Some(held) = self.board.try_lock(address) {
            return Ok(held);
        }
        let start = self.board.ticks.now();
        for r in &self.batch {
            self.issued[r.slot].start = start;
        }
        self.drain()?;
        Ok(self.board.lock(address))
    }

    fn seal(&mut self, slot: usize, address: Address) {
        let version = self.board.version(address) + 1;
        self.sequence += 1;
        let label = page::Label { address, version, process: self.process as u32, sequence: self.sequence };
        page::seal(&mut self.engine.buffer(slot)[..self.spec.bytes], &label);
    }

    /// Hands the batch over and waits until nothing is in flight.
    fn drain(&mut self) -> Result<()> {
        let min = self.engine.pending() + self.batch.len();
        if min > 0 { self.exchange(min) } else { Ok(()) }
    }

    /// Hands the batch over, waits for at least `min` requests, and accounts for all that have ended.
    #[inline]
    fn exchange(&mut self, min: usize) -> Result<()> {
        self.engine
            .submit_and_wait(&self.batch, min, &mut self.done)
            .with_context(|| format!("Cannot do requests by {}", self.engine.describe()))?;
        self.batch.clear();
        self.now = self.board.ticks.now();
        if !self.done.is_empty() {
            self.account()?;
        }
        Ok(())
    }

    #[inline]
    fn account(&mut self) -> Result<()> {
        let (mut reads, mut writes) = (0, 0);
        for i in 0..self.done.len() {
            let Completion { slot, ref result } = self.done[i];
            let Issued { address, write, start } = self.issued[slot];
            match result {
                Ok(n) if *n == self.spec.bytes => {}
                Ok(n) => anyhow::bail!("Only {n} of {} bytes of {address} were transferred", self.spec.bytes),
                Err(e) => {
                    let text = format!("Cannot {} {address}: {e}", if write { "write" } else { "read" });
                    return Err(std::io::Error::from(e.kind())).context(text);
                }
            }
            if self.measuring {
                self.recorders[usize::from(write)].record(self.board.ticks.ns(start, self.now) + self.late);
            }
            if write {
                writes += 1;
                self.dirty[address.file as usize] = true;
            } else {
                reads += 1;
            }
            if self.spec.verify {
                self.checked(slot, address, write)?;
            }
            self.free.push(slot);
        }
        self.done.clear();
        self.unsynced += writes as u32;
        Counters::grow(&self.counters.reads, reads);
        Counters::grow(&self.counters.writes, writes);
        Counters::grow(&self.counters.batches, 1);
        Ok(())
    }

    /// A verifiable request has ended: what was read is checked, what was written is on record, and others may have the block.
    fn checked(&mut self, slot: usize, address: Address, write: bool) -> Result<()> {
        let version = self.board.version(address);
        if write {
            self.board.written(address, version + 1);
        } else {
            check_block(&self.engine.buffer(slot)[..self.spec.bytes], address, version)?;
        }
        self.held[slot] = None;
        Ok(())
    }

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

/// Checks what was read of a block that has been written `version` times.
fn check_block(bytes: &[u8], address: Address, version: u32) -> Result<()> {
    match version {
        // What the lay-out wrote; blocks of another size than the database's have no checksum of their own then.
        0 if bytes.len() == BLOCK => block::check(bytes, address)?,
        0 => {}
        version => {
            page::check(bytes, address, version)?;
        }
    }
    Ok(())
}
