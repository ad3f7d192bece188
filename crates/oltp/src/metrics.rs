//! The metrics of a job: declared from the job, measured by its run.
//!
//! Invariant: every metric that a job declares is measured by its run, finite and above 0, or the run is an error that gives the
//! reason.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::config::Engine;
use super::counters::{KERNEL_CPU, SERVER_CPU};
use super::driver::DriveResult;
use super::input::TransactionKind;
use super::job::Job;
use super::run_monitor::Observations;
use bigiron_model::metric::{Better, Kind as Sort, MetricDef, Unit};

/// The primary metric of a single run, and of a ramp of users.
pub const NEW_ORDERS: &str = "new-orders";
pub const USERS_HELD: &str = "users-held";

/// Percentiles of each kind's response time.
const PERCENTILES: [(&str, f64, Sort, &str); 3] = [
    ("p50", 0.5, Sort::P50, "median"),
    ("p90", 0.9, Sort::P99, "90th percentile"),
    ("p99", 0.99, Sort::P99, "99th percentile"),
];

fn def(name: &str, unit: Unit, better: Better, kind: Sort, summary: &str) -> MetricDef {
    MetricDef { name: name.to_owned(), unit, better, kind, primary: false, summary: summary.to_owned() }
}

/// The metrics that a run of `job` delivers.
pub fn of(job: &Job) -> Vec<MetricDef> {
    let mut defs = Vec::new();
    let orders = job.mix[TransactionKind::NewOrder.index()] > 0;
    if job.users.is_empty() {
        if orders {
            defs.push(def(
                NEW_ORDERS,
                Unit::TransactionsPerMinute,
                Better::Higher,
                Sort::Throughput,
                "New-orders completed per minute of the window, including rolled-back ones",
            ));
        }
        defs.push(def(
            "throughput",
            Unit::TransactionsPerSecond,
            Better::Higher,
            Sort::Throughput,
            "Transactions of all kinds completed per second of the window",
        ));
        for kind in kinds(job) {
            for (name, _, sort, words) in PERCENTILES {
                let summary = format!(
                    "Time of a {} from its intended start to its response, including the wait for a connection and retries, {words}",
                    kind.name()
                );
                defs.push(def(&format!("{}-{name}", kind.name()), Unit::Ns, Better::Lower, sort, &summary));
            }
        }
        defs.extend(cpu_metrics(job));
    } else {
        defs.push(def(
            USERS_HELD,
            Unit::Count,
            Better::Higher,
            Sort::Throughput,
            "Users of the largest step of the ramp whose 90th percentiles all stay within their limits",
        ));
    }
    // Without new-orders the throughput of all transactions carries the verdict.
    defs[0].primary = true;
    defs
}

/// The kinds of transactions in the mix.
pub fn kinds(job: &Job) -> impl Iterator<Item = TransactionKind> {
    TransactionKind::ALL.into_iter().filter(|kind| job.mix[kind.index()] > 0)
}

fn cpu_metrics(job: &Job) -> Vec<MetricDef> {
    let cpu = |name, summary| def(name, Unit::Ns, Better::Lower, Sort::Cost, summary);
    match job.engine {
        Engine::Postgres { .. } | Engine::MariaDb { .. } => vec![
            cpu("cpu-per-transaction", "CPU time of driver, server and kernel threads per transaction"),
            cpu("driver-cpu", "CPU time of the driver's threads per transaction, user and system"),
            cpu("server-cpu", "CPU time of all processes of the server per transaction, user and system"),
        ],
        // For a remote server only the driver is visible.
        Engine::Url(_) => vec![cpu("driver-cpu", "CPU time of the driver's threads per transaction, user and system")],
        // The engine works in the driver's threads.
        Engine::Sqlite { .. } => vec![cpu(
            "cpu-per-transaction",
            "CPU time of the threads that run driver and engine, and of kernel threads, per transaction",
        )],
    }
}

