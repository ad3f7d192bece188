//! The result of a run, as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::output::table;
use super::tables::{CloseLook, Tables};
use bigiron_model::metric::{MetricDef, Unit};
use bigiron_report::quantity::Quantity;

/// The result of one run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RunResult<'a> {
    pub bigiron: &'static str,
    pub job: &'a str,
    pub seed: u64,
    /// The job file with everything decided.
    pub text: &'a str,
    #[serde(flatten)]
    pub tables: &'a Tables,
    /// Whether all checks passed; absent without `--validate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    /// The first error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong: Option<&'a str>,
}

fn ns(value: f64) -> String {
    Quantity::metric(value, Unit::Ns, 0.0).to_string()
}

/// Facts that a table already shows.
const TABLED: &[&str] = &["requests.", "wait.", "transaction.", "phase.", "series.", "wait-identity", "stage-"];

impl RunResult<'_> {
    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a result is plain data")
    }

    pub(super) fn text(&self, metrics: &[MetricDef]) -> String {
        let t = self.tables;
        let mut out = format!(
            "Job {}, seed {}: {} processes, window of {}\n",
            self.job,
            self.seed,
            t.processes,
            ns(t.elapsed_ns as f64)
        );
        let rows = metrics.iter().filter_map(|m| {
            let value = t.metrics.get(&m.name)?;
            Some(vec![m.name.clone(), Quantity::metric(*value, m.unit, 0.0).to_string()])
        });
        table(&mut out, &["Metric", "value"], rows);
        let rows = t.latencies.iter().map(|l| {
            let times = [l.mean_ns, l.p50_ns as f64, l.p99_ns as f64, l.p999_ns as f64, l.max_ns as f64];
            [l.of.clone(), l.count.to_string()].into_iter().chain(times.map(ns)).collect()
        });
        table(&mut out, &["Latency of", "count", "mean", "p50", "p99", "p99.9", "max"], rows);
        let commit: f64 = t.stages.iter().map(|s| s.mean_ns).sum();
        let rows = t.stages.iter().filter(|_| commit > 0.0);
        let rows = rows.map(|s| vec![s.name.clone(), ns(s.mean_ns), percent(s.mean_ns, commit)]);
        table(&mut out, &["Stage of a commit", "mean", "share"], rows);
        let rows = t.waits.iter().map(|w| {
            let mean = w.total_ns as f64 / w.count.max(1) as f64;
            let share = format!("{:.2} %", w.share_percent);
            vec![w.class.clone(), w.event.clone(), w.count.to_string(), ns(mean), ns(w.total_ns as f64), share]
        });
        table(&mut out, &["Class", "Waits for", "count", "mean", "in all", "of the time"], rows);
        if let Some(look) = &t.close_look {
            close_look(&mut out, look);
        }
        let facts = t.facts.iter().filter(|(name, _)| !TABLED.iter().any(|t| name.starts_with(t)));
        table(&mut out, &["Fact", ""], facts.map(|(name, value)| vec![name.clone(), value.clone()]));
        match (self.valid, self.wrong) {
            (Some(true), _) => out.push_str("\nValid: all data and redo match the acknowledgements\n"),
            (Some(false), wrong) => {
                let _ = writeln!(out, "\nINVALID: {}", wrong.unwrap_or("no reason given"));
            }
            (None, _) => {}
        }
        out
    }
}

fn percent(part: f64, whole: f64) -> String {
    format!("{:.1} %", 100.0 * part / whole)
}

fn close_look(out: &mut String, look: &CloseLook) {
    let whole = look.time_ns.max(1) as f64;
    let share = |part: u64| percent(part as f64, whole);
    let _ = writeln!(
        out,
        "\n{} transactions were examined closely: {} waiting, {} on a CPU, {} ready without one",
        look.transactions,
        share(look.waits_ns),
        share(look.cpu_ns),
        share(look.run_queue_ns)
    );
}

/// A table of text: the first column to the left, numbers to the right; nothing if there are no rows.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let mut out = String::new();
        let rows = [["read", "7", "a"], ["commit", "12", "bc"]].map(|r| r.map(str::to_owned).to_vec());
        table(&mut out, &["Of", "count", "for"], rows.into_iter());
        assert_eq!(out, "\nOf      count  for\nread        7  a\ncommit     12  bc\n");
        table(&mut out, &["Of"], std::iter::empty());
        assert_eq!(out.lines().count(), 4);
    }
}
