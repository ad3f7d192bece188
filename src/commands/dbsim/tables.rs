//! What a run found, as rows: the child builds them, the parent prints them.
//!
//! Invariant: times are nanoseconds and belong to the window.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use bigiron_dbsim::job::Job;
use bigiron_dbsim::outcome::JobOutcome;
use bigiron_dbsim::result;
use bigiron_sys::load::Histogram;

/// The rows of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Tables {
    pub elapsed_ns: u64,
    pub transactions: u64,
    /// CPU time, user and system, of all processes.
    pub cpu_ns: u64,
    pub processes: usize,
    pub metrics: BTreeMap<String, f64>,
    pub latencies: Vec<Latency>,
    /// The commit path, in the order of its stages.
    pub stages: Vec<Stage>,
    pub waits: Vec<Wait>,
    /// The transactions that were examined closely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_look: Option<CloseLook>,
    pub facts: BTreeMap<String, String>,
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Latency {
    pub of: String,
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// One stage of a commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Stage {
    pub name: String,
    pub mean_ns: f64,
}

/// What a class waited for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Wait {
    pub class: String,
    pub event: String,
    pub count: u64,
    pub total_ns: u64,
    /// Per cent of the window, over all processes of the class.
    pub share_percent: f64,
}

/// Time of the closely examined transactions: the sum of waits, CPU and run queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CloseLook {
    pub transactions: u64,
    pub time_ns: u64,
    pub waits_ns: u64,
    pub cpu_ns: u64,
    pub run_queue_ns: u64,
}

impl Tables {
    /// The rows of a run of `job`.
    ///
    /// # Errors
    /// If a metric that the job declares could not be measured.
    pub(super) fn new(job: &Job, outcome: &JobOutcome) -> anyhow::Result<Self> {
        let found = result(job, outcome)?;
        let mut latencies: Vec<Latency> =
            outcome.kinds.iter().filter_map(|k| Latency::new(format!("transaction {}", k.name), &k.latency)).collect();
        latencies.extend(
            outcome.phases.iter().filter_map(|p| Latency::new(format!("transactions in phase {}", p.name), &p.latency)),
        );
        latencies.extend(Latency::new("commit".to_owned(), &outcome.commits));
        latencies.extend(Latency::new("block read".to_owned(), &outcome.reads));
        for class in &outcome.classes {
            let Some(requests) = &class.requests else { continue };
            let named = requests.latency.iter().zip(["reads", "writes", "syncs"]);
            latencies.extend(named.filter_map(|(h, what)| Latency::new(format!("{} {what}", class.name), h)));
        }
        let stage = |(metric, mean): &(String, f64)| Stage {
            name: metric.trim_start_matches("stage-").trim_end_matches("-mean").to_owned(),
            mean_ns: *mean,
        };
        let window = outcome.elapsed.as_nanos() as f64;
        let waits = outcome.classes.iter().flat_map(|class| {
            class.waits.iter().map(move |(event, tally)| Wait {
                class: class.name.clone(),
                event: event.name().to_owned(),
                count: tally.count,
                total_ns: tally.ns,
                share_percent: 100.0 * tally.ns as f64 / (window * class.workers.max(1) as f64),
            })
        });
        let audit = outcome.audit();
        Ok(Tables {
            elapsed_ns: outcome.elapsed.as_nanos() as u64,
            transactions: outcome.transactions,
            cpu_ns: outcome.cpu.as_nanos() as u64,
            processes: outcome.processes,
            metrics: found.values,
            latencies,
            stages: outcome.stages.iter().map(stage).collect(),
            waits: waits.collect(),
            close_look: (audit.count > 0).then_some(CloseLook {
                transactions: audit.count,
                time_ns: audit.time,
                waits_ns: audit.waits,
                cpu_ns: audit.cpu,
                run_queue_ns: audit.run_queue,
            }),
            facts: found.facts,
        })
    }
}

impl Latency {
    /// `None` if nothing was counted.
    fn new(of: String, h: &Histogram) -> Option<Self> {
        Some(Latency {
            of,
            count: h.count(),
            mean_ns: h.mean()?,
            p50_ns: h.quantile(0.5)?,
            p99_ns: h.quantile(0.99)?,
            p999_ns: h.quantile(0.999)?,
            max_ns: h.max()?,
        })
    }
}
