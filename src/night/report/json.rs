//! The grid as JSON.

use serde::Serialize;

use super::{Changed, NightReport, ReportRow};
use crate::night::Budget;
use crate::night::folder::NightArm;
use bigiron_model::clock::Clock;
use bigiron_report::quantity::Quantity;

/// Version of this format.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    bigiron: &'a str,
    begun: &'a str,
    budget: Budget,
    clock: Clock,
    repeat: &'a str,
    kernels: &'a [NightArm],
    /// Over all kernels; null while unfinished.
    verdict: Option<&'static str>,
    comparisons: Vec<Compared<'a>>,
    previous: Vec<Before<'a>>,
    method: Vec<String>,
}

#[derive(Serialize)]
struct Compared<'a> {
    baseline: &'a str,
    kernel: &'a str,
    verdict: Option<&'static str>,
    text: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Before<'a> {
    kernel: &'a str,
    previous: &'a str,
    release: &'a str,
    begun: &'a str,
    rows: Vec<Row>,
    not_compared: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    row: String,
    outcome: &'static str,
    improvements: Vec<Named>,
    regressions: Vec<Named>,
    metric: Option<String>,
    a: Option<Quantity>,
    b: Option<Quantity>,
    change: Option<Quantity>,
    ci95_percent: Option<String>,
    verdict: Option<&'static str>,
    report: Option<String>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Named {
    metric: String,
    change: String,
}

/// The whole report of a night as one indented JSON document.
pub fn json(report: &NightReport) -> String {
    let arms = &report.grid.arms;
    let document = Document {
        schema: SCHEMA,
        bigiron: &report.night.bigiron,
        begun: &report.night.begun,
        budget: report.night.budget,
        clock: report.night.clock,
        repeat: &report.night.repeat,
        kernels: &report.night.arms,
        verdict: report.grid.verdict().map(|v| v.name()),
        comparisons: (0..report.grid.verdicts.len())
            .map(|arm| Compared {
                baseline: &arms[0],
                kernel: &arms[arm + 1],
                verdict: report.grid.verdicts[arm].map(|v| v.name()),
                text: report.sentence(arm),
                rows: report.rows(arm).into_iter().map(row).collect(),
            })
            .collect(),
        previous: report
            .previous
            .iter()
            .map(|p| {
                let (rows, not_compared) = NightReport::previous_rows(p);
                Before {
                    kernel: &arms[p.arm],
                    previous: &p.name,
                    release: &p.release,
                    begun: &p.begun,
                    rows: rows.into_iter().map(row).collect(),
                    not_compared,
                }
            })
            .collect(),
        method: report.method(),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("A report has string keys only");
    text.push('\n');
    text
}

fn row(shown: ReportRow) -> Row {
    let named =
        |changed: Vec<Changed>| changed.into_iter().map(|c| Named { metric: c.metric, change: c.change }).collect();
    Row {
        row: shown.name,
        outcome: shown.outcome,
        improvements: named(shown.improved),
        regressions: named(shown.regressed),
        metric: shown.metric,
        a: shown.a,
        b: shown.b,
        change: shown.change,
        ci95_percent: shown.interval,
        verdict: shown.verdict.map(|v| v.name()),
        report: (!shown.report.is_empty()).then_some(shown.report),
        notes: shown.notes,
    }
}
