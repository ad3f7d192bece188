//! The differences on each machine of a study that had several, and whether the machines disagree.
//!
//! Invariant: the figures are those of the pairs in the estimate, which is the mean over the machines.

use serde::Serialize;

use bigiron_judge::State;

use super::quantity::Quantity;
use super::row::Row;
use super::table::{Line, table, wrap};
use super::{Report, scope};

/// Heads of the table's columns.
pub const COLUMNS: [&str; 5] = ["machine", "pairs", "A", "B", "change"];

/// One machine's part of a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnMachine<'a> {
    pub name: &'a str,
    pub pairs: u32,
    pub baseline_mean: Quantity,
    pub arm_mean: Quantity,
    pub change: Quantity,
}

impl OnMachine<'_> {
    /// As in [`COLUMNS`].
    pub fn cells(&self) -> [String; 5] {
        [
            self.name.to_owned(),
            self.pairs.to_string(),
            self.baseline_mean.to_string(),
            self.arm_mean.to_string(),
            self.change.to_string(),
        ]
    }
}

/// The parts of a line; empty if there is one machine.
pub fn of_line<'a>(report: &Report<'a>, row: &Row<'_>) -> Vec<OnMachine<'a>> {
    let Some(change) = &row.change else { return Vec::new() };
    let members = &report.plan.machine.members;
    let shares = row.line.by_machine.shares.iter();
    let of = shares.filter_map(|share| {
        let (a, b) = Quantity::couple(share.a, share.b, row.line.metric.unit, 0.0);
        let floor = row.line.metric.floor();
        Some(OnMachine {
            name: &members.get(share.machine as usize)?.name,
            pairs: share.pairs,
            baseline_mean: a.floored(floor),
            arm_mean: b.floored(floor),
            change: change.with(100.0 * share.mean.exp_m1()),
        })
    });
    of.collect()
}

/// Each primary with its parts, headed by the arm if there are several, and by the metric.
pub fn tables<'a>(report: &Report<'a>) -> Vec<(String, Vec<OnMachine<'a>>)> {
    let mut tables = Vec::new();
    for (comparison, rows) in report.judgement.comparisons.iter().zip(&report.rows) {
        let arm =
            if report.rows.len() > 1 { format!("{}: ", report.plan.arms[comparison.arm].name) } else { String::new() };
        for row in rows.iter().filter(|row| row.line.metric.primary) {
            let parts = of_line(report, row);
            if !parts.is_empty() {
                tables.push((format!("{arm}{} {} {}", row.line.workload, row.line.metric.name, row.arrow()), parts));
            }
        }
    }
    tables
}

/// What the tables say, in sentences.
pub fn told(report: &Report<'_>) -> Vec<String> {
    let rows = || report.rows.iter().flatten();
    if rows().all(|row| row.line.by_machine.shares.is_empty()) {
        return Vec::new();
    }
    let mut sentences =
        vec!["The change above is the mean over these machines, of which each pair ran on one".to_owned()];
    sentences.extend(disagreements(report));
    let others: Vec<&str> = rows()
        .filter(|row| !row.line.metric.primary && row.line.by_machine.disagree())
        .map(|row| row.line.metric.name.as_str())
        .collect();
    if !others.is_empty() {
        let metrics = if others.len() == 1 { "metric" } else { "metrics" };
        sentences.push(format!(
            "The machines also disagree about {} exploratory {metrics}: {}",
            others.len(),
            super::sentence::join(&others)
        ));
    }
    sentences
}

/// A sentence for each primary about which the machines disagree.
pub fn disagreements(report: &Report<'_>) -> Vec<String> {
    let rows = report.rows.iter().flatten();
    let mut sentences = Vec::new();
    for row in rows.filter(|row| row.line.metric.primary && row.line.by_machine.disagree()) {
        let mut parts = of_line(report, row);
        parts.sort_by(|x, y| x.change.value.total_cmp(&y.change.value));
        let (Some(least), Some(most)) = (parts.first(), parts.last()) else { continue };
        sentences.push(format!(
            "The machines disagree about {} {} by more than chance: from {} on {} to {} on {}. Their mean need not hold for another machine",
            row.line.workload, row.line.metric.name, least.change, least.name, most.change, most.name
        ));
    }
    sentences
}

/// How far each machine is, if the study is unfinished.
pub fn progress(report: &Report<'_>) -> Vec<String> {
    let plan = report.plan;
    if report.judgement.state != State::Unfinished || plan.machine.members.is_empty() {
        return Vec::new();
    }
    let results: Vec<_> = scope::results(plan, report.records).collect();
    let of = |(index, name): (u32, &str)| {
        let planned = plan.slots.iter().filter(|slot| slot.machine == index).count();
        let done = results.iter().filter(|r| r.machine.as_deref() == Some(name)).count();
        format!("{name}: {done} of {planned} {} have results", plan.trials())
    };
    (0..).zip(&plan.machine.members).map(|(index, member)| of((index, &member.name))).collect()
}

/// The tables of all metrics as text; empty with one machine.
pub fn text(report: &Report<'_>) -> String {
    let mut lines = vec![Line::Cells(COLUMNS.map(|head| format!(" {head}").trim_end().to_owned()).to_vec())];
    for (metric, parts) in tables(report) {
        lines.push(Line::Heading(metric));
        lines.extend(parts.iter().map(|part| {
            let [name, rest @ ..] = part.cells();
            Line::Cells([format!(" {name}")].into_iter().chain(rest).collect())
        }));
    }
    if lines.len() == 1 {
        return String::new();
    }
    let told: String = told(report).iter().map(|sentence| wrap(sentence, "", "  ")).collect();
    format!("\nBy machine\n{}{told}", table(&[false, true, true, true, true], &lines))
}
