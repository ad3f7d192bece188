//! The page's metrics: the forest plot, which is the table at the same time, its legend, and curves over a load.

use std::collections::BTreeSet;

use maud::{Markup, PreEscaped, html};

use super::super::Report;
use super::super::chart::Chart;
use super::super::row::{COPIES_MARK, Mark, Row};
use super::super::svg::Axis;
use super::super::text::{copies_decide, doubtful, margins};
use super::{chip, figure, minus, prose};

/// Heights of the rows of a primary and of an exploratory metric, in CSS pixels.
const PRIMARY_HEIGHT: f64 = 46.0;
const HEIGHT: f64 = 30.0;

/// Curves over a load, for workloads that have them.
pub(super) fn charts(report: &Report<'_>) -> Markup {
    let comparisons = report.judgement.comparisons.iter().map(|c| c.arm).zip(&report.rows);
    let comparisons: Vec<(usize, &[Row<'_>])> = comparisons.map(|(arm, rows)| (arm, rows.as_slice())).collect();
    let arms: Vec<&str> = report.plan.arms.iter().map(|a| a.name.as_str()).collect();
    html! {
        @for chart in Chart::all(&comparisons) {
            h2 { (chart.title()) }
            div class="scroll" { (PreEscaped(chart.svg(&arms))) }
            p class="note" {
                "Means of " (report.plan.trials()) " over the load. A bar is the 95 % interval of the change against "
                (arms.first().copied().unwrap_or_default()) ", drawn at that arm's value."
            }
        }
    }
}

/// Forest plot and table in one: a row for each metric.
pub(super) fn forest(report: &Report<'_>, index: usize, rows: &[Row<'_>]) -> Markup {
    let plan = report.plan;
    let comparison = &report.judgement.comparisons[index];
    let axis = Axis::new(rows);
    let (a, b) = (&plan.arms[0].name, &plan.arms[comparison.arm].name);
    let heading = |row: &Row<'_>| match row.line.metric.primary {
        true => "primary: carries the verdict".to_owned(),
        false => format!("{}, exploratory", row.line.workload),
    };
    html! {
        h2 { @if report.rows.len() > 1 { (b) " against " (a) } @else { "All metrics" } }
        p class="note" {
            "A = " (a) ", B = " (b) "; " (plan.clock) " clock, " (comparison.pairs) " pairs of " (plan.trials())
            ". Right is better for every metric."
        }
        div class="scroll" {
            table class="forest" {
                thead {
                    tr {
                        th { "metric" } th class="n" { "A" } th class="n" { "B" } th class="p" { (PreEscaped(axis.labels())) }
                        th class="n" { "change" } th class="n" { "95 % CI, %" } th class="n" { "MDE" } th { "verdict" }
                    }
                }
                tbody {
                    @for (i, row) in rows.iter().enumerate() {
                        @if i == 0 || heading(row) != heading(&rows[i - 1]) {
                            tr class="head" { th colspan="8" { (heading(row)) } }
                        }
                        (metric(row, &axis))
                    }
                    tr class="foot" {
                        td colspan="3" {} td class="p" { (PreEscaped(axis.labels())) } td colspan="4" {}
                    }
                }
            }
        }
        @if let Some(knee) = axis.knee() {
            p class="note" { "Beyond about " (knee) " the plot's axis is compressed (inverse hyperbolic sine)." }
        }
    }
}

/// A metric's row of the forest plot.
fn metric(row: &Row<'_>, axis: &Axis) -> Markup {
    let line = row.line;
    let (class, height) = if line.metric.primary { ("row primary", PRIMARY_HEIGHT) } else { ("row", HEIGHT) };
    let marks = row.mark().map(|m| m.text(line)).into_iter().chain(row.is_doubtful().then(|| "~".to_owned()));
    let marks = marks.chain(row.copies_decide.then(|| COPIES_MARK.to_owned()));
    html! {
        tr class=(class) {
            th title=(line.metric.summary) {
                @if line.metric.primary { (line.workload) " " }
                (line.metric.name) " " span class="arrow" { (row.arrow()) }
            }
            td class="n a" data-label="A" { (figure(row.a.as_ref())) }
            td class="n b" data-label="B" { (figure(row.b.as_ref())) }
            td class="p" { (PreEscaped(axis.plot(row, height))) }
            td class="n change" { (figure(row.change.as_ref())) }
            td class="n ci" data-label="95 % CI" { (minus(&row.interval())) }
            td class="n mde" data-label="MDE" { (figure(row.mde.as_ref())) }
            td class="verdict" { (chip(line.verdict)) @for mark in marks { " " span class="mark" { (mark) } } }
        }
    }
}

/// How to read the table and the plot.
pub(super) fn reading(report: &Report<'_>) -> Markup {
    let marks: BTreeSet<Mark> = report.rows.iter().flatten().filter_map(Row::mark).collect();
    html! {
        p class="note" {
            (key(r#"<path class="mean" d="M3 8L8 3L13 8L8 13Z"/>"#)) " estimate, "
            (key(r#"<path class="ci" d="M1 8H15M1 4v8M15 4v8"/>"#)) " 95 % interval, "
            (key(r#"<circle class="dot" cx="8" cy="8" r="3"/>"#)) " a pair in which A ran first, "
            (key(r#"<circle class="dot open" cx="8" cy="8" r="3"/>"#)) " one in which B did, "
            (key(r#"<rect class="band" x="1" y="1" width="14" height="14"/>"#)) " the margin (" (margins(report).join(", ")) "). "
            "Change is B against A: + is a larger number; the verdict says whether that is good (↑ more is better, ↓ less is better). "
            "MDE, the smallest detectable effect, is the smallest change that this many pairs would have shown with 80 % power."
        }
        @for mark in marks { p class="note" { (mark.legend()) "." } }
        @if let Some(doubtful) = doubtful(report) { p class="note" { (doubtful) "." } }
        @if let Some(copies) = copies_decide(report) { p class="note" { (prose(&copies)) "." } }
    }
}

fn key(shape: &str) -> PreEscaped<String> {
    PreEscaped(format!(
        "<svg class=\"key same\" width=\"16\" height=\"16\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">{shape}</svg>"
    ))
}
