//! dbsim: the platform-critical activities of a database kernel and, above all, who waits for whom, in real processes that
//! share memory.
//!
//! Invariant: nothing depends on time, process numbers or addresses: the same seed does the same transactions, and under the
//! exact clock takes the same time to the nanosecond.

mod acks;
mod block;
mod cache;
mod checkpointer;
mod checkpoints;
mod control_file;
mod crew;
mod db_writer;
mod files;
mod foreground;
mod huge_pages;
mod instance;
pub mod job;
mod journal;
mod ledger;
mod log;
mod log_writer;
mod lru;
mod memory;
mod page_tables;
mod scanner;
mod transaction;
mod verify;
pub mod waits;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::load::{Histogram, SharedHistogram};
use crate::metric::{Better, Kind, MetricDef, Unit};
use crate::sys::segment::Segment;

use super::{Context, Needs, OptionDef, Options, Outcome, Progress, Workload};

use cache::Cache;
use crew::Crew;
use huge_pages::Permission;
use instance::{Instance, Phase};
use job::{Job, Kind as Class};
use ledger::{Book, Ledger, Live};
use memory::CacheMemory;
use page_tables::PageTables;

pub use block::BlockError;
pub use verify::{Acks, Verdict, VerifyFailed};

/// The workload `dbsim`.
pub struct Dbsim;

/// Part of the cache that is filled with the hottest blocks before the ramp: all of it but an eighth.
const PRELOAD: (usize, usize) = (7, 8);

