//! The facts of a run for the record, in addition to its metrics.
//!
//! Invariant: a fact that is a time or a rate shows its unit, so that a trial without a clock can omit it; everything that
//! weakens durability or departs from TPC-C is among the facts.

use std::collections::BTreeMap;

use super::config::{Config, Engine, Mode, Pace};
use super::counters;
use super::driver::{DriveResult, TransactionCounts};
use super::input::TransactionKind;
use super::job::Job;
use super::run_monitor::Observations;

pub type Facts = BTreeMap<String, String>;

/// The settings of the job.
pub fn of_job(job: &Job, config: &Config) -> Facts {
    let mut facts = Facts::new();
    let mut put = |name: &str, value: String| facts.insert(name.to_owned(), value);
    put("job", job.name.clone());
    put("engine", job.engine.in_words());
    put("warehouses", job.scale.warehouses.to_string());
    put("connections", config.connections.to_string());
    if config.part.1 > 1 {
        let ((part, parts), (first, last)) = (config.part, config.homes());
        put(
            "part",
            format!("{part} of {parts}, at home in warehouses {first} to {last}; metrics are of all parts together"),
        );
    }
    put("terminals", config.terminals.to_string());
    put("drivers", config.drivers.to_string());
    if !matches!(job.engine, Engine::Sqlite { .. }) {
        put("mode", mode(job.mode, &job.engine).to_owned());
    }
    let deviations = deviations(job);
    if !deviations.is_empty() {
        put("deviations", deviations.join("; "));
    }
    let weakened = job.engine.weakened();
    if !weakened.is_empty() {
        put("weakened", weakened.join("; "));
    }
    facts
}

fn mode(mode: Mode, engine: &Engine) -> &'static str {
    match mode {
        Mode::Pipelined if matches!(engine, Engine::MariaDb { .. }) => {
            "statements in one pipeline and COMMIT after it, two round trips"
        }
        Mode::Procedures => "stored procedures, one round trip",
        Mode::Pipelined => "statements in one pipeline, one round trip",
        Mode::RoundTrips => "one round trip for each statement: a test of scheduler and network",
    }
}

/// A job's deviations from TPC-C's rules, besides those of every run of oltp.
fn deviations(job: &Job) -> Vec<String> {
    let mut all = Vec::new();
    match job.pace {
        Pace::Closed { keying, think } => {
            for (name, factor) in [("keying", keying), ("think", think)] {
                match factor {
                    1.0 => {}
                    0.0 => all.push(format!("no {name} time")),
                    _ => all.push(format!("{name} times multiplied by {factor}")),
                }
            }
        }
        Pace::Open { .. } => all.push("arrivals by schedule, not by users".to_owned()),
    }
    let [_, payment, others @ ..] = job.mix;
    if payment < 430 || others.iter().any(|share| *share < 40) {
        all.push("a mix below the minimum shares of 43, 4, 4 and 4 %".to_owned());
    }
    if job.touched != (1, job.scale.warehouses) {
        all.push(format!("warehouses {} to {} only", job.touched.0, job.touched.1));
    }
    if job.touched.0 == job.touched.1 {
        all.push("one warehouse, so nothing is remote".to_owned());
    }
    all
}

/// The findings.
pub fn of_run(job: &Job, driven: &DriveResult, seen: &Observations) -> Facts {
    let mut facts = Facts::new();
    let transactions = driven.transactions();
    facts.insert("transactions".to_owned(), transactions.to_string());
    for kind in TransactionKind::ALL.into_iter().filter(|k| driven.tally.window[k.index()].ended() > 0) {
        facts.insert(format!("transaction.{}", kind.name()), counts(driven, kind));
        facts.insert(format!("response.{}", kind.name()), response(job, driven, kind));
    }
    let whole = |of: fn(&TransactionCounts) -> u64| driven.tally.window.iter().map(of).sum::<u64>();
    facts.insert("retries".to_owned(), whole(|c| c.retries).to_string());
    facts.insert("within-limits".to_owned(), compliance(job, driven));
    if matches!(job.pace, Pace::Open { .. }) {
        facts.insert("backlog".to_owned(), backlog(driven));
    }
    facts.insert("longest-queue".to_owned(), driven.longest_queue.to_string());
    facts.extend(costs(job, driven, seen));
    let sampled: u64 = seen.waits.values().sum();
    for (event, n) in &seen.waits {
        let share = 100.0 * *n as f64 / sampled as f64;
        facts.insert(format!("wait.{event}"), format!("{share:.1} % of {sampled} samples of busy sessions"));
    }
    facts
}

