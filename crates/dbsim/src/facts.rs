//! A run's facts for the record, in addition to its metrics: sizes, counts, waits, kinds, phases, the series.
//!
//! Invariant: a fact that is a time or a rate shows its unit, so that a trial without a clock can omit it.

use std::collections::BTreeMap;
use std::time::Duration;

use bigiron_sys::load::Histogram;

use super::audit::Audit;
use super::job::{ClassKind, DataSync, Job, Method, explain};
use super::outcome::{ClassOutcome, JobOutcome};

/// The facts of a run.
pub fn of(job: &Job, outcome: &JobOutcome) -> BTreeMap<String, String> {
    let mut facts = outcome.facts.clone();
    facts.extend(sizes(job, outcome).map(|(name, value)| (name.to_owned(), value)));
    for class in &outcome.classes {
        waits(class, outcome.elapsed, &mut facts);
        if let Some(requests) = &class.requests {
            facts.insert(format!("requests.{}", class.name), requests.text(outcome.elapsed));
        }
    }
    if let Some(text) = identity(&outcome.audit()) {
        facts.insert("wait-identity".to_owned(), text);
    }
    for kind in outcome.kinds.iter().filter(|k| k.latency.count() > 0) {
        facts.insert(format!("transaction.{}", kind.name), latency(&kind.latency));
    }
    for phase in &outcome.phases {
        let rate = phase.transactions as f64 / phase.elapsed.as_secs_f64();
        let ns = phase.elapsed.as_nanos();
        let text = format!("{rate:.1} tx/s for {ns} ns; {}", latency(&phase.latency));
        facts.insert(format!("phase.{}", phase.name), text);
    }
    let series = &outcome.series;
    if !series.points.is_empty() {
        facts.extend([
            ("series.interval".to_owned(), format!("{} ms", series.interval.as_secs_f64() * 1e3)),
            // The unit is part of the name, because a list has no other place for it.
            ("series.transactions-per-s".to_owned(), series.per_second(|p| p.transactions)),
            ("series.commits-per-s".to_owned(), series.per_second(|p| p.commits)),
            ("series.reads-per-s".to_owned(), series.per_second(|p| p.reads)),
            ("series.redo-writes-per-s".to_owned(), series.per_second(|p| p.redo_writes)),
        ]);
    }
    facts
}

fn sizes(job: &Job, outcome: &JobOutcome) -> impl Iterator<Item = (&'static str, String)> {
    let counts = &outcome.counts;
    let ratio = |a: u64, b: u64| format!("{:.4}", a as f64 / b.max(1) as f64);
    let always = [
        ("engine", engine(job).to_owned()),
        ("page-cache", page_cache(job).to_owned()),
        ("durability", durability(job)),
        ("processes", outcome.processes.to_string()),
        ("transactions", outcome.transactions.to_string()),
        ("data-bytes", job.data.bytes.to_string()),
        ("cache-bytes", job.cache.bytes.to_string()),
        ("journal-bytes", job.journal.bytes.to_string()),
        ("cache-hit-ratio", ratio(counts.hits, counts.gets)),
        ("block-reads", counts.reads.to_string()),
        ("block-writes", counts.writes.to_string()),
        ("write-batches", counts.batches.to_string()),
        ("extents-scanned", counts.scanned.to_string()),
        ("commits", counts.commits.to_string()),
        ("commits-per-redo-write", ratio(counts.commits, counts.log.flushes)),
        ("free-buffer-waits", counts.free_waits.to_string()),
    ];
    let sometimes = [("rollbacks", counts.rollbacks), ("late-starts", counts.late)];
    let sometimes = sometimes.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, n.to_string()));
    always.into_iter().chain(sometimes)
}

/// When what the processes write is durable.
fn durability(job: &Job) -> String {
    match job.data.sync {
        // Plain requests have settings of their own.
        _ if job.transactors() == 0 => match explain::durable(job) {
            writes if writes.is_empty() => "nothing is written".to_owned(),
            writes => writes.join("; "),
        },
        DataSync::Dsync => "data files and journals opened O_DSYNC".to_owned(),
        DataSync::Fdatasync => "fdatasync after every redo write, and of the data files at every checkpoint".to_owned(),
    }
}

