//! One run of a workload on this machine, without a study: `bigiron oltp run` and `bigiron dss run`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::{FAILED, output};
use crate::cli::RunFormat;
use crate::conduct::signals;
use bigiron_lab::host::{HostError, Phase, local};
use bigiron_model::metric::{MetricDef, Unit};
use bigiron_model::workload::Options;
use bigiron_report::quantity::Quantity;
use bigiron_workload::Workload;

type Facts = BTreeMap<String, String>;

/// Prints tables of the workload's own from some of the facts; returns the other facts.
pub(super) type OwnTables<'a> = &'a dyn Fn(&Facts, &mut String) -> Facts;

/// A run to be made.
pub(super) struct Run<'a> {
    pub workload: &'a dyn Workload,
    pub options: &'a Options,
    pub metrics: Vec<MetricDef>,
    /// `None` if the workload draws nothing at random.
    pub seed: Option<u64>,
    pub dir: &'a Path,
}

/// The result of one run.
#[derive(Serialize)]
struct RunResult<'a> {
    bigiron: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    metrics: &'a BTreeMap<String, f64>,
    facts: &'a Facts,
    steps: Vec<StepTime>,
    /// Why the run is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// The wall-clock time of a step: of loading rows, say.
#[derive(Serialize)]
struct StepTime {
    step: String,
    seconds: f64,
}

impl Run<'_> {
    /// Runs the workload on `foundation` and prints the result; returns the exit status. `passed` says what the run has checked.
    ///
    /// # Errors
    /// If the run cannot be made, or is interrupted.
    pub(super) fn print(
        &self,
        foundation: BTreeMap<String, String>,
        format: RunFormat,
        passed: &str,
        own_tables: OwnTables<'_>,
    ) -> anyhow::Result<u8> {
        let cancel = signals::cancelled_by_signals()?;
        let seed = self.seed.unwrap_or_default();
        let steps = RefCell::new(Steps::default());
        let on_phase = |phase: Phase| {
            steps.borrow_mut().note(&phase);
            show(&phase);
        };
        let once = local::once(self.workload, self.options, foundation, seed, self.dir, &cancel, &on_phase);
        let once = once.map_err(|e| match e {
            HostError::Cancelled => anyhow::anyhow!("Interrupted; all processes are stopped and all files removed"),
            other => other.into(),
        })?;
        let failed = once.failure.map(|(failure, why)| format!("{}: {why}", failure.verb()));
        let status = if failed.is_some() { FAILED } else { 0 };
        let result = RunResult {
            bigiron: env!("CARGO_PKG_VERSION"),
            seed: self.seed,
            metrics: &once.values,
            facts: &once.facts,
            steps: steps.into_inner().end(),
            failed,
        };
        output::data(&match format {
            RunFormat::Json => serde_json::to_string_pretty(&result)? + "\n",
            RunFormat::Text => self.text(&result, passed, own_tables),
        })?;
        Ok(status)
    }

    fn text(&self, result: &RunResult<'_>, passed: &str, own_tables: OwnTables<'_>) -> String {
        let mut out = String::new();
        let seed = result.seed.map(|seed| format!("Seed {seed}"));
        // A failed run's measurements are not shown.
        if let Some(why) = &result.failed {
            let _ = writeln!(out, "FAILED: the workload {why}");
            if let Some(seed) = seed {
                let _ = writeln!(out, "{seed}");
            }
            return out;
        }
        let _ = match seed {
            Some(seed) => writeln!(out, "{seed}; {passed}"),
            None => writeln!(out, "{}{}", passed[..1].to_uppercase(), &passed[1..]),
        };
        let rows = self.metrics.iter().filter_map(|m| {
            let value = result.metrics.get(&m.name)?;
            Some(vec![m.name.clone(), Quantity::metric(*value, m.unit, 0.0).to_string(), m.summary.clone()])
        });
        output::table(&mut out, &["Metric", "value", ""], rows);
        let facts = own_tables(result.facts, &mut out);
        output::table(&mut out, &["Fact", ""], facts.into_iter().map(|(name, value)| vec![name, value]));
        let steps = result
            .steps
            .iter()
            .map(|s| vec![s.step.clone(), Quantity::metric(s.seconds * 1e9, Unit::Ns, 0.0).to_string()]);
        output::table(&mut out, &["Step", "wall-clock time"], steps);
        out
    }
}

/// The steps so far. A step lasts until one of another name begins.
#[derive(Default)]
struct Steps {
    ended: Vec<StepTime>,
    current: Option<(String, Instant)>,
}

impl Steps {
    fn note(&mut self, phase: &Phase) {
        if let Phase::Step { step, .. } = phase
            && self.current.as_ref().is_none_or(|(name, _)| name != step)
        {
            self.end_current();
            self.current = Some((step.clone(), Instant::now()));
        }
    }

    fn end_current(&mut self) {
        if let Some((step, began)) = self.current.take() {
            self.ended.push(StepTime { step, seconds: began.elapsed().as_secs_f64() });
        }
    }

    fn end(mut self) -> Vec<StepTime> {
        self.end_current();
        self.ended
    }
}

/// Shows the current step on a terminal.
fn show(phase: &Phase) {
    if let Phase::Step { step, done, of, .. } = phase
        && std::io::stderr().is_terminal()
    {
        let far = match *of {
            0 | 1 => String::new(),
            // A ramp has few steps, all of the same length.
            2..100 => format!(" (step {} of {of})", done + 1),
            of => format!(" {} %", u64::from(*done) * 100 / u64::from(of)),
        };
        let _ = write!(std::io::stderr(), "\r\x1b[K{step}{far}");
        if step == "verify" {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
