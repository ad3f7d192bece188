//! The metrics of a job: declared from the job, measured by its run.
//!
//! Invariant: every metric that a job declares is measured by its run, finite and above 0, or the run is an error that gives the
//! reason.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use bigiron_model::metric::{Better, Kind, MetricDef, Unit};

use super::job::{ClassKind as Class, Job, Length, WorkShare};
use super::outcome::JobOutcome;
use super::requests;
use super::stages;
use super::waits::WaitEvent;

/// Wait events whose mean per transaction is a metric, if the job always waits for them.
const EVENTS: [WaitEvent; 2] = [WaitEvent::LogFileSync, WaitEvent::DataFileRead];

fn def(name: &str, unit: Unit, better: Better, kind: Kind, summary: &str) -> MetricDef {
    MetricDef { name: name.to_owned(), unit, better, kind, primary: name == "throughput", summary: summary.to_owned() }
}

fn wait_name(event: WaitEvent) -> String {
    format!("wait-{}", event.slug())
}

/// Whether transactions of the job always wait for `event`.
fn waits_for(job: &Job, event: WaitEvent) -> bool {
    match event {
        WaitEvent::LogFileSync => job.writes(),
        WaitEvent::DataFileRead => job.reads(),
        _ => false,
    }
}

/// Whether a scanner's work is not a fixed share of the foregrounds'.
fn scans_freely(job: &Job) -> bool {
    job.classes.iter().any(|c| matches!(c.kind, Class::Scanner { work: WorkShare::Free, .. }))
}

/// Whether the window ends when a number of requests is done.
fn finishes(job: &Job) -> bool {
    requests::counted(job) && !matches!(job.run.length, Length::Time(_))
}

/// The metrics that a run of `job` delivers.
pub fn of(job: &Job) -> Vec<MetricDef> {
    let latency = |name: &str, kind, summary: &str| def(name, Unit::Ns, Better::Lower, kind, summary);
    let mut defs = Vec::new();
    if job.transactors() > 0 {
        defs.push(def(
            "throughput",
            Unit::TransactionsPerSecond,
            Better::Higher,
            Kind::Throughput,
            "Transactions of all foregrounds per second, from the opening of the window until the last and the scanner are done, \
             or until it closes by time",
        ));
    }
    if job.writes() {
        defs.push(latency(
            "commit-p50",
            Kind::P50,
            "Time from the request to commit until the redo is durable and the foreground runs, median",
        ));
        defs.push(latency("commit-p99", Kind::P99, "The same, 99th percentile"));
        defs.extend(stages::metrics());
    }
    if job.reads() {
        defs.push(latency("read-mean", Kind::Cost, "Time of a foreground's pread of one 8 KiB block, mean"));
    }
    if job.transactors() > 0 {
        let cpu = "CPU time, user and system, of all processes per transaction";
        defs.push(latency("cpu-per-transaction", Kind::Cost, cpu));
    }
    if requests::alone(job) {
        let summary = "Plain requests per second, of the classes that have a total where there are such";
        defs.push(def("throughput", Unit::OperationsPerSecond, Better::Higher, Kind::Throughput, summary));
        defs.push(latency(
            "request-p50",
            Kind::P50,
            "Time of a request from its submission until its completion is seen, median",
        ));
        defs.push(latency("request-p99", Kind::P99, "The same, 99th percentile"));
        if finishes(job) {
            defs.push(latency("elapsed", Kind::Cost, "Time until all requests are done"));
        }
        let cpu = "CPU time, user and system, of all processes per request";
        defs.push(latency("cpu-per-request", Kind::Cost, cpu));
    }
    if scans_freely(job) {
        let summary = "Bytes per second of scanners that read as fast as possible";
        let better = Better::Higher;
        defs.push(def("scan-bandwidth", Unit::BytesPerSecond, better, Kind::Throughput, summary));
    }
    defs.push(def(
        "page-table-bytes",
        Unit::Bytes,
        Better::Lower,
        Kind::Amount,
        "Page tables of all processes together when the window closes",
    ));
    if job.transactors() > 0 {
        let summary = "Time of a transaction from its intended start (or its start, if it has none) to its end, median";
        defs.push(latency("transaction-p50", Kind::P50, summary));
        defs.push(latency("transaction-p99", Kind::P99, "The same, 99th percentile"));
    }
    for event in EVENTS.into_iter().filter(|e| waits_for(job, *e)) {
        let summary = format!("Time that a transaction waits for `{}`, mean", event.name());
        defs.push(latency(&wait_name(event), Kind::Cost, &summary));
    }
    if job.transactors() > 0 {
        let summary = "Time of a transaction outside all waits, on a CPU or waiting for one, mean";
        defs.push(latency("wait-cpu", Kind::Cost, summary));
    }
    // Without a throughput, the first metric carries the verdict.
    if !defs.iter().any(|d| d.primary) {
        defs[0].primary = true;
    }
    defs
}

