//! What a run found, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::metric::MetricDef;
use crate::report::quantity::Quantity;

/// The result of one run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RunResult {
    pub bigiron: &'static str,
    pub job: String,
    pub seed: u64,
    /// The job file that says all of it.
    pub text: String,
    pub values: BTreeMap<String, f64>,
    pub facts: BTreeMap<String, String>,
    /// Whether everything was checked and right; absent if nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
}

impl RunResult {
    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a result is plain data")
    }

    pub(super) fn text(&self, metrics: &[MetricDef]) -> String {
        let mut out = format!("Job {}, seed {}\n\n", self.job, self.seed);
        let width = self.values.keys().chain(self.facts.keys()).map(String::len).max().unwrap_or(0);
        for metric in metrics {
            if let Some(value) = self.values.get(&metric.name) {
                let _ = writeln!(out, "{:<width$}  {}", metric.name, Quantity::metric(*value, metric.unit, 0.0));
            }
        }
        let _ = writeln!(out);
        for (name, value) in &self.facts {
            let _ = writeln!(out, "{name:<width$}  {value}");
        }
        match (&self.valid, &self.wrong) {
            (Some(true), _) => out.push_str("\nValid: every acknowledged commit is there, and nothing else is\n"),
            (Some(false), Some(wrong)) => {
                let _ = writeln!(out, "\nINVALID: {wrong}");
            }
            _ => {}
        }
        out
    }
}
