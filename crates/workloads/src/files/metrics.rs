//! The metrics of `files`: those of every replay, and what server and machine used.

use std::fs;

use anyhow::{Context as _, Result};

use super::options::Settings;
use crate::loadfile::Replayed;
use crate::loadfile::metrics;
use crate::loadfile::replay::{Service, WindowEnd};
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::Window;
use bigiron_service::kernel_cpu_ns;
use bigiron_workload::WorkloadResult;

const CPU: &str = "cpu-per-mb";
const SERVER_CPU: &str = "server-cpu-per-mb";
const SWITCHES: &str = "switches-per-request";
/// Bytes of a MB.
const MB: f64 = 1e6;

/// What has been used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// CPU time of the server's processes.
    processes_ns: u64,
    /// CPU time of the kernel's own threads. It can shrink: threads end.
    kernel_ns: u64,
    /// Context switches of the whole machine.
    switches: u64,
}

impl Used {
    fn now(of_processes: &dyn Fn() -> u64) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("Cannot read /proc/stat")?;
        let switches = stat.lines().find_map(|line| line.strip_prefix("ctxt ")?.trim().parse().ok());
        Ok(Self {
            processes_ns: of_processes(),
            kernel_ns: kernel_cpu_ns(),
            switches: switches.context("/proc/stat has no count of context switches")?,
        })
    }
}

/// A service, and what is used in its window.
pub struct Metered<'a, S> {
    pub service: S,
    /// CPU time of the server's processes so far.
    pub processes: &'a (dyn Fn() -> u64 + Sync),
    pub seen: &'a Seen,
}

/// What was used when the window opened and closed.
#[derive(Default)]
pub struct Seen(std::sync::Mutex<[Option<Used>; 2]>);

impl<S: Service> Service for Metered<'_, S> {
    type Server = S::Server;

    fn prepare_head(&self) -> Result<()> {
        self.service.prepare_head()
    }

    fn open(&self, client: usize) -> Result<S::Server> {
        self.service.open(client)
    }

    fn at_window(&self, end: WindowEnd) {
        let used = Used::now(self.processes).ok();
        self.seen.0.lock().expect("no reader panics")[end as usize] = used;
    }
}

impl Seen {
    fn in_window(&self) -> Result<Used> {
        let [before, after] = *self.0.lock().expect("no reader panics");
        let both = before.zip(after).context("What the server uses cannot be read below /proc")?;
        let of = |field: fn(&Used) -> u64| field(&both.1).saturating_sub(field(&both.0));
        Ok(Used {
            processes_ns: of(|used| used.processes_ns),
            kernel_ns: of(|used| used.kernel_ns),
            switches: of(|used| used.switches),
        })
    }
}

/// The name of a point's throughput.
fn of_point(clients: usize) -> String {
    format!("{}-{clients}", metrics::THROUGHPUT)
}

/// The metrics of a run with `settings`.
pub fn of(settings: &Settings) -> Vec<MetricDef> {
    let def = |name: String, unit, better, kind, summary: String| MetricDef {
        name,
        unit,
        better,
        kind,
        primary: false,
        summary,
    };
    let mut all = metrics::of(settings.last());
    if settings.points.len() > 1 {
        all.extend(settings.points.iter().map(|point| {
            let summary = format!("Bytes that {} clients read and wrote together, per second", point.clients);
            def(of_point(point.clients), Unit::BytesPerSecond, Better::Higher, Kind::Throughput, summary)
        }));
    }
    all.extend(metrics::percentiles(settings.last()));
    let cost =
        |name: &str, unit, summary: &str| def(name.to_owned(), unit, Better::Lower, Kind::Cost, summary.to_owned());
    all.extend([
        cost(
            CPU,
            Unit::Ns,
            "CPU time of clients, server and kernel threads for each MB (1,000,000 bytes) read or written",
        ),
        cost(SERVER_CPU, Unit::Ns, "CPU time of the server's processes and the kernel's threads for each MB"),
        cost(SWITCHES, Unit::Count, "Context switches of the whole machine for each request of the loadfile"),
    ]);
    all
}

/// A measured point.
pub struct Point {
    pub replayed: Replayed,
    pub used: Used,
}

impl Point {
    pub fn new(replayed: Replayed, seen: &Seen) -> Result<Self> {
        Ok(Self { replayed, used: seen.in_window()? })
    }
}

/// Values, facts and windows of a run.
///
/// # Errors
/// As [`metrics::outcome`].
pub fn outcome(settings: &Settings, points: &[Point]) -> Result<WorkloadResult> {
    let (last, Point { replayed, used }) = (settings.last(), points.last().context("Nothing was measured")?);
    let mut outcome = metrics::outcome(last, replayed)?;
    outcome.values.extend(metrics::percentile_values(last, replayed));
    let mb = replayed.bytes as f64 / MB;
    let server_ns = used.processes_ns + used.kernel_ns;
    outcome.values.extend([
        (CPU.to_owned(), (replayed.stage.cpu_ns + server_ns) as f64 / mb),
        (SERVER_CPU.to_owned(), server_ns as f64 / mb),
        (SWITCHES.to_owned(), used.switches as f64 / replayed.requests as f64),
    ]);
    if settings.points.len() > 1 {
        let each = || settings.points.iter().zip(points.iter().map(|point| &point.replayed));
        let rate = |r: &Replayed| r.bytes as f64 / (r.stage.ns as f64 / 1e9);
        outcome.values.extend(each().map(|(point, r)| (of_point(point.clients), rate(r))));
        let of_last = std::mem::take(&mut outcome.windows);
        outcome.windows = each()
            .map(|(point, r)| Window { metrics: vec![of_point(point.clients)], operations: r.requests, ns: r.stage.ns })
            .collect();
        let names = of_last.into_iter().flat_map(|window| window.metrics);
        outcome.windows.last_mut().context("Nothing was measured")?.metrics.extend(names);
    }
    Ok(outcome)
}
