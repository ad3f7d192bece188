//! The metrics of loadfile replays, the same for all servers.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::{Replayed, RequestKind, Settings};
use bigiron_model::metric::{Better, Kind as MetricKind, MetricDef, Unit};
use bigiron_model::workload::Window;
use bigiron_workload::WorkloadResult;
use bigiron_workload::units::print_duration;

/// The primary metric's name.
pub const THROUGHPUT: &str = "throughput";
const REQUESTS: &str = "requests";
/// Kinds whose latencies are metrics, if the loadfile has them.
const MEANS: [RequestKind; 10] = [
    RequestKind::Create,
    RequestKind::Close,
    RequestKind::Read,
    RequestKind::Write,
    RequestKind::Flush,
    RequestKind::Unlink,
    RequestKind::Rename,
    RequestKind::QueryPath,
    RequestKind::QueryFile,
    RequestKind::Find,
];
const P99S: [RequestKind; 3] = [RequestKind::Create, RequestKind::Read, RequestKind::Write];

fn present<'a>(settings: &'a Settings, kinds: &'a [RequestKind]) -> impl Iterator<Item = RequestKind> + 'a {
    kinds.iter().copied().filter(|kind| settings.file.count(*kind) > 0)
}

/// The metrics of a replay.
pub fn of(settings: &Settings) -> Vec<MetricDef> {
    let def = |name: String, unit, better, kind, summary: String| MetricDef {
        primary: name == THROUGHPUT,
        name,
        unit,
        better,
        kind,
        summary,
    };
    let mut metrics = vec![
        def(
            THROUGHPUT.to_owned(),
            Unit::BytesPerSecond,
            Better::Higher,
            MetricKind::Throughput,
            "Bytes that all clients read and wrote, per second".to_owned(),
        ),
        def(
            REQUESTS.to_owned(),
            Unit::OperationsPerSecond,
            Better::Higher,
            MetricKind::Throughput,
            "Requests of all kinds that were answered, per second".to_owned(),
        ),
    ];
    for kind in present(settings, &MEANS) {
        let summary = format!("Mean time of a {}", kind.word());
        metrics.push(def(mean(kind), Unit::Ns, Better::Lower, MetricKind::Cost, summary));
    }
    for kind in present(settings, &P99S) {
        let summary = format!("99th percentile of the time of a {}", kind.word());
        metrics.push(def(p99(kind), Unit::Ns, Better::Lower, MetricKind::P99, summary));
    }
    metrics
}

/// The median and the 99th percentile of every kind that has a mean, as far as [`of`] does not declare them.
pub fn percentiles(settings: &Settings) -> Vec<MetricDef> {
    let time =
        |name, kind, summary| MetricDef { name, unit: Unit::Ns, better: Better::Lower, kind, primary: false, summary };
    let medians = present(settings, &MEANS)
        .map(|kind| time(p50(kind), MetricKind::P50, format!("Median of the time of a {}", kind.word())));
    let tails = present(settings, &MEANS).filter(|kind| !P99S.contains(kind));
    let tails =
        tails.map(|kind| time(p99(kind), MetricKind::P99, format!("99th percentile of the time of a {}", kind.word())));
    medians.chain(tails).collect()
}

/// The values of [`percentiles`].
pub fn percentile_values<'a>(
    settings: &'a Settings,
    replayed: &'a Replayed,
) -> impl Iterator<Item = (String, f64)> + 'a {
    present(settings, &MEANS).flat_map(|kind| {
        let latency = &replayed.latencies[kind as usize];
        let at = |q| latency.quantile(q).unwrap_or(1).max(1) as f64;
        let tail = (!P99S.contains(&kind)).then(|| (p99(kind), at(0.99)));
        std::iter::once((p50(kind), at(0.5))).chain(tail)
    })
}

fn p50(kind: RequestKind) -> String {
    format!("{}-p50", kind.metric())
}

fn mean(kind: RequestKind) -> String {
    format!("{}-mean", kind.metric())
}

fn p99(kind: RequestKind) -> String {
    format!("{}-p99", kind.metric())
}

/// Values and facts of a replay.
///
/// # Errors
/// If a kind of request was never answered.
pub fn outcome(settings: &Settings, replayed: &Replayed) -> Result<WorkloadResult> {
    let seconds = replayed.stage.ns as f64 / 1e9;
    let mut values = BTreeMap::from([
        (THROUGHPUT.to_owned(), replayed.bytes as f64 / seconds),
        (REQUESTS.to_owned(), replayed.requests as f64 / seconds),
    ]);
    let latency = |kind: RequestKind| &replayed.latencies[kind as usize];
    for kind in present(settings, &MEANS) {
        let missing = || format!("No {} was sent in the measured time; increase the length", kind.word());
        values.insert(mean(kind), latency(kind).mean().with_context(missing)?);
    }
    for kind in present(settings, &P99S) {
        values.insert(p99(kind), latency(kind).quantile(0.99).unwrap_or(1).max(1) as f64);
    }
    let (read, written) = settings.file.bytes();
    let mut facts = BTreeMap::from([
        ("loadfile".to_owned(), settings.name.clone()),
        ("clients".to_owned(), settings.clients.to_string()),
        ("work-per-request".to_owned(), print_duration(settings.work)),
        ("warmup".to_owned(), settings.warm_up.to_string()),
        ("length".to_owned(), settings.length.to_string()),
        ("requests-per-pass".to_owned(), settings.file.requests.len().to_string()),
        ("read-per-pass-bytes".to_owned(), read.to_string()),
        ("written-per-pass-bytes".to_owned(), written.to_string()),
        ("requests-answered".to_owned(), replayed.requests.to_string()),
    ]);
    for (kind, word, name) in RequestKind::ALL {
        let h = latency(kind);
        if let (Some(mean), Some(max)) = (h.mean(), h.max()) {
            let text = format!("{} {word}, mean {:.3} ms, longest {:.3} ms", h.count(), mean / 1e6, max as f64 / 1e6);
            facts.insert(format!("request.{name}"), text);
        }
    }
    let window = Window::of(THROUGHPUT, replayed.requests, replayed.stage.ns);
    Ok(WorkloadResult { values, facts, windows: vec![window], ..WorkloadResult::default() })
}
