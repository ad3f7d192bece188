//! The shared segment of one run and its contents: cache, log, the run's phases, every process's counters, the ledger.
//!
//! Invariant: the parent builds it before the first fork, so every process sees the same parts at the same addresses.

use std::collections::BTreeMap;
use std::io::{PipeWriter, Write};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Pid;

use bigiron_sys::latch::EventCount;
use bigiron_sys::load::{ShardedHistogram, SharedHistogram};
use bigiron_sys::network::Wiring;
use bigiron_sys::process::Exit;
use bigiron_sys::segment::{Segment, shared_struct};
use bigiron_sys::shared_memory::SharedMemory;

use super::cache::Cache;
use super::checkpoints::Checkpoints;
use super::choice::Choosers;
pub use super::counters::ProcessCounters;
use super::job::{ClassKind, ClassSpec, Job, RequestSpec, Transport, WorkShare};
use super::ledger::{LedgerFile, LiveLedger};
use super::link::{Mailbox, Mailboxes};
use super::log::Log;
use super::pace;
use super::plan::Plan;
use super::requests::RequestBoard;
use super::stages::CommitHistograms;
use super::waits::WaitTable;

/// The role of a process in the run: its class, and its number within the class, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Index into the job's classes.
    pub class: usize,
    pub number: usize,
    pub part: Part,
}

/// Which of the processes of one member of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The only one.
    Whole,
    /// The server that executes a client's transactions.
    Server,
    Client,
}

/// Bytes of a record in the pipe to the parent.
pub const RECORD: usize = 8;

/// A message to the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildStatus {
    /// The last process has reached a milestone.
    Milestone,
    /// A process has ended.
    End(usize, Exit),
}

impl ChildStatus {
    fn encode(self) -> [u8; RECORD] {
        let (process, how) = match self {
            ChildStatus::Milestone => (u32::MAX, 0),
            ChildStatus::End(process, Exit::Status(n)) => (process as u32, n & 0xff),
            ChildStatus::End(process, Exit::Signal(n)) => (process as u32, -n),
        };
        (u64::from(process) << 32 | u64::from(how.cast_unsigned())).to_le_bytes()
    }

    pub fn decode(record: [u8; RECORD]) -> Self {
        let word = u64::from_le_bytes(record);
        match ((word >> 32) as u32, (word as u32).cast_signed()) {
            (u32::MAX, _) => ChildStatus::Milestone,
            (process, n @ ..0) => ChildStatus::End(process as usize, Exit::Signal(-n)),
            (process, n) => ChildStatus::End(process as usize, Exit::Status(n)),
        }
    }
}

/// The phase of the run. Phases only ever advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    /// The window is open. Before it (0) all processes warm up.
    Measure = 1,
    /// The window is closed by time: no process begins anything more.
    Close,
    /// The window is closed; all processes but the log writer end.
    Leave,
    /// The log writer ends.
    End,
}

/// Points that a number of processes must reach before the parent continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// Every worker is set up and has done its part of the ramp, unless the ramp is a time.
    Ready,
    /// All workers with transactions have done their share of a stretch that is not the last.
    Stretch,
    /// Every foreground and the scanner have done their share of the window.
    Done,
}

shared_struct! {
    struct Stage {
        phase: AtomicU32,
        ready: AtomicU32,
        done: AtomicU32,
        /// The present stretch of the window, and the number of workers that have done their share of it.
        stretch: AtomicU32,
        stretch_done: AtomicU32,
        unused: AtomicU32,
        changed: EventCount,
        /// Keeps the word that all processes read apart from the cache line that all change.
        apart: [AtomicU64; 4],
        /// Transactions completed so far, including the ramp: they pace the scanner.
        transactions: AtomicU64,
        paced: EventCount,
    }
}

const TEXT: usize = 512;