/// The values of the metrics that [`of`] declares for a single run.
///
/// # Errors
/// If something was not measured: no transaction of a kind ended in the window, or the server's processes are not visible.
pub fn values(job: &Job, driven: &DriveResult, seen: &Observations) -> Result<BTreeMap<String, f64>> {
    let transactions = driven.transactions();
    ensure!(transactions > 0 && driven.window_ns > 0, "No transaction ended in the window; `oltp.length` is too small");
    let mut values = BTreeMap::new();
    let mut put = |name: &str, value: f64| values.insert(name.to_owned(), value);
    if job.mix[TransactionKind::NewOrder.index()] > 0 {
        put(NEW_ORDERS, driven.new_orders_per_minute());
    }
    put("throughput", transactions as f64 * 1e9 / driven.window_ns as f64);
    for kind in kinds(job) {
        let latency = &driven.tally.latency[kind.index()];
        for (name, q, ..) in PERCENTILES {
            let Some(ns) = latency.quantile(q) else {
                anyhow::bail!(
                    "No {} ended in the window; `oltp.length` is too small for its share of the mix",
                    kind.name()
                );
            };
            put(&format!("{}-{name}", kind.name()), ns as f64);
        }
    }
    let per_transaction = |ns: f64| ns / transactions as f64;
    let driver = driven.cpu.total.as_nanos() as f64;
    let counted = |name: &str| seen.window.get(name).map(|ns| *ns as f64);
    match job.engine {
        Engine::Postgres { .. } | Engine::MariaDb { .. } => {
            let Some(server) = counted(SERVER_CPU) else {
                anyhow::bail!("The CPU time of the server's processes cannot be read below /proc");
            };
            let kernel = counted(KERNEL_CPU).unwrap_or(0.0);
            put("driver-cpu", per_transaction(driver));
            put("server-cpu", per_transaction(server));
            put("cpu-per-transaction", per_transaction(driver + server + kernel));
        }
        Engine::Url(_) => {
            put("driver-cpu", per_transaction(driver));
        }
        Engine::Sqlite { .. } => {
            put("cpu-per-transaction", per_transaction(driver + counted(KERNEL_CPU).unwrap_or(0.0)));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{TransactionTally, fixture};
    use bigiron_sys::cpu_clock::ThreadCpu;
    use std::time::Duration;

    fn driven(job: &Job) -> DriveResult {
        let mut tally = TransactionTally::default();
        for kind in kinds(job) {
            tally.window[kind.index()].committed = 99;
            tally.window[kind.index()].rolled_back = u64::from(kind == TransactionKind::NewOrder);
            (1..=100).for_each(|ms| tally.latency[kind.index()].record(ms * 1_000_000));
        }
        DriveResult {
            window_ns: 30_000_000_000,
            tally,
            cpu: ThreadCpu { total: Duration::from_millis(5), ..ThreadCpu::default() },
            threads: 1,
            backlog: 0,
            longest_queue: 0,
            lost: None,
            in_doubt: Vec::new(),
        }
    }

    fn seen() -> Observations {
        let window = [(SERVER_CPU, 40_000_000), (KERNEL_CPU, 5_000_000)].map(|(k, v)| (k.to_owned(), v));
        Observations { window: window.into(), ..Observations::default() }
    }

    #[test]
    fn what_is_declared_is_delivered_and_one_is_primary() {
        for settings in [
            &[][..],
            &[("engine", "sqlite")],
            &[("url", "postgresql://h/d")],
            &[("mix", "0/100/0/0/0")],
            &[("rate", "100"), ("mix", "90/4/2/2/2")],
        ] {
            let job = fixture::job(settings);
            let defs = of(&job);
            let values = values(&job, &driven(&job), &seen()).unwrap();
            assert_eq!(defs.iter().filter(|d| d.primary).count(), 1);
            assert!(defs[0].primary);
            let mut names: Vec<_> = defs.iter().map(|d| &d.name).collect();
            names.sort();
            assert!(names.into_iter().eq(values.keys()), "{settings:?}");
            assert!(values.values().all(|v| v.is_finite() && *v > 0.0), "{values:?}");
        }
    }

    #[test]
    fn figures_are_per_minute_per_second_and_per_transaction() {
        let job = fixture::job(&[]);
        let values = values(&job, &driven(&job), &seen()).unwrap();
        // 100 new-orders, one of them rolled back, in half a minute.
        assert_eq!(values[NEW_ORDERS], 200.0);
        // 99 of each kind and the one rolled back.
        let ended = 496.0;
        assert_eq!(values["throughput"], ended / 30.0);
        assert_eq!(values["cpu-per-transaction"], 50e6 / ended);
        assert!((values["payment-p90"] / 90e6 - 1.0).abs() < 0.002);
    }

    #[test]
    fn what_was_not_measured_is_an_error() {
        let job = fixture::job(&[]);
        assert!(values(&job, &driven(&job), &Observations::default()).unwrap_err().to_string().contains("/proc"));
        let mut short = driven(&job);
        short.tally.latency[TransactionKind::Delivery.index()] = bigiron_sys::load::Histogram::new();
        assert!(values(&job, &short, &seen()).unwrap_err().to_string().contains("No delivery ended"));
        short.tally = TransactionTally::default();
        assert!(values(&job, &short, &seen()).unwrap_err().to_string().contains("too small"));
    }

    #[test]
    fn a_ramp_of_users_has_one_figure() {
        let defs = of(&fixture::job(&[("job", "oast")]));
        assert_eq!((defs.len(), defs[0].name.as_str(), defs[0].primary), (1, USERS_HELD, true));
    }
}