impl Workload for Dbsim {
    fn name(&self) -> &'static str {
        "dbsim"
    }

    fn summary(&self) -> &'static str {
        "A database kernel's load: shared buffer cache, group commit, database writer, scanner; no database"
    }

    fn doc(&self) -> &'static str {
        include_str!("../../../docs/workloads/dbsim.md")
    }

    fn options(&self) -> &'static [OptionDef] {
        job::OPTIONS
    }

    fn check_dotted(&self, name: &str) -> Result<(), String> {
        job::check_dotted(name)
    }

    fn embed(&self, name: &str, value: &str) -> Result<String, String> {
        if name == "job" { job::embed(value).map_err(|e| e.to_string()) } else { Ok(value.to_owned()) }
    }

    fn check(&self, options: &Options) -> Result<(), String> {
        Job::parse(options).map(|_| ())
    }

    fn needs(&self, options: &Options) -> Needs {
        let Ok(job) = Job::parse(options) else { return Needs::default() };
        let processes = instance::roles(&job).len();
        Needs {
            storage_bytes: Some(
                job.data.bytes
                    + job.journal.files as u64 * job.journal.bytes
                    + Ledger::bytes(job.transactors(), job.blocks())
                    // Directory, extents, and what the file system keeps for itself per file.
                    + (1 << 20),
            ),
            // The segment, and half a mebibyte for each process's own stack, heap and page tables.
            memory_bytes: (Instance::bytes(&job) + Cache::bytes(&job) + (processes << 19)) as u64
                + Ledger::bytes(job.transactors(), job.blocks())
                + verify::memory_bytes(&job),
            modules: Vec::new(),
        }
    }

    fn metrics(&self, _options: &Options) -> Vec<MetricDef> {
        let def = |name: &str, unit, better, kind, summary: &str| MetricDef {
            name: name.to_owned(),
            unit,
            better,
            kind,
            primary: name == "throughput",
            summary: summary.to_owned(),
        };
        let latency = |name, kind, summary| def(name, Unit::Ns, Better::Lower, kind, summary);
        vec![
            def(
                "throughput",
                Unit::TransactionsPerSecond,
                Better::Higher,
                Kind::Throughput,
                "Transactions of all foregrounds per second, from the first's start until the last and the scanner are done",
            ),
            latency(
                "commit-p50",
                Kind::P50,
                "Time from the request to commit until the redo is durable and the foreground runs, median",
            ),
            latency("commit-p99", Kind::P99, "The same, 99th percentile"),
            latency("read-mean", Kind::Cost, "Time of a foreground's pread of one 8 KiB block, mean"),
            latency("cpu-per-transaction", Kind::Cost, "CPU time, user and system, of all processes per transaction"),
            def(
                "page-table-bytes",
                Unit::Bytes,
                Better::Lower,
                Kind::Amount,
                "Page tables of all processes together when the window closes",
            ),
        ]
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<()> {
        let job = parse(cx)?;
        files::lay_out(&job, &cx.dir, |f| {
            (cx.progress)(Progress { step: "lay out", done: f as u32, of: job.data.files as u32 })
        })
    }

    fn run(&self, cx: &Context<'_>) -> Result<Outcome> {
        let job = parse(cx)?;
        let private = page_tables::of_process("self")?;
        let segment = Segment::new(Instance::bytes(&job)).context("Cannot map the shared segment")?;
        let memory = CacheMemory::new(job.cache.memory, Cache::bytes(&job), Permission::of_this_machine())?;
        let book = Book::open(&job, &cx.dir)?;
        let (milestones, milestone) = std::io::pipe().context("Cannot make a pipe")?;
        let instance = Instance::new(
            &segment,
            memory.segment(),
            &job,
            &cx.dir,
            cx.seed,
            job.ramp(cx.clock).unwrap_or(0),
            job.transactions(cx.clock).unwrap_or(0),
            File::from(std::os::fd::OwnedFd::from(milestone)),
            Live::new(book.segment(), &job),
        );
        let progress = |step, done| (cx.progress)(Progress { step, done, of: 4 });
        progress("fill the cache", 0);
        preload(&instance)?;
        let memory_facts = memory.facts()?;
        progress("ramp", 1);
        let mut crew = Crew::start(&instance, File::from(std::os::fd::OwnedFd::from(milestones)))?;
        crew.wait_milestone()?;
        progress("window", 2);
        let before = Counts::of(&instance);
        let cpu_before = crew.cpu_time()?;
        let start = Instant::now();
        instance.enter(Phase::Measure);
        crew.wait_milestone()?;
        let elapsed = start.elapsed();
        let cpu = crew.cpu_time()? - cpu_before;
        let page_tables = PageTables::new(&instance, &memory, private, &crew.page_table_bytes()?)?;
        let counts = Counts::of(&instance).since(before);
        progress("shut down", 3);
        instance.enter(Phase::Leave);
        crew.wait_gone(|kind| !matches!(kind, Class::LogWriter { .. }))?;
        instance.enter(Phase::End);
        crew.wait_gone(|_| true)?;
        book.close(&instance.ledger)?;

        let commits = merged(&instance.commit_latency);
        let reads = merged(&instance.read_latency);
        ensure!(
            commits.count() > 0,
            "No transaction changed a block; `dbsim.transactions` or `dbsim.write` is too small"
        );
        ensure!(
            reads.count() > 0,
            "No block had to be read; `dbsim.transactions` is too small or `dbsim.cache` too large"
        );
        let transactions = instance.transactions as f64;
        let ns = |value: Option<u64>| value.unwrap_or(0) as f64;
        let values = [
            ("throughput", transactions / elapsed.as_secs_f64()),
            ("commit-p50", ns(commits.quantile(0.5))),
            ("commit-p99", ns(commits.quantile(0.99))),
            ("read-mean", reads.mean().unwrap_or(0.0)),
            ("cpu-per-transaction", cpu.as_nanos() as f64 / transactions),
            ("page-table-bytes", page_tables.total as f64),
        ];
        Ok(Outcome {
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            facts: facts(&instance, &counts).into_iter().chain(page_tables.facts).chain(memory_facts).collect(),
        })
    }

    fn verify(&self, cx: &Context<'_>) -> Result<()> {
        (cx.progress)(Progress { step: "verify", done: 0, of: 1 });
        verify::verify(&parse(cx)?, &cx.dir)
    }
}

fn parse(cx: &Context<'_>) -> Result<Job> {
    Job::parse(cx.options).map_err(anyhow::Error::msg)
}

