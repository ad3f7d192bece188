//! The typed results of a run, from which its metrics and facts are made.
//!
//! Invariant: everything here belongs to the window.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use bigiron_sys::load::Histogram;

use super::audit::Audit;
use super::honest_sync::Honesty;
use super::instance::{Instance, ProcessCounters};
use super::log::LogCounts;
use super::requests::RequestsOutcome;
use super::series::Series;
use super::waits::WaitTallies;

/// The results of a run.
#[derive(Clone, Debug)]
pub struct JobOutcome {
    pub elapsed: Duration,
    /// Transactions completed in the window.
    pub transactions: u64,
    /// CPU time, user and system, of all processes.
    pub cpu: Duration,
    /// Page tables of all processes, at the end of the window.
    pub page_table_bytes: u64,
    /// Number of workers: processes, or threads of a class with threads.
    pub processes: usize,
    pub counts: Counts,
    /// From the commit request until the foreground continues.
    pub commits: Histogram,
    /// The commit path's stages: metric and mean, in nanoseconds.
    pub stages: Vec<(String, f64)>,
    /// Block reads by processes that execute transactions.
    pub reads: Histogram,
    /// In the job's order.
    pub classes: Vec<ClassOutcome>,
    /// Kinds of transactions, in the job's order.
    pub kinds: Vec<KindOutcome>,
    /// Empty if the window has no phases.
    pub phases: Vec<PhaseOutcome>,
    pub series: Series,
    /// Whether the device received the redo's syncs; `None` if the job writes no redo.
    pub sync: Option<Honesty>,
    /// Other facts for the record, by name.
    pub facts: BTreeMap<String, String>,
}

/// One process class.
#[derive(Clone, Debug)]
pub struct ClassOutcome {
    pub name: String,
    /// Its kind's word.
    pub kind: &'static str,
    pub workers: usize,
    pub waits: WaitTallies,
    /// From the closely examined transactions.
    pub audit: Audit,
    /// For a class of plain requests.
    pub requests: Option<RequestsOutcome>,
}

/// One kind of transaction.
#[derive(Clone, Debug)]
pub struct KindOutcome {
    pub name: String,
    /// From the intended start, or the start if there is none, to the end.
    pub latency: Histogram,
}

/// One phase of the window.
#[derive(Clone, Debug)]
pub struct PhaseOutcome {
    pub name: String,
    pub elapsed: Duration,
    pub transactions: u64,
    pub latency: Histogram,
}

impl JobOutcome {
    /// Transactions per second.
    pub fn throughput(&self) -> f64 {
        self.transactions as f64 / self.elapsed.as_secs_f64()
    }

    /// Latency of all transactions.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::new();
        for k in &self.kinds {
            all.merge(&k.latency);
        }
        all
    }

    /// Plain requests of all classes or, if some have a total, of these: their number and latency (without syncs).
    pub fn requests(&self) -> (u64, Histogram) {
        let (mut count, mut latency) = (0, Histogram::new());
        let counted = self.classes.iter().filter_map(|c| c.requests.as_ref()).any(|r| r.counted);
        for r in self.classes.iter().filter_map(|c| c.requests.as_ref()).filter(|r| r.counted || !counted) {
            count += r.reads + r.writes;
            latency.merge(&r.latency[0]);
            latency.merge(&r.latency[1]);
        }
        (count, latency)
    }

    /// Waits of all processes that execute transactions.
    pub fn waits(&self) -> WaitTallies {
        let transactors = self.classes.iter().filter(|c| matches!(c.kind, "foreground" | "client"));
        transactors.fold(WaitTallies::default(), |sum, c| sum.plus(&c.waits))
    }

    /// The closely examined transactions of all classes.
    pub fn audit(&self) -> Audit {
        self.classes.iter().fold(Audit::default(), |sum, c| sum.plus(&c.audit))
    }
}

/// Totals over all processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub gets: u64,
    pub hits: u64,
    pub commits: u64,
    pub rollbacks: u64,
    /// Pieces of work that began after their intended start.
    pub late: u64,
    /// Nanoseconds that the window's transactions spent outside all waits: on a CPU, or waiting for one.
    pub outside_ns: u64,
    /// Blocks read by processes that execute transactions.
    pub reads: u64,
    /// Requests of all other processes, and bytes that scanners read.
    pub scanned: u64,
    pub scanned_bytes: u64,
    /// Blocks written.
    pub writes: u64,
    pub batches: u64,
    pub free_waits: u64,
    pub log: LogCounts,
}

impl Counts {
    /// What has been counted since the start.
    pub fn of(instance: &Instance<'_>) -> Self {
        let (transactors, others) = instance.counters.split_at(instance.job.transactors());
        let sum =
            |of: &[ProcessCounters], f: fn(&ProcessCounters) -> &AtomicU64| of.iter().map(|c| f(c).load(SeqCst)).sum();
        Self {
            gets: sum(transactors, |c| &c.gets),
            hits: sum(transactors, |c| &c.hits),
            commits: sum(transactors, |c| &c.commits),
            rollbacks: sum(transactors, |c| &c.rollbacks),
            late: sum(instance.counters, |c| &c.late),
            outside_ns: sum(transactors, |c| &c.outside_ns),
            reads: sum(transactors, |c| &c.reads),
            scanned: sum(others, |c| &c.reads),
            scanned_bytes: sum(others, |c| &c.bytes),
            writes: sum(others, |c| &c.writes),
            batches: sum(others, |c| &c.batches),
            free_waits: instance.cache.free_waits(),
            log: instance.log.counts(),
        }
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            gets: self.gets - before.gets,
            hits: self.hits - before.hits,
            commits: self.commits - before.commits,
            rollbacks: self.rollbacks - before.rollbacks,
            late: self.late - before.late,
            outside_ns: self.outside_ns - before.outside_ns,
            reads: self.reads - before.reads,
            scanned: self.scanned - before.scanned,
            scanned_bytes: self.scanned_bytes - before.scanned_bytes,
            writes: self.writes - before.writes,
            batches: self.batches - before.batches,
            free_waits: self.free_waits - before.free_waits,
            log: self.log.since(before.log),
        }
    }
}
