//! The work of request classes in the window.
//!
//! Invariant: latencies are those of requests that ended in the window.

use std::time::Duration;

use anyhow::{Context as _, Result};

use bigiron_sys::async_io;
use bigiron_sys::load::Histogram;

use super::super::instance::Instance;
use super::super::job::{ClassKind, Job};
use super::board::RequestAction;

/// The work of one request class.
#[derive(Clone, Debug)]
pub struct RequestsOutcome {
    /// Whether the class has a total.
    pub counted: bool,
    pub reads: u64,
    pub writes: u64,
    /// Of reads, writes and syncs: from submission until the completion is seen.
    pub latency: [Histogram; 3],
}

impl RequestsOutcome {
    /// The figures as a fact.
    pub fn text(&self, window: Duration) -> String {
        let mut parts = Vec::new();
        for (h, what) in self.latency.iter().zip(["reads", "writes", "syncs"]).filter(|(h, _)| h.count() > 0) {
            let ns = |v: Option<u64>| v.unwrap_or(0);
            parts.push(format!(
                "{:.1} {what}/s of {:.0} ns, p50 {} ns, p99 {} ns, p99.9 {} ns, max {} ns",
                h.count() as f64 / window.as_secs_f64(),
                h.mean().unwrap_or(0.0),
                ns(h.quantile(0.5)),
                ns(h.quantile(0.99)),
                ns(h.quantile(0.999)),
                ns(h.max())
            ));
        }
        format!("{} reads, {} writes; {}", self.reads, self.writes, parts.join("; "))
    }
}

/// The work of a class in the window; `None` if it is not a class of plain requests.
///
/// Requests are counted together with their latencies: a process that sees the window open or close a moment late is late with
/// both.
pub fn outcome(instance: &Instance<'_>, class: usize) -> Option<RequestsOutcome> {
    let ClassKind::Requests(spec) = &instance.job.classes[class].kind else { return None };
    let processes = || (0..instance.roles.len()).filter(|p| instance.roles[*p].class == class);
    let latency = [RequestAction::Read, RequestAction::Write, RequestAction::Sync]
        .map(|a| instance.requests.latencies(processes(), a));
    let [reads, writes, _] = latency.each_ref().map(Histogram::count);
    Some(RequestsOutcome { counted: spec.count.is_some(), reads, writes, latency })
}

/// How each class's requests reach the kernel, with all features that this kernel grants, as facts.
pub fn engines(job: &Job) -> Result<Vec<(String, String)>> {
    let of = |c: &super::super::job::ClassSpec| match &c.kind {
        ClassKind::Requests(r) => Some(
            async_io::open(&r.engine, r.bytes, &[])
                .map(|engine| (format!("engine.{}", c.name), engine.describe()))
                .with_context(|| format!("Cannot open the engine of `{}`", c.name)),
        ),
        _ => None,
    };
    job.classes.iter().filter_map(of).collect()
}