/// One run.
pub struct Instance<'s> {
    pub job: &'s Job,
    pub dir: &'s Path,
    pub seed: u64,
    pub plan: Plan,
    pub choosers: Choosers,
    pub cache: Cache<'s>,
    /// The memory of the cache.
    pub cache_memory: &'s SharedMemory,
    pub log: Log<'s>,
    pub checkpoints: Checkpoints<'s>,
    pub roles: Vec<Role>,
    /// Number of transactions after which a class paced by transactions may have become due.
    pace: u64,
    /// By process.
    pub counters: &'s [ProcessCounters],
    pub commits: CommitHistograms<'s>,
    pub read_latency: ShardedHistogram<'s>,
    /// Redo writes in the window, each from its submission until it is durable.
    pub redo_write: SharedHistogram<'s>,
    /// By kind of transaction.
    pub kind_latency: Vec<ShardedHistogram<'s>>,
    /// By stretch of the window; empty if there is only one.
    pub stretch_latency: Vec<ShardedHistogram<'s>>,
    /// By class of clients: from a request to its reply.
    pub round_trip: BTreeMap<usize, ShardedHistogram<'s>>,
    /// By worker.
    pub waits: WaitTable,
    /// The acknowledged work.
    pub ledger: LiveLedger<'s>,
    /// The shared state of request classes.
    pub requests: RequestBoard<'s>,
    stage: &'s Stage,
    texts: &'s [AtomicU8],
    /// By process: its process id, once it runs.
    pids: &'s [AtomicU32],
    /// By server: its connection, if it is in shared memory.
    pub mailboxes: BTreeMap<usize, Mailboxes<'s>>,
    /// The network below TCP connections.
    pub wire: Wiring,
    statuses: PipeWriter,
}

/// The processes of a job. Those that execute transactions come first, so that their number is also their index; a client, whose
/// server executes them, is one of the others.
pub fn roles(job: &Job) -> Vec<Role> {
    let of = |transacts| {
        let part = move |kind: &ClassKind| match (kind, transacts) {
            (ClassKind::Client { .. }, true) => Some(Part::Server),
            (ClassKind::Client { .. }, false) => Some(Part::Client),
            (kind, _) => (kind.transacts() == transacts).then_some(Part::Whole),
        };
        let classes = job.classes.iter().enumerate().filter_map(move |(i, c)| Some((i, c.count, part(&c.kind)?)));
        classes.flat_map(|(class, count, part)| (0..count).map(move |number| Role { class, number, part }))
    };
    of(true).chain(of(false)).collect()
}

fn is_client(class: &ClassSpec) -> bool {
    matches!(class.kind, ClassKind::Client { .. })
}

/// Whether processes of this kind do one job in a window of transactions, and job after job in a window of time.
fn does_jobs(kind: &ClassKind) -> bool {
    matches!(kind, ClassKind::Sorter { .. } | ClassKind::Loader { .. } | ClassKind::Backup { .. })
}

/// Mailbox sizes of a server, if its connection is in shared memory.
fn in_memory(job: &Job, role: Role) -> Option<(usize, usize)> {
    match job.classes[role.class].kind {
        ClassKind::Client { transport: Transport::Memory, request, reply } if role.part == Part::Server => {
            Some((request, reply))
        }
        _ => None,
    }
}

