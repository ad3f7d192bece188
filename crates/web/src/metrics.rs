//! The metrics of a run.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use bigiron_model::metric::{Better, Kind, MetricDef, Unit};

use crate::driver::DriveResult;
use crate::settings::{Job, KeepAlive, Settings, WebServer};

/// The primary metric.
pub const REQUESTS: &str = "requests";
/// The primary metric of connections with limited lines.
pub const CONFORMING: &str = "conforming-connections";
/// The primary metric of new connections with TLS.
const HANDSHAKES: &str = "handshakes";
/// The primary metric of large documents.
const THROUGHPUT: &str = "throughput";
const FIRST_BYTE: &str = "first-byte-mean";
const CONNECT: &str = "connect-mean";
const CPU: &str = "cpu-per-request";
const DRIVER_CPU: &str = "driver-cpu";
const SERVER_CPU: &str = "server-cpu";
/// Memory for each idle connection.
const IDLE: [(&str, &str); 2] = [
    ("server-memory", "Memory of the server's processes for each idle connection"),
    ("kernel-memory", "Memory of the kernel itself for each idle connection, both ends"),
];
const PAGE: u64 = 4096;
const PERCENTILES: [(&str, f64, Kind, &str); 3] = [
    ("latency-p50", 0.5, Kind::P50, "Median latency of a request"),
    ("latency-p99", 0.99, Kind::P99, "99th percentile of the latency of a request"),
    ("latency-p999", 0.999, Kind::P999, "99.9th percentile of the latency of a request"),
];

/// CPU time that others used in the window, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherCpu {
    /// `None` for a server that cannot be seen.
    pub server: Option<u64>,
    /// The kernel's own threads.
    pub kernel: u64,
}

/// The name of the primary metric.
pub fn primary(settings: &Settings) -> &'static str {
    match settings.job {
        _ if settings.line_rate.is_some() => CONFORMING,
        Job::Handshakes => HANDSHAKES,
        Job::Bulk => THROUGHPUT,
        _ => REQUESTS,
    }
}

/// Each request of new connections with TLS is a handshake.
fn requests(settings: &Settings) -> (&'static str, &'static str) {
    match settings.job {
        Job::Handshakes => (HANDSHAKES, "Connections made and requests answered on them per second"),
        _ => (REQUESTS, "Requests answered per second"),
    }
}

/// The metrics of a run with `settings`; the first one is primary.
pub fn of(settings: &Settings) -> Vec<MetricDef> {
    let def = |name: &str, unit, better, kind, summary: &str| MetricDef {
        name: name.to_owned(),
        unit,
        better,
        kind,
        primary: name == primary(settings),
        summary: summary.to_owned(),
    };
    let time = |name, kind, summary| def(name, Unit::Ns, Better::Lower, kind, summary);
    let mut metrics = Vec::new();
    if settings.line_rate.is_some() {
        let summary = "Connections that got at least 80 % of the bits per second of their lines";
        metrics.push(def(CONFORMING, Unit::Count, Better::Higher, Kind::Throughput, summary));
    }
    let (name, summary) = requests(settings);
    metrics.push(def(name, Unit::OperationsPerSecond, Better::Higher, Kind::Throughput, summary));
    let summary = "Bytes of documents received per second";
    metrics.push(def(THROUGHPUT, Unit::BytesPerSecond, Better::Higher, Kind::Throughput, summary));
    if settings.job == Job::C10k {
        metrics.extend(IDLE.iter().map(|(name, summary)| def(name, Unit::Bytes, Better::Lower, Kind::Amount, summary)));
    }
    metrics.sort_by_key(|metric| !metric.primary);
    metrics.extend(PERCENTILES.iter().map(|(name, _, kind, summary)| time(name, *kind, summary)));
    metrics.push(time(FIRST_BYTE, Kind::Cost, "Mean time from a request to the first byte of its response"));
    if settings.keep_alive != KeepAlive::Yes {
        metrics.push(time(CONNECT, Kind::Cost, "Mean time until a new connection accepts its first request"));
    }
    metrics.push(time(DRIVER_CPU, Kind::Cost, "CPU time of the driver's threads per request, user and system"));
    if !matches!(settings.server, WebServer::Url(_)) {
        metrics.push(time(
            SERVER_CPU,
            Kind::Cost,
            "CPU time of all processes of the server per request, user and system",
        ));
        metrics.push(time(CPU, Kind::Cost, "CPU time of driver, server and kernel threads per request"));
    }
    metrics
}

/// The values of the metrics that [`of`] declares.
///
/// # Errors
/// Something was not measured.
pub fn values(
    settings: &Settings,
    driven: &DriveResult,
    other: OtherCpu,
    idle: [u64; 2],
) -> Result<BTreeMap<String, f64>> {
    let tally = &driven.tally;
    let mut values = BTreeMap::new();
    let mut put = |name: &str, value: f64| values.insert(name.to_owned(), value);
    let seconds = driven.window_ns as f64 / 1e9;
    let requests = tally.requests as f64;
    put(self::requests(settings).0, requests / seconds);
    if let Some(rate) = settings.line_rate {
        let (all, least) = (settings.driven(), 0.8 * rate);
        ensure!(
            driven.conforming > 0,
            "None of {all} connections got {least} bits per second; the server takes fewer: lower `web.connections`"
        );
        put(CONFORMING, driven.conforming as f64);
    }
    if settings.job == Job::C10k {
        let connections = f64::from(settings.connections - settings.driven()).max(1.0);
        for ((name, _), bytes) in IDLE.iter().zip(idle) {
            // Memory grows by pages: less than one is not seen.
            put(name, bytes.max(PAGE) as f64 / connections);
        }
    }
    put(THROUGHPUT, tally.bytes as f64 / seconds);
    for (name, q, ..) in PERCENTILES {
        put(name, tally.latency.quantile(q).context("No latency was measured")? as f64);
    }
    put(FIRST_BYTE, tally.first_byte.mean().context("No response was measured")?);
    if settings.keep_alive != KeepAlive::Yes {
        let mean = tally.connect.mean().context("No connection was made in the window; `web.length` is too small")?;
        put(CONNECT, mean);
    }
    let driver = driven.cpu.total.as_nanos() as f64;
    put(DRIVER_CPU, driver / requests);
    if !matches!(settings.server, WebServer::Url(_)) {
        let server = other.server.context("The CPU time of the server's processes cannot be read below /proc")? as f64;
        ensure!(server > 0.0, "The window is too short to see any CPU time of the server; raise `web.length`");
        put(SERVER_CPU, server / requests);
        put(CPU, (driver + server + other.kernel as f64) / requests);
    }
    Ok(values)
}
