//! The report of a bisection as JSON.

use serde::Serialize;

use super::{BisectOutcome, BisectReport, CandidateRow, ChangePlace, CommitDetails, OptionsAtChange};
use crate::bisect::{Candidate, SearchKind, Source};
use bigiron_model::clock::Clock;
use bigiron_model::metric::MetricDef;

/// Version of this format.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    bigiron: &'a str,
    begun: &'a str,
    what: SearchKind,
    clock: Clock,
    seed: u64,
    error: f64,
    workload: &'a str,
    metric: &'a MetricDef,
    outcome: BisectOutcome,
    text: &'a [String],
    /// Null unless there is one.
    place: Option<&'a ChangePlace>,
    /// The commits of the place, if kernels were built of commits.
    #[serde(skip_serializing_if = "<[CommitDetails]>::is_empty")]
    commits: &'a [CommitDetails],
    /// The differences between the configurations of the place, if kernels were built in several.
    #[serde(skip_serializing_if = "Option::is_none")]
    switched: Option<&'a OptionsAtChange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a Source>,
    tests: usize,
    boots: u32,
    candidates: &'a [Candidate],
    rows: &'a [CandidateRow],
    next: &'a [String],
    commands: &'a [String],
    method: &'a [String],
    repeat: &'a str,
}

/// The whole report as one indented JSON document.
pub fn json(report: &BisectReport<'_>) -> String {
    let b = report.bisection;
    let document = Document {
        schema: SCHEMA,
        bigiron: &b.bigiron,
        begun: &b.begun,
        what: b.what,
        clock: b.clock,
        seed: b.seed,
        error: b.error,
        workload: &b.workload,
        metric: &b.metric,
        outcome: report.outcome,
        text: &report.sentences,
        place: report.place.as_ref(),
        commits: &report.commits,
        switched: report.options.as_ref(),
        source: b.source.as_ref(),
        tests: report.tests,
        boots: report.boots,
        candidates: &b.candidates,
        rows: &report.rows,
        next: &report.next,
        commands: &report.commands,
        method: &report.method,
        repeat: &b.repeat,
    };
    let mut text = serde_json::to_string_pretty(&document).expect("A report has string keys only");
    text.push('\n');
    text
}