fn counts(driven: &DriveResult, kind: TransactionKind) -> String {
    let counts = &driven.tally.window[kind.index()];
    let share = 100.0 * counts.ended() as f64 / driven.transactions() as f64;
    let rolled_back = match counts.rolled_back {
        0 => String::new(),
        n => format!(", {n} of them rolled back as intended"),
    };
    format!("{} ({share:.2} %){rolled_back}, {} retries", counts.ended(), counts.retries)
}

fn response(job: &Job, driven: &DriveResult, kind: TransactionKind) -> String {
    let latency = &driven.tally.latency[kind.index()];
    let ns = |q| latency.quantile(q).unwrap_or(0);
    format!(
        "mean {:.0} ns, p50 {} ns, p90 {} ns of {} s allowed, p95 {} ns, p99 {} ns, max {} ns",
        latency.mean().unwrap_or(0.0),
        ns(0.5),
        ns(0.9),
        job.limits[kind.index()].as_secs_f64(),
        ns(0.95),
        ns(0.99),
        latency.max().unwrap_or(0)
    )
}

/// Kinds whose 90th percentile is above its limit.
pub fn beyond_limits(job: &Job, driven: &DriveResult) -> Vec<TransactionKind> {
    let beyond = |kind: &TransactionKind| {
        let p90 = driven.tally.latency[kind.index()].quantile(0.9);
        p90.is_some_and(|ns| u128::from(ns) > job.limits[kind.index()].as_nanos())
    };
    TransactionKind::ALL.into_iter().filter(beyond).collect()
}

fn compliance(job: &Job, driven: &DriveResult) -> String {
    match &beyond_limits(job, driven)[..] {
        [] => "all kinds".to_owned(),
        some => format!("not {}", some.iter().map(|k| k.name()).collect::<Vec<_>>().join(", ")),
    }
}

fn backlog(driven: &DriveResult) -> String {
    match driven.backlog {
        0 => "0 requests waited when the window closed".to_owned(),
        n => format!(
            "overloaded: {n} requests were waiting for a connection when the window closed; the figures do not include their latency"
        ),
    }
}

fn costs(job: &Job, driven: &DriveResult, seen: &Observations) -> Facts {
    let transactions = driven.transactions().max(1) as f64;
    let mut facts = Facts::new();
    let counted = |name: &str| seen.window.get(name).map(|n| *n as f64);
    let cpu = &driven.cpu;
    facts.insert(
        "cpu.driver".to_owned(),
        format!(
            "{:.0} ns per transaction, {:.0} ns user and {:.0} ns system",
            cpu.total.as_nanos() as f64 / transactions,
            cpu.user.as_nanos() as f64 / transactions,
            cpu.system.as_nanos() as f64 / transactions
        ),
    );
    let mut per = |name: &str, counter: &str, unit: &str| {
        if let Some(n) = counted(counter) {
            facts.insert(name.to_owned(), format!("{:.2} {unit} per transaction", n / transactions));
        }
    };
    per("cpu.server", counters::SERVER_CPU, "ns");
    per("cpu.kernel-threads", counters::KERNEL_CPU, "ns");
    per("file-reads", counters::FILE_READ, "bytes");
    per("storage-reads", counters::STORAGE_READ, "bytes");
    per("storage-writes", counters::STORAGE_WRITTEN, "bytes");
    per("context-switches", counters::SWITCHES, "times");
    per("log-bytes", "wal.wal_bytes", "bytes");
    per("log-full-pages", "wal.wal_fpi", "pages");
    per("commits-of-server", "database.xact_commit", "times");
    if let (Some(server), Engine::Postgres { .. } | Engine::MariaDb { .. }) =
        (counted(counters::SERVER_CPU), &job.engine)
    {
        let driver = cpu.total.as_nanos() as f64;
        let all = driver + server + counted(counters::KERNEL_CPU).unwrap_or(0.0);
        facts.insert("driver-share".to_owned(), format!("{:.1} % of all CPU time", 100.0 * driver / all));
    }
    // Counters under their names in the server or the kernel.
    for (name, n) in
        seen.window.iter().filter(|(name, n)| **n > 0 && (name.contains('.') || name.starts_with("pressure")))
    {
        let (name, unit) = match name.strip_suffix("-us") {
            Some(name) => (name, " us"),
            None => (name.as_str(), ""),
        };
        facts.insert(format!("counter.{name}"), format!("{n}{unit}"));
    }
    let footprint = &seen.footprint;
    for (name, bytes) in [
        ("page-table-bytes", footprint.page_tables),
        ("available-bytes", footprint.available),
        ("session-memory-bytes", footprint.session.map(|s| s.private)),
        ("session-page-table-bytes", footprint.session.map(|s| s.page_tables)),
    ] {
        facts.extend(bytes.map(|n| (name.to_owned(), n.to_string())));
    }
    facts
}