fn page_cache(job: &Job) -> &'static str {
    match (explain::bypasses_page_cache(job), job.data.dontcache) {
        (true, _) => "bypassed (O_DIRECT)",
        (false, true) => "used, drops blocks after use (RWF_DONTCACHE)",
        (false, false) => "used",
    }
}

/// How the database writers issue I/O.
fn engine(job: &Job) -> &'static str {
    let writer = job.classes.iter().find_map(|c| match &c.kind {
        ClassKind::DatabaseWriter { engine, .. } => Some(engine.method),
        _ => None,
    });
    match writer {
        Some(Method::Null) => "null",
        Some(Method::Sync) | None => "pread/pwrite",
        Some(Method::Vectored) => "preadv2/pwritev2",
        Some(Method::Threads) => "threads",
        Some(Method::Libaio) => "io_submit",
        Some(Method::Uring) => "io_uring",
    }
}

/// A class's waits, each with its share of the time of all its workers.
fn waits(class: &ClassOutcome, window: Duration, facts: &mut BTreeMap<String, String>) {
    let time = window.as_nanos() as f64 * class.workers as f64;
    for (event, t) in class.waits.iter() {
        let (mean, share) = (t.ns / t.count.max(1), 100.0 * t.ns as f64 / time);
        let text = format!("{} waits of {mean} ns, {} ns in total, {share:.2} % of the time", t.count, t.ns);
        facts.insert(format!("wait.{}.{}", class.name, event.slug()), text);
    }
}

/// Whether waits, CPU time and run queue explain the time of the closely examined transactions.
fn identity(audit: &Audit) -> Option<String> {
    let explained = audit.explained()?;
    let percent = |ns: u64| 100.0 * ns as f64 / audit.time as f64;
    let verdict = if (explained - 1.0).abs() <= 0.01 { "holds to 1 %" } else { "does not hold to 1 %" };
    Some(format!(
        "waits {:.2} % + CPU {:.2} % + run queue {:.2} % = {:.2} % of the time of {} transactions: {verdict}",
        percent(audit.waits),
        percent(audit.cpu),
        percent(audit.run_queue),
        100.0 * explained,
        audit.count
    ))
}

fn latency(h: &Histogram) -> String {
    let ns = |v: Option<u64>| v.unwrap_or(0);
    format!(
        "{} transactions of {:.0} ns, p50 {} ns, p99 {} ns, p99.9 {} ns, max {} ns",
        h.count(),
        h.mean().unwrap_or(0.0),
        ns(h.quantile(0.5)),
        ns(h.quantile(0.99)),
        ns(h.quantile(0.999)),
        ns(h.max())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dbsim;
    use bigiron_workload::testing;

    #[test]
    fn the_identity_is_judged_at_one_per_cent() {
        let audit = |run_queue| Audit { count: 3, time: 10_000, waits: 6_000, cpu: 3_000, run_queue };
        assert_eq!(
            identity(&audit(910)).unwrap(),
            "waits 60.00 % + CPU 30.00 % + run queue 9.10 % = 99.10 % of the time of 3 transactions: holds to 1 %"
        );
        assert!(identity(&audit(890)).unwrap().ends_with("does not hold to 1 %"));
        assert!(identity(&audit(1_110)).unwrap().ends_with("does not hold to 1 %"));
        assert_eq!(identity(&Audit::default()), None);
    }

    #[test]
    fn requests_are_described_by_their_own_settings() {
        let job = |settings: &[(&str, &str)]| {
            Job::parse(&testing::options(&Dbsim, settings.iter().copied()).unwrap()).unwrap()
        };
        let streaming = job(&[("job", "read-during-stream")]);
        assert_eq!(durability(&streaming), "writer: never");
        assert!(!explain::bypasses_page_cache(&streaming));
        let transactions = job(&[]);
        assert_eq!(durability(&transactions), "data files and journals opened O_DSYNC");
        assert!(explain::bypasses_page_cache(&transactions));
    }
}
