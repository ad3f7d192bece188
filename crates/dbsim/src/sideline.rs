//! Work beside the transactions that consists of jobs: sorts, loads, backups.
//!
//! Invariant: in a window of transactions each process does exactly one job, so that the work is the same from run to run; in a
//! window of time, job after job until the window closes.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;

use anyhow::Result;

use bigiron_sys::load::now_ns;

use super::block::BLOCK;
use super::instance::{Instance, Milestone, Phase, ProcessCounters};
use super::job::{ClassKind, Job};
use super::sort::SortSpec;
use super::temp::Meter;
use super::waits::{self, WaitEvent};

/// Directs `process` through the run. `job` does one job, calls its argument at every request to learn whether to give up, and
/// returns whether it finished.
pub fn drive(
    instance: &Instance<'_>,
    process: usize,
    mut job: impl FnMut(&dyn Fn() -> bool) -> Result<bool>,
) -> Result<()> {
    instance.arrive(Milestone::Ready)?;
    waits::during(WaitEvent::Idle, || instance.wait_for(Phase::Measure));
    let last = if instance.by_time() { Phase::Close } else { Phase::Leave };
    let stop = || instance.reached(last);
    loop {
        if job(&stop)? {
            ProcessCounters::bump(&instance.counters[process].jobs);
        }
        if !instance.by_time() || stop() {
            break;
        }
    }
    instance.arrive(Milestone::Done)?;
    waits::during(WaitEvent::Idle, || instance.wait_for(Phase::Leave));
    Ok(())
}

/// Sleeps until a process that began at `start` (nanoseconds of the monotonic clock) may exceed `bytes`, or must give up.
pub fn limit(instance: &Instance<'_>, start: u64, bytes: u64, per_second: Option<u64>, stop: &dyn Fn() -> bool) {
    let Some(per_second) = per_second else { return };
    let due = start + (bytes as f64 * 1e9 / per_second as f64) as u64;
    while now_ns() < due && !stop() {
        waits::during(WaitEvent::Pace, || instance.sleep_until(due));
    }
}

/// Counts a process's bytes.
pub struct Traffic<'a>(pub &'a ProcessCounters);

impl Meter for Traffic<'_> {
    fn io(&mut self, write: bool, bytes: usize) {
        let counter = if write { &self.0.written_bytes } else { &self.0.read_bytes };
        ProcessCounters::grow(counter, bytes as u64);
    }
}

/// Maximum bytes of storage of such processes.
pub fn storage_bytes(job: &Job) -> u64 {
    each(job, |kind| match kind {
        ClassKind::Sorter { bytes, memory, request } => sort_spec(job, *bytes, *memory, *request).temp_bytes(),
        ClassKind::Loader { bytes, .. } => *bytes + BLOCK as u64,
        ClassKind::Backup { .. } => job.data.bytes,
        _ => 0,
    })
}

/// Maximum bytes of private memory of such processes.
pub fn memory_bytes(job: &Job) -> u64 {
    each(job, |kind| match kind {
        ClassKind::Sorter { bytes, memory, request } => sort_spec(job, *bytes, *memory, *request).memory_bytes(),
        ClassKind::Loader { engine, request, .. } => (engine.depth * request) as u64,
        ClassKind::Backup { request, .. } => *request as u64,
        _ => 0,
    })
}

fn each(job: &Job, of: impl Fn(&ClassKind) -> u64) -> u64 {
    job.classes.iter().map(|c| of(&c.kind) * c.count as u64).sum()
}

/// The sort of a sorter of the job.
pub fn sort_spec(job: &Job, bytes: u64, memory: u64, request: usize) -> SortSpec {
    SortSpec { bytes, memory, request, direct: job.data.direct }
}

/// The work of such processes, for the record.
pub fn facts(instance: &Instance<'_>) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for (class, spec) in instance.job.classes.iter().enumerate() {
        let what = match spec.kind {
            ClassKind::Sorter { .. } => "sorts",
            ClassKind::Loader { .. } => "loads",
            ClassKind::Backup { .. } => "backups",
            _ => continue,
        };
        let of = (0..instance.roles.len()).filter(|p| instance.roles[*p].class == class);
        let counters: Vec<_> = of.map(|p| &instance.counters[p]).collect();
        let sum = |f: fn(&ProcessCounters) -> &std::sync::atomic::AtomicU64| -> u64 {
            counters.iter().map(|c| f(c).load(SeqCst)).sum()
        };
        for (name, value) in [
            (what, sum(|c| &c.jobs)),
            ("read-bytes", sum(|c| &c.read_bytes)),
            ("written-bytes", sum(|c| &c.written_bytes)),
        ] {
            facts.insert(format!("class.{}.{name}", spec.name), value.to_string());
        }
    }
    for (class, round_trip) in &instance.round_trip {
        let read = round_trip.read();
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            if let Some(ns) = read.quantile(quantile) {
                facts.insert(
                    format!("class.{}.round-trip-{name}-ns", instance.job.classes[*class].name),
                    ns.to_string(),
                );
            }
        }
    }
    facts
}
