//! The metrics of each run.

use bigiron_model::metric::{Better, Kind, MetricDef, Unit};

use crate::settings::{RunKind, Settings};

/// The primary metric of the runs `power` and `throughput`.
pub const RATE: &str = "queries-per-hour";
/// The primary metric of the run `scan`.
pub const SCAN: &str = "scan";
/// The primary metric of the run `spill`.
pub const TOTAL: &str = "total";
/// CPU time per query.
pub const QUERY_CPU: &str = "query-cpu";
/// CPU time per MB, in the run `scan`.
pub const SCAN_CPU: &str = "cpu-per-megabyte";
/// The refresh functions.
pub const REFRESHES: [&str; 2] = ["rf1", "rf2"];
/// The statements of the run `spill`.
pub const SPILLS: [&str; 2] = ["sort", "join"];
pub const TEMPORARY: &str = "temporary-bytes";

/// The metric of a query: `q01` to `q22`.
pub fn of_query(query: u8) -> String {
    format!("q{query:02}")
}

fn metric(name: &str, unit: Unit, better: Better, kind: Kind, summary: &str) -> MetricDef {
    MetricDef { name: name.to_owned(), unit, better, kind, primary: false, summary: summary.to_owned() }
}

fn time(name: &str, summary: &str) -> MetricDef {
    metric(name, Unit::Ns, Better::Lower, Kind::Cost, summary)
}

fn primary(def: MetricDef) -> MetricDef {
    MetricDef { primary: true, ..def }
}

/// The metrics of a run with `settings`; the first one is primary.
pub fn of(settings: &Settings) -> Vec<MetricDef> {
    match settings.run {
        RunKind::Power | RunKind::Throughput => {
            let several = settings.run == RunKind::Throughput;
            let rate = match several {
                false => "3600 s divided by the geometric mean of the times of queries and refresh functions",
                true => "Queries of all streams, divided by the time until the last client ends",
            };
            let mut metrics = vec![primary(metric(RATE, Unit::QueriesPerHour, Better::Higher, Kind::Throughput, rate))];
            metrics.extend(settings.queries.iter().map(|query| {
                let summary = match several {
                    false => format!("Time of query {query}"),
                    true => format!("Mean time of query {query} over the streams"),
                };
                time(&of_query(*query), &summary)
            }));
            if settings.refresh {
                let summaries = ["Time to insert orders", "Time to delete these orders"];
                metrics.extend(REFRESHES.iter().zip(summaries).map(|(name, summary)| time(name, summary)));
            }
            metrics.push(time(QUERY_CPU, "Mean CPU time per query of the clients and the engine"));
            metrics
        }
        RunKind::Scan => vec![
            primary(metric(
                SCAN,
                Unit::BytesPerSecond,
                Better::Higher,
                Kind::Throughput,
                "Size of the largest table, divided by the time to read it once",
            )),
            time(SCAN_CPU, "CPU time of the client and the engine per MB read"),
        ],
        RunKind::Spill => vec![
            primary(time(TOTAL, "Time of the sort and the join")),
            time(SPILLS[0], "Time to sort the largest table with little memory"),
            time(SPILLS[1], "Time to join the two largest tables with little memory"),
            time(QUERY_CPU, "Mean CPU time per query of the client and the engine"),
            metric(TEMPORARY, Unit::Bytes, Better::Lower, Kind::Amount, "Bytes written to temporary files"),
        ],
    }
}
