//! The metrics of a run, and whether it conforms.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_web::driver::DriveResult;

use crate::calls::{KINDS, business};

/// The primary metric.
pub const OPERATIONS: &str = "operations";
const CPU: [(&str, &str); 4] = [
    ("driver-cpu", "CPU time of the driver's threads per business operation, user and system"),
    ("tomcat-cpu", "CPU time of Tomcat's JVM per business operation, user and system"),
    ("database-cpu", "CPU time of all processes of the database per business operation, user and system"),
    ("cpu-per-operation", "CPU time of driver, Tomcat, database and kernel threads per business operation"),
];
/// Requests that may wait for a connection when the window closes, as a part of those that were answered in it.
const MOST_WAITING: f64 = 0.02;

/// A measured window.
pub struct Point {
    /// Dealers' operations per second that were injected, if there was a rate.
    pub rate: Option<f64>,
    pub driven: DriveResult,
    /// CPU time in the window, in nanoseconds: Tomcat's, the database's, the kernel's threads.
    pub cpu: [u64; 3],
}

fn p90_name(kind: usize) -> String {
    format!("{}-p90", KINDS[kind].metric)
}

/// The metrics; the first one is primary.
pub fn of() -> Vec<MetricDef> {
    let def = |name: String, unit, better, kind, summary: String| MetricDef {
        primary: name == OPERATIONS,
        name,
        unit,
        better,
        kind,
        summary,
    };
    let summary = "Business operations per second: dealers' operations and complete work orders";
    let unit = Unit::OperationsPerSecond;
    let mut metrics = vec![def(OPERATIONS.to_owned(), unit, Better::Higher, Kind::Throughput, summary.to_owned())];
    // The margin is that of high percentiles.
    metrics.extend(KINDS.iter().enumerate().map(|(n, kind)| {
        let summary = format!("90th percentile of the response time of `{}`", kind.servlet);
        def(p90_name(n), Unit::Ns, Better::Lower, Kind::P99, summary)
    }));
    metrics
        .extend(CPU.iter().map(|(name, summary)| {
            def((*name).to_owned(), Unit::Ns, Better::Lower, Kind::Cost, (*summary).to_owned())
        }));
    metrics
}

impl Point {
    /// Business operations.
    pub fn operations(&self) -> u64 {
        business(&self.driven.tally.calls)
    }

    fn p90(&self, kind: usize) -> Option<u64> {
        self.driven.tally.calls.get(kind)?.latency.quantile(0.9)
    }

    /// Requests answered per second.
    pub fn requests_per_second(&self) -> f64 {
        self.driven.tally.requests as f64 * 1e9 / self.driven.window_ns as f64
    }

    /// Why the run does not conform; `None` if it does.
    pub fn fault(&self) -> Option<String> {
        for (n, kind) in KINDS.iter().enumerate() {
            if let Some(ns) = self.p90(n)
                && Duration::from_nanos(ns) > kind.limit
            {
                let (seconds, limit) = (ns as f64 / 1e9, kind.limit.as_secs());
                return Some(format!("the 90th percentile of `{}` is {seconds:.2} s, above {limit} s", kind.servlet));
            }
        }
        let (waiting, answered) = (self.driven.backlog, self.driven.tally.requests);
        let is_behind = self.rate.is_some() && waiting as f64 > MOST_WAITING * answered as f64;
        is_behind.then(|| format!("{waiting} requests waited at the end of a window in which {answered} were answered"))
    }

    /// CPU time of all: driver, Tomcat, database, the kernel's threads.
    fn all_cpu(&self) -> [u64; 4] {
        let [tomcat, database, kernel] = self.cpu;
        [self.driven.cpu.total.as_nanos() as u64, tomcat, database, kernel]
    }

    /// The tiers' parts of all CPU time, in words.
    pub fn shares(&self) -> String {
        let all = self.all_cpu();
        let sum = all.iter().sum::<u64>().max(1) as f64;
        let [driver, tomcat, database, kernel] = all.map(|ns| 100.0 * ns as f64 / sum);
        format!("driver {driver:.1} %, Tomcat {tomcat:.1} %, database {database:.1} %, kernel threads {kernel:.1} %")
    }

    /// The values of the metrics that [`of`] declares.
    ///
    /// # Errors
    /// Something was not measured.
    pub fn values(&self) -> Result<BTreeMap<String, f64>> {
        let operations = self.operations() as f64;
        let mut values = BTreeMap::new();
        values.insert(OPERATIONS.to_owned(), operations * 1e9 / self.driven.window_ns as f64);
        for (n, kind) in KINDS.iter().enumerate() {
            let p90 = self.p90(n);
            let p90 =
                p90.with_context(|| format!("No `{}` ended in the window; increase `app.length`", kind.metric))?;
            values.insert(p90_name(n), p90 as f64);
        }
        let [driver, tomcat, database, kernel] = self.all_cpu();
        for ((name, _), ns) in CPU.iter().zip([driver, tomcat, database, driver + tomcat + database + kernel]) {
            values.insert((*name).to_owned(), ns as f64 / operations.max(1.0));
        }
        Ok(values)
    }
}