/// The greatest common divisor of the intervals of classes paced by transactions.
fn pace(job: &Job) -> u64 {
    let every = job.classes.iter().filter_map(|c| match c.kind {
        ClassKind::Scanner { work: WorkShare::PerTransactions(n), .. } => Some(n),
        _ => None,
    });
    every.reduce(gcd).unwrap_or(u64::MAX)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl<'s> Instance<'s> {
    /// Bytes of segment for a job, without its cache.
    pub fn bytes(job: &Job) -> usize {
        let workers = roles(job).len();
        let transactors = job.transactors();
        let sharded = 1 + job.transactions.len() + job.run.phases.len();
        let histograms = CommitHistograms::bytes(transactors)
            + sharded * (ShardedHistogram::bytes(transactors) + 128)
            + SharedHistogram::BYTES
            + 128;
        let per_worker = TEXT + size_of::<ProcessCounters>() + size_of::<AtomicU32>();
        let round_trips = job.classes.iter().filter(|c| is_client(c));
        let round_trips: usize = round_trips.map(|c| ShardedHistogram::bytes(c.count) + 128).sum();
        let mailboxes = roles(job).into_iter().filter_map(|role| in_memory(job, role));
        let mailboxes: usize = mailboxes.map(|(a, b)| Mailbox::segment_bytes(a) + Mailbox::segment_bytes(b)).sum();
        Checkpoints::bytes(job)
            + Log::bytes(job, workers)
            + RequestBoard::bytes(job)
            + histograms
            + workers * per_worker
            + round_trips
            + mailboxes
            + (1 << 16)
    }

    /// Allocates everything in `segment`, except the cache, which has its own memory. Messages to the parent are written to
    /// `statuses`.
    pub fn new(
        segment: &'s Segment,
        cache: &'s Segment,
        job: &'s Job,
        ledger_file: &'s LedgerFile,
        seed: u64,
        plan: Plan,
        statuses: PipeWriter,
    ) -> Result<Self> {
        let roles = roles(job);
        let mailboxes = roles.iter().enumerate().filter_map(|(process, role)| {
            let (request, reply) = in_memory(job, *role)?;
            Some((process, Mailboxes { request: Mailbox::new(segment, request), reply: Mailbox::new(segment, reply) }))
        });
        let round_trip = job.classes.iter().enumerate().filter(|(_, c)| is_client(c));
        let histograms =
            |n: usize| (0..n).map(|_| ShardedHistogram::new(segment, job.transactors())).collect::<Vec<_>>();
        Ok(Self {
            job,
            dir: ledger_file.dir(),
            seed,
            choosers: Choosers::new(job, seed),
            cache: Cache::new(cache, job),
            cache_memory: cache.memory(),
            log: Log::new(segment, job, roles.len()),
            checkpoints: Checkpoints::new(segment, job),
            counters: segment.many(roles.len()),
            commits: CommitHistograms::new(segment, job.transactors()),
            read_latency: ShardedHistogram::new(segment, job.transactors()),
            redo_write: SharedHistogram::new(segment),
            kind_latency: histograms(job.transactions.len()),
            stretch_latency: histograms(if plan.stretches.len() > 1 { plan.stretches.len() } else { 0 }),
            waits: WaitTable::new(roles.len()).context("Cannot allocate the table of waits")?,
            ledger: LiveLedger::new(ledger_file.segment(), job),
            requests: RequestBoard::new(segment, job, roles.iter().map(|r| &job.classes[r.class].kind)),
            stage: segment.one(),
            round_trip: round_trip.map(|(class, c)| (class, ShardedHistogram::new(segment, c.count))).collect(),
            texts: segment.many(roles.len() * TEXT),
            pids: segment.many(roles.len()),
            mailboxes: mailboxes.collect(),
            wire: Wiring::default(),
            pace: pace(job),
            plan,
            roles,
            statuses,
        })
    }

    /// The class of a process.
    pub fn class(&self, process: usize) -> &ClassSpec {
        &self.job.classes[self.roles[process].class]
    }

    /// The number of a database writer among those of all classes.
    pub fn writer_number(&self, process: usize) -> usize {
        let writer = |p: &usize| matches!(self.class(*p).kind, ClassKind::DatabaseWriter { .. });
        (0..process).filter(writer).count()
    }

    /// The name of a process in messages: its class's name, with its number if there are several.
    pub fn name(&self, process: usize) -> String {
        let class = self.class(process);
        let mut name = class.name.replace('-', " ");
        name[..1].make_ascii_uppercase();
        let role = self.roles[process];
        if class.count > 1 {
            name = format!("{name} {}", role.number);
        }
        if role.part == Part::Server { format!("{name}'s server") } else { name }
    }

    /// The number of a client's server among all processes that execute transactions.
    pub fn transactor(&self, process: usize) -> usize {
        let role = self.roles[process];
        let before = &self.job.classes[..role.class];
        before.iter().filter(|c| c.kind.transacts()).map(|c| c.count).sum::<usize>() + role.number
    }

    /// Number of processes whose work is a fixed share of the window's.
    pub fn with_share(&self) -> usize {
        let fixed = |c: &&ClassSpec| {
            let scans = matches!(c.kind, ClassKind::Scanner { work: WorkShare::PerTransactions(_), .. });
            let counted = matches!(c.kind, ClassKind::Requests(RequestSpec { count: Some(_), .. }));
            c.kind.transacts() || scans || counted || does_jobs(&c.kind)
        };
        self.job.classes.iter().filter(fixed).map(|c| c.count).sum()
    }

    /// Requests before the window of a process that makes one per `every` transactions; none if the ramp is a time.
    pub fn ramp_scans(&self, every: u64) -> u64 {
        self.plan.ramp_transactions().unwrap_or(0) / every
    }

    /// The number of requests after which such a process ends, including those before the window; `None`: when the window closes.
    pub fn scans_end(&self, every: u64) -> Option<u64> {
        let transactions = self.plan.transactions()?;
        Some(self.ramp_scans(every) + (transactions / every).max(1))
    }

    /// The present phase, as a number to compare with a [`Phase`].
    pub fn phase(&self) -> u32 {
        self.stage.phase.load(SeqCst)
    }

    /// The present stretch of the window.
    pub fn stretch(&self) -> usize {
        self.stage.stretch.load(SeqCst) as usize
    }

    /// Advances to the next stretch of the window.
    pub fn next_stretch(&self) {
        self.stage.stretch_done.store(0, SeqCst);
        self.stage.stretch.fetch_add(1, SeqCst);
        self.stage.changed.signal();
    }

    /// Sleeps until that stretch of the window has begun.
    pub fn wait_stretch(&self, stretch: usize) {
        self.stage.changed.wait_until(|| self.stretch() >= stretch);
    }

    /// Sleeps until the monotonic clock reaches `deadline`, in nanoseconds, or the run advances to another phase or stretch.
    /// Returns whether it was the clock.
    pub fn sleep_until(&self, deadline: u64) -> bool {
        let here = (self.phase(), self.stretch());
        loop {
            let ticket = self.stage.changed.ticket();
            if (self.phase(), self.stretch()) != here {
                return false;
            }
            if pace::now() >= deadline {
                return true;
            }
            self.stage.changed.wait_deadline(ticket, deadline);
        }
    }

    /// Sleeps for `time`, or until the run advances.
    pub fn sleep(&self, time: Duration) -> bool {
        self.sleep_until(pace::now() + time.as_nanos() as u64)
    }

    /// Whether the ramp, or any stretch, ends by time.
    pub fn by_time(&self) -> bool {
        self.plan.transactions().is_none()
    }

    /// Whether the run has reached `phase`.
    pub fn reached(&self, phase: Phase) -> bool {
        self.stage.phase.load(SeqCst) >= phase as u32
    }

    /// Sleeps until the run has reached `phase`.
    pub fn wait_for(&self, phase: Phase) {
        self.stage.changed.wait_until(|| self.reached(phase));
    }

    /// Advances to `phase`, waking all processes that sleep for lack of work.
    pub fn enter(&self, phase: Phase) {
        self.stage.phase.store(phase as u32, SeqCst);
        self.stage.changed.signal();
        self.stage.paced.signal();
        self.cache.writer().signal();
        self.checkpoints.checkpointer().signal();
        self.log.wake_all();
    }

    /// Reports that one more process has reached a milestone; the last one informs the parent.
    pub fn arrive(&self, milestone: Milestone) -> Result<()> {
        let (counter, total) = match milestone {
            Milestone::Ready => (&self.stage.ready, self.roles.len()),
            Milestone::Stretch => (&self.stage.stretch_done, self.job.transactors()),
            Milestone::Done => (&self.stage.done, self.with_share()),
        };
        if counter.fetch_add(1, SeqCst) as usize + 1 == total {
            self.tell(ChildStatus::Milestone)?;
        }
        Ok(())
    }

    /// Informs the parent that a process has ended.
    pub fn tell_end(&self, process: usize, exit: Exit) -> Result<()> {
        self.tell(ChildStatus::End(process, exit))
    }

    fn tell(&self, statuses: ChildStatus) -> Result<()> {
        (&self.statuses).write_all(&statuses.encode()).context("Cannot tell the parent")
    }

    /// Registers the process id of `process`. Must be called by the process itself.
    pub fn enrol(&self, process: usize) {
        self.pids[process].store(rustix::process::getpid().as_raw_nonzero().get().cast_unsigned(), SeqCst);
    }

    /// The process id of `process`, if registered.
    pub fn pid(&self, process: usize) -> Option<Pid> {
        Pid::from_raw(self.pids[process].load(SeqCst).cast_signed())
    }

    /// Number of transactions completed so far, including the ramp.
    pub fn ended(&self) -> u64 {
        self.stage.transactions.load(SeqCst)
    }

    /// Counts a completed transaction.
    pub fn transaction_ended(&self) {
        let n = self.stage.transactions.fetch_add(1, SeqCst) + 1;
        if n.is_multiple_of(self.pace) || self.plan.total() == Some(n) {
            self.stage.paced.signal();
        }
    }

    /// Number of requests that a process with one request per `every` transactions may have made by now. With `idle_at`, sleeps
    /// until they are more than that.
    pub fn scan_due(&self, every: u64, idle_at: Option<u64>) -> u64 {
        let due = || {
            let ended = self.stage.transactions.load(SeqCst);
            // The last transaction makes everything due, whether it is a multiple or not.
            match self.scans_end(every) {
                Some(end) if self.plan.total() == Some(ended) => end,
                _ => ended / every,
            }
        };
        if let Some(requests) = idle_at {
            self.stage.paced.wait_until(|| due() > requests || self.reached(Phase::Close));
        }
        due()
    }

    /// Leaves a message for the parent about the failure of `process`.
    pub fn leave_word(&self, process: usize, text: &str) {
        for (to, from) in self.texts[process * TEXT..][..TEXT].iter().zip(text.bytes()) {
            to.store(from, SeqCst);
        }
    }

    /// The message of `process`, if any.
    pub fn word_of(&self, process: usize) -> Option<String> {
        let bytes = self.texts[process * TEXT..][..TEXT].iter().map(|b| b.load(SeqCst)).take_while(|b| *b != 0);
        let text = String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned();
        (!text.is_empty()).then_some(text)
    }
}
