//! The report of a night: the grid, and tonight's kernels against the previous night's.
//!
//! Invariant: every format renders the same [`ReportRow`] rows.

mod html;
mod json;
mod text;

use bigiron_stats::{Verdict, power};

use crate::night::grid::{BootCounts, GridCell, GridRow};
use crate::night::previous::Previous;
use crate::night::{Budget, Grid, Night};
use bigiron_judge::State;
use bigiron_judge::history::HistoryEntry;
use bigiron_judge::line::Line;
use bigiron_report::quantity::Quantity;
use bigiron_report::row::Row;
use bigiron_report::scope;
use bigiron_report::sentence::join;
use bigiron_report::text::day;

pub use html::html;
pub use json::json;
pub use text::text;

/// The complete report of a night.
pub struct NightReport {
    pub night: Night,
    pub grid: Grid,
    pub previous: Vec<Previous>,
    /// The entries for the history.
    pub entries: Vec<HistoryEntry>,
    /// The cost on this machine; it differs from run to run and is not part of any format.
    pub boots: usize,
    pub cpu_s: f64,
}

/// A row, as in every format.
pub struct ReportRow {
    pub name: String,
    pub outcome: &'static str,
    pub improved: Vec<Changed>,
    pub regressed: Vec<Changed>,
    /// The primary metric's name with its direction.
    pub metric: Option<String>,
    pub a: Option<Quantity>,
    pub b: Option<Quantity>,
    pub change: Option<Quantity>,
    /// 95 %, in per cent.
    pub interval: Option<String>,
    pub verdict: Option<Verdict>,
    /// The row's own report, below the night's folder; empty if there is none.
    pub report: String,
    /// Errors of this row.
    pub notes: Vec<String>,
}

/// A metric that changed.
pub struct Changed {
    pub metric: String,
    pub change: String,
}

impl Changed {
    fn of(line: &Line) -> Changed {
        let change = Row::new(line).change.map_or_else(String::new, |c| c.to_string());
        Changed { metric: line.metric.name.clone(), change }
    }

    /// The largest first.
    fn all(mut lines: Vec<&Line>) -> Vec<Changed> {
        let size = |l: &Line| l.estimate.map_or(0.0, |e| e.mean.abs());
        lines.sort_by(|a, b| size(b).total_cmp(&size(a)));
        lines.into_iter().map(Changed::of).collect()
    }

    pub fn text(&self) -> String {
        format!("{} {}", self.metric, self.change)
    }
}

impl ReportRow {
    /// The row of the grid for the kernel `arm`, counted without the baseline.
    pub fn of(row: &GridRow, arms: &[String], arm: usize) -> ReportRow {
        let cell = &row.cells[arm];
        let fates = [(&arms[0], &row.fates[0]), (&arms[arm + 1], &row.fates[arm + 1])];
        let failed = |which: usize| fates[which].1.failed > 0;
        let outcome = match (row.state, failed(0), failed(1)) {
            (State::Unfinished, ..) => "unfinished",
            (_, false, false) => "Pass",
            (_, true, false) => "Fail A",
            (_, false, true) => "Fail B",
            (_, true, true) => "Fail A B",
        };
        let notes = fates.iter().flat_map(|(name, fate)| notes(name, fate)).collect();
        let report = if row.folder.is_empty() { String::new() } else { format!("{}/report.html", row.folder) };
        ReportRow { notes, ..ReportRow::compared(&row.name, outcome, cell, &report) }
    }

    fn compared(name: &str, outcome: &'static str, cell: &GridCell, report: &str) -> ReportRow {
        let primary = cell.primary().map(Row::new);
        let interval = |r: &Row<'_>| r.ci95.is_some().then(|| r.interval());
        ReportRow {
            name: name.to_owned(),
            outcome,
            improved: Changed::all(cell.improved()),
            regressed: Changed::all(cell.regressed()),
            metric: primary.as_ref().map(|r| format!("{} {}", r.line.metric.name, r.arrow())),
            a: primary.as_ref().and_then(|r| r.a.clone()),
            b: primary.as_ref().and_then(|r| r.b.clone()),
            change: primary.as_ref().and_then(|r| r.change.clone()),
            interval: primary.as_ref().and_then(interval),
            verdict: cell.verdict,
            report: report.to_owned(),
            notes: Vec::new(),
        }
    }

    /// `Y` or `N`, as in the grids of 2003; empty if nothing was compared.
    fn yes(&self, changed: &[Changed]) -> String {
        match changed.len() {
            0 if self.metric.is_none() => String::new(),
            0 => "N".to_owned(),
            n => format!("Y {n}"),
        }
    }
}

fn notes(name: &str, fate: &BootCounts) -> Vec<String> {
    let complaints =
        fate.complaints.iter().map(|c| format!("its kernel complained (`{c}`) where the baseline's did not"));
    fate.failures.iter().cloned().chain(complaints).map(|what| format!("{name}: {what}")).collect()
}

