//! The shared segment of one run and what is in it: cache, log, the stage's phases, every process's counters, the ledger.
//!
//! Invariant: it is built by the parent before the first fork, so every process sees the same parts at the same addresses.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use anyhow::{Context as _, Result};

use crate::load::SharedHistogram;
use crate::sys::latch::Event;
use crate::sys::segment::{Segment, shared_struct};

use super::cache::Cache;
use super::checkpoints::Checkpoints;
use super::job::{ClassSpec, Job, Kind, Share};
use super::ledger::Live;
use super::log::Log;
use super::transaction::Skew;

/// What a process of the run is: its class, and its number within the class, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Index into the job's classes.
    pub class: usize,
    pub number: usize,
}

/// How far the run is. Phases only ever grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    /// The window is open. Before it (0) everybody warms up.
    Measure = 1,
    /// The window is closed; all but the log writer go home.
    Leave,
    /// The log writer goes home.
    End,
}

/// Points that a number of processes have to reach before the parent goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// Every process is set up, and every foreground has done its ramp.
    Ready,
    /// Every foreground and the scanner have done their share of the window.
    Done,
}

shared_struct! {
    struct Stage {
        phase: AtomicU32,
        ready: AtomicU32,
        done: AtomicU32,
        unused: AtomicU32,
        changed: Event,
        /// Transactions ended so far, ramp included: what paces the scanner.
        transactions: AtomicU64,
        paced: Event,
    }
}

shared_struct! {
    /// What one process has counted.
    pub struct Counters {
        /// Blocks asked of the cache, and how many were there.
        pub gets: AtomicU64,
        pub hits: AtomicU64,
        /// Commits that waited for the log.
        pub commits: AtomicU64,
        /// Blocks or extents read, blocks written.
        pub reads: AtomicU64,
        pub writes: AtomicU64,
        /// System calls' worth of writing: batches of the database writer.
        pub batches: AtomicU64,
    }
}

impl Counters {
    /// Adds one. For counters that one process alone changes: no locked instruction.
    pub fn bump(counter: &AtomicU64) {
        counter.store(counter.load(Relaxed) + 1, Release);
    }
}

const TEXT: usize = 512;

/// One run.
pub struct Instance<'s> {
    pub job: &'s Job,
    pub dir: &'s Path,
    pub seed: u64,
    /// Transactions before and in the window.
    pub ramp: u64,
    pub transactions: u64,
    pub skew: Skew,
    pub cache: Cache<'s>,
    pub log: Log<'s>,
    pub checkpoints: Checkpoints<'s>,
    pub roles: Vec<Role>,
    /// Transactions after which somebody may have become due who does a request for so many of them.
    pace: u64,
    /// By process.
    pub counters: &'s [Counters],
    pub commit_latency: Vec<SharedHistogram<'s>>,
    pub read_latency: Vec<SharedHistogram<'s>>,
    /// What has been acknowledged.
    pub ledger: Live<'s>,
    stage: &'s Stage,
    texts: &'s [AtomicU8],
    milestone: File,
}

/// The processes of a job. Those that do transactions come first, so that their number is also their index.
pub fn roles(job: &Job) -> Vec<Role> {
    let of = |transacts| {
        let classes = job.classes.iter().enumerate().filter(move |(_, c)| c.kind.transacts() == transacts);
        classes.flat_map(|(class, c)| (0..c.count).map(move |number| Role { class, number }))
    };
    of(true).chain(of(false)).collect()
}