fn merged(parts: &[SharedHistogram<'_>]) -> Histogram {
    let mut all = Histogram::new();
    for p in parts {
        all.merge(&p.read());
    }
    all
}

/// Reads the hottest blocks into the cache, coldest of them first, so that the window does not begin with an empty cache.
fn preload(instance: &Instance<'_>) -> Result<()> {
    let files = files::DataFiles::open(instance.job, instance.dir)?;
    for rank in (0..instance.cache.len() * PRELOAD.0 / PRELOAD.1).rev() {
        let number = instance.skew.block(rank);
        let address = files::address(instance.job, number);
        instance.cache.get(number, |page| {
            files.read(address, page)?;
            Ok(block::check(page, address)?)
        })?;
    }
    Ok(())
}

/// Totals over all processes.
#[derive(Clone, Copy)]
struct Counts {
    gets: u64,
    hits: u64,
    commits: u64,
    reads: u64,
    scanned: u64,
    writes: u64,
    batches: u64,
    free_waits: u64,
    log: log::LogCounts,
}

impl Counts {
    fn of(instance: &Instance<'_>) -> Self {
        let foregrounds = &instance.counters[..instance.job.transactors()];
        let others = &instance.counters[instance.job.transactors()..];
        let sum = |of: &[instance::Counters], f: fn(&instance::Counters) -> &std::sync::atomic::AtomicU64| {
            of.iter().map(|c| f(c).load(SeqCst)).sum()
        };
        Self {
            gets: sum(foregrounds, |c| &c.gets),
            hits: sum(foregrounds, |c| &c.hits),
            commits: sum(foregrounds, |c| &c.commits),
            reads: sum(foregrounds, |c| &c.reads),
            scanned: sum(others, |c| &c.reads),
            writes: sum(others, |c| &c.writes),
            batches: sum(others, |c| &c.batches),
            free_waits: instance.cache.free_waits(),
            log: instance.log.counts(),
        }
    }

    /// What was counted since `before`.
    fn since(self, before: Self) -> Self {
        Self {
            gets: self.gets - before.gets,
            hits: self.hits - before.hits,
            commits: self.commits - before.commits,
            reads: self.reads - before.reads,
            scanned: self.scanned - before.scanned,
            writes: self.writes - before.writes,
            batches: self.batches - before.batches,
            free_waits: self.free_waits - before.free_waits,
            log: log::LogCounts {
                flushes: self.log.flushes - before.log.flushes,
                flushed_bytes: self.log.flushed_bytes - before.log.flushed_bytes,
                switches: self.log.switches - before.log.switches,
                space_waits: self.log.space_waits - before.log.space_waits,
            },
        }
    }
}

fn facts(instance: &Instance<'_>, counts: &Counts) -> BTreeMap<String, String> {
    let job = instance.job;
    let durability = match job.data.sync {
        job::DataSync::Dsync => "data files and journals opened O_DSYNC",
        job::DataSync::Fdatasync => "fdatasync after every redo write, and of the data files at every checkpoint",
    };
    let ratio = |a: u64, b: u64| format!("{:.4}", a as f64 / b.max(1) as f64);
    [
        ("engine", engine(job).to_owned()),
        ("page-cache", if job.data.direct { "bypassed (O_DIRECT)" } else { "used" }.to_owned()),
        ("durability", durability.to_owned()),
        ("processes", instance.roles.len().to_string()),
        ("transactions", instance.transactions.to_string()),
        ("data-bytes", job.data.bytes.to_string()),
        ("cache-bytes", job.cache.bytes.to_string()),
        ("journal-bytes", job.journal.bytes.to_string()),
        ("cache-hit-ratio", ratio(counts.hits, counts.gets)),
        ("block-reads", counts.reads.to_string()),
        ("block-writes", counts.writes.to_string()),
        ("write-batches", counts.batches.to_string()),
        ("extents-scanned", counts.scanned.to_string()),
        ("commits", counts.commits.to_string()),
        ("redo-writes", counts.log.flushes.to_string()),
        ("redo-bytes", counts.log.flushed_bytes.to_string()),
        ("commits-per-redo-write", ratio(counts.commits, counts.log.flushes)),
        ("log-switches", counts.log.switches.to_string()),
        ("log-space-waits", counts.log.space_waits.to_string()),
        ("free-buffer-waits", counts.free_waits.to_string()),
        ("checkpoints", instance.checkpoints.count().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// How the database writers reach the kernel.
fn engine(job: &Job) -> &'static str {
    let writer = job.classes.iter().find_map(|c| match &c.kind {
        Class::DatabaseWriter { engine, .. } => Some(engine.method),
        _ => None,
    });
    match writer {
        Some(job::Method::Null) => "null",
        Some(job::Method::Sync) | None => "pread/pwrite",
        Some(job::Method::Vectored) => "preadv2/pwritev2",
        Some(job::Method::Threads) => "threads",
        Some(job::Method::Libaio) => "io_submit",
        Some(job::Method::Uring) => "io_uring",
    }
}