/// The values of the metrics declared by [`of`].
pub fn values(job: &Job, outcome: &JobOutcome) -> Result<BTreeMap<String, f64>> {
    let mut values = BTreeMap::from([("page-table-bytes".to_owned(), outcome.page_table_bytes as f64)]);
    let mut put = |name: &str, value: f64| values.insert(name.to_owned(), value);
    let ns = |value: Option<u64>| value.unwrap_or(0) as f64;
    if job.transactors() > 0 {
        ensure!(
            outcome.transactions > 0,
            "No transaction ended in the window; the job's length is too small for its pace"
        );
        let per_transaction = |ns: u64| ns as f64 / outcome.transactions as f64;
        put("throughput", outcome.throughput());
        put("cpu-per-transaction", outcome.cpu.as_nanos() as f64 / outcome.transactions as f64);
        let latency = outcome.latency();
        // With a pace so slow that the transactions that ended in the window had begun before it, nothing was measured.
        ensure!(latency.count() > 0, "No transaction was measured; the job's length is too small for its pace");
        put("transaction-p50", ns(latency.quantile(0.5)));
        put("transaction-p99", ns(latency.quantile(0.99)));
        for event in EVENTS.into_iter().filter(|e| waits_for(job, *e)) {
            put(&wait_name(event), per_transaction(outcome.waits().of(event).ns));
        }
        put("wait-cpu", outcome.counts.outside_ns as f64 / latency.count() as f64);
    }
    if requests::alone(job) {
        let (count, latency) = outcome.requests();
        ensure!(count > 0 && latency.count() > 0, "No request ended in the window; the job's length is too small");
        put("throughput", count as f64 / outcome.elapsed.as_secs_f64());
        if finishes(job) {
            put("elapsed", outcome.elapsed.as_nanos() as f64);
        }
        put("request-p50", ns(latency.quantile(0.5)));
        put("request-p99", ns(latency.quantile(0.99)));
        put("cpu-per-request", outcome.cpu.as_nanos() as f64 / count as f64);
    }
    if scans_freely(job) {
        ensure!(outcome.counts.scanned_bytes > 0, "Scanners read nothing in the window; the job's length is too small");
        put("scan-bandwidth", outcome.counts.scanned_bytes as f64 / outcome.elapsed.as_secs_f64());
    }
    if job.writes() {
        ensure!(
            outcome.commits.count() > 0,
            "No transaction changed a block; `dbsim.transactions` or `dbsim.write` is too small"
        );
        put("commit-p50", ns(outcome.commits.quantile(0.5)));
        put("commit-p99", ns(outcome.commits.quantile(0.99)));
        for (name, mean) in &outcome.stages {
            put(name, *mean);
        }
    }
    if job.reads() {
        ensure!(
            outcome.reads.count() > 0,
            "No block had to be read; `dbsim.transactions` is too small or `dbsim.cache` too large"
        );
        put("read-mean", outcome.reads.mean().unwrap_or(0.0));
    }
    Ok(values)
}