impl NightReport {
    /// `Night of 2026-11-22: debian:6.12 against debian:6.1`.
    pub fn title(&self) -> String {
        let (first, others) = self.grid.arms.split_first().map_or(("", &[][..]), |(f, o)| (f.as_str(), o));
        format!("Night of {}: {} against {first}", day(&self.night.begun), join(others))
    }

    /// Clock, number of boots and budget.
    fn design(&self) -> String {
        let budget = match self.night.budget {
            Budget::Quick => "quick",
            Budget::Full => "full",
        };
        format!("{} clock, {} boots of each kernel for a row, {budget} budget", self.night.clock, self.night.pairs)
    }

    /// The rows for the kernel `arm`, counted without the baseline.
    fn rows(&self, arm: usize) -> Vec<ReportRow> {
        let concerns = |row: &&GridRow| !row.together || row.fates[0].failed > 0 || row.fates[arm + 1].failed > 0;
        self.grid.rows.iter().filter(concerns).map(|row| ReportRow::of(row, &self.grid.arms, arm)).collect()
    }

    /// What happened to one kernel, in a sentence.
    pub fn sentence(&self, arm: usize) -> String {
        let rows = self.rows(arm);
        let names = |of: &dyn Fn(&ReportRow) -> bool| -> Vec<String> {
            rows.iter().filter(|r| of(r)).map(|r| r.name.clone()).collect()
        };
        let primary = |row: &ReportRow, better: bool| match row.verdict {
            Some(Verdict::Better | Verdict::SlightlyBetter) => better,
            Some(Verdict::Worse | Verdict::SlightlyWorse) => !better && row.outcome == "Pass",
            _ => false,
        };
        let part = |list: Vec<String>, what: &str| (!list.is_empty()).then(|| format!("{what} {}", join(&list)));
        let parts: Vec<String> = [
            part(names(&|r| r.outcome.starts_with("Fail")), "boots failed in"),
            part(names(&|r| primary(r, false)), "regressed in"),
            part(names(&|r| primary(r, true)), "improved in"),
            part(names(&|r| matches!(r.verdict, Some(Verdict::Inconclusive | Verdict::Invalid))), "no verdict on"),
            part(names(&|r| r.outcome == "unfinished"), "unfinished are"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let what = if parts.is_empty() { "no row's result changed".to_owned() } else { parts.join("; ") };
        let word = self.grid.verdicts[arm].map_or_else(|| "unfinished".to_owned(), |v| v.to_string());
        format!("{} against {}: {word}: {what}", self.grid.arms[arm + 1], self.grid.arms[0])
    }

    /// The same rows against the previous night's kernel, and the rows that could not be compared, by reason.
    fn previous_rows(previous: &Previous) -> (Vec<ReportRow>, Vec<String>) {
        let mut shown = Vec::new();
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        for row in &previous.rows {
            match &row.cell {
                Ok(cell) => shown.push(ReportRow::compared(&row.name, "Pass", cell, "")),
                Err(why) => match reasons.iter_mut().find(|(known, _)| known == why) {
                    Some((_, rows)) => rows.push(row.name.clone()),
                    None => reasons.push((why.clone(), vec![row.name.clone()])),
                },
            }
        }
        let reasons = reasons.into_iter().map(|(why, rows)| format!("{} not compared: {why}", join(&rows))).collect();
        (shown, reasons)
    }

    fn previous_title(&self, previous: &Previous) -> String {
        format!(
            "{} against the previous night's {} ({}, {})",
            self.grid.arms[previous.arm],
            previous.name,
            previous.release,
            day(&previous.begun)
        )
    }

    /// How to read the grid.
    fn method(&self) -> Vec<String> {
        let mut all = vec![
            "Improvements and regressions count metrics beyond their margin that survive the correction for the number of all metrics of the night \
             (a row's primary metric, which has its own correction, also within it). Result, change and verdict are the primary metric's"
                .to_owned(),
        ];
        if self.night.pairs < power::SMALLEST_DESIGN {
            all.push(
                "A screening: so few boots have no exact interval; Student's assumes that boots vary normally. Confirm its findings \
                 with a full night, or with `bigiron compare` of the row's workload"
                    .to_owned(),
            );
        }
        all.extend(scope::copies(self.night.clock, self.night.arms.iter().map(|arm| arm.kernel.release.as_str())));
        all.extend(self.night.left_out.iter().map(|l| format!("Row {} was left out: {}", l.row, l.why)));
        all.push("A row passes if all its boots completed and verified their data".to_owned());
        if self.grid.rows.iter().any(|r| r.together) {
            all.push(
                "If a shared boot failed, its rows were run again, each alone: `together` reports the shared boots"
                    .to_owned(),
            );
        }
        all
    }
}