/// The greatest common divisor of what paced classes wait for.
fn pace(job: &Job) -> u64 {
    let every = job.classes.iter().filter_map(|c| match c.kind {
        Kind::Scanner { work: Share::PerTransactions(n), .. } => Some(n),
        _ => None,
    });
    every.reduce(gcd).unwrap_or(u64::MAX)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl<'s> Instance<'s> {
    /// Bytes of segment that a job needs besides those of its cache.
    pub fn bytes(job: &Job) -> usize {
        let processes = roles(job).len();
        let per_process = TEXT + size_of::<Counters>() + 2 * (SharedHistogram::BYTES + 128);
        Checkpoints::bytes(job)
            + Log::bytes(job, processes)
            + processes * per_process
            + (1 << 16)
    }

    /// Carves everything out of `segment`, but the cache, which has memory of its own. A byte is written to `milestone` whenever one is reached.
    pub fn new(
        segment: &'s Segment,
        cache: &'s Segment,
        job: &'s Job,
        dir: &'s Path,
        seed: u64,
        ramp: u64,
        transactions: u64,
        milestone: File,
        ledger: Live<'s>,
    ) -> Self {
        let roles = roles(job);
        Self {
            job,
            dir,
            seed,
            ramp,
            transactions,
            skew: Skew::new(job.blocks()),
            cache: Cache::new(cache, job),
            log: Log::new(segment, job, roles.len()),
            checkpoints: Checkpoints::new(segment, job),
            counters: segment.many(roles.len()),
            commit_latency: (0..job.transactors()).map(|_| SharedHistogram::new(segment)).collect(),
            read_latency: (0..job.transactors()).map(|_| SharedHistogram::new(segment)).collect(),
            ledger,
            stage: segment.one(),
            texts: segment.many(roles.len() * TEXT),
            pace: pace(job),
            roles,
            milestone,
        }
    }

    /// The class of a process.
    pub fn class(&self, process: usize) -> &ClassSpec {
        &self.job.classes[self.roles[process].class]
    }

    /// The number of a database writer among all of them, whatever their classes.
    pub fn writer_number(&self, process: usize) -> usize {
        let writer = |p: &usize| matches!(self.class(*p).kind, Kind::DatabaseWriter { .. });
        (0..process).filter(writer).count()
    }

    /// What a process is called in messages: its class's name, with its number where there are several.
    pub fn name(&self, process: usize) -> String {
        let class = self.class(process);
        let mut name = class.name.replace('-', " ");
        name[..1].make_ascii_uppercase();
        if class.count > 1 { format!("{name} {}", self.roles[process].number) } else { name }
    }

    /// Processes whose work is a fixed share of the window's.
    fn with_share(&self) -> usize {
        let fixed = |c: &&ClassSpec| {
            c.kind.transacts() || matches!(c.kind, Kind::Scanner { work: Share::PerTransactions(_), .. })
        };
        self.job.classes.iter().filter(fixed).map(|c| c.count).sum()
    }

    /// Requests of a process that does one for `every` so many transactions, before the window.
    pub fn ramp_scans(&self, every: u64) -> u64 {
        self.ramp / every
    }

    /// The same, in the window.
    pub fn scans(&self, every: u64) -> u64 {
        (self.transactions / every).max(1)
    }

    /// Whether the run has come to `phase`.
    pub fn reached(&self, phase: Phase) -> bool {
        self.stage.phase.load(SeqCst) >= phase as u32
    }

    /// Sleeps until the run has come to `phase`.
    pub fn wait_for(&self, phase: Phase) {
        self.stage.changed.wait_until(|| self.reached(phase));
    }

    /// Goes on to `phase`, waking everybody who sleeps for lack of work.
    pub fn enter(&self, phase: Phase) {
        self.stage.phase.store(phase as u32, SeqCst);
        self.stage.changed.signal();
        self.cache.writer().signal();
        self.checkpoints.checkpointer().signal();
        self.log.writer().signal();
        self.log.checkpointed().signal();
    }

    /// Tells that one more process has reached a milestone; the last one tells the parent.
    pub fn arrive(&self, milestone: Milestone) -> Result<()> {
        let (counter, total) = match milestone {
            Milestone::Ready => (&self.stage.ready, self.roles.len()),
            Milestone::Done => (&self.stage.done, self.with_share()),
        };
        if counter.fetch_add(1, SeqCst) as usize + 1 == total {
            (&self.milestone).write_all(b".").context("Cannot tell the parent")?;
        }
        Ok(())
    }

    /// Counts a transaction that has ended.
    pub fn transaction_ended(&self) {
        let n = self.stage.transactions.fetch_add(1, SeqCst) + 1;
        if n.is_multiple_of(self.pace) || n == self.ramp + self.transactions {
            self.stage.paced.signal();
        }
    }

    /// Requests that a process which does one for `every` so many transactions may have done by now. With `idle_at`, sleeps until
    /// they are more than that.
    pub fn scan_due(&self, every: u64, idle_at: Option<u64>) -> u64 {
        let due = || {
            let ended = self.stage.transactions.load(SeqCst);
            // The last transaction makes everything due, be it a multiple or not.
            let all = ended == self.ramp + self.transactions;
            if all { self.ramp_scans(every) + self.scans(every) } else { ended / every }
        };
        if let Some(requests) = idle_at {
            self.stage.paced.wait_until(|| due() > requests);
        }
        due()
    }

    /// Leaves word for the parent why `process` has failed.
    pub fn leave_word(&self, process: usize, text: &str) {
        for (to, from) in self.texts[process * TEXT..][..TEXT].iter().zip(text.bytes()) {
            to.store(from, SeqCst);
        }
    }

    /// What `process` has left, if anything.
    pub fn word_of(&self, process: usize) -> Option<String> {
        let bytes = self.texts[process * TEXT..][..TEXT].iter().map(|b| b.load(SeqCst)).take_while(|b| *b != 0);
        let text = String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned();
        (!text.is_empty()).then_some(text)
    }
}
