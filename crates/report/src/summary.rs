//! The end of a run on a terminal: the verdict, the lines that decide it, and the scope that was not tested. At most one screen.

use bigiron_judge::line::Line;
use bigiron_judge::suite::Reason;
use bigiron_model::metric::Better;
use bigiron_stats::Verdict;

use super::Report;
use super::machines;
use super::modelled;
use super::quantity::shown;
use super::row::{COPIES_MARK, Mark, Row};
use super::scope;
use super::table::{Line as TableLine, table, wrap};
use super::text::{copies_decide, disturbed_in_short};

/// Maximum number of lines of the judgement for each arm.
const LINES: usize = 3;

/// A line of text, and the verdict at its end, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryLine {
    pub text: String,
    pub verdict: Option<Verdict>,
}

impl From<String> for SummaryLine {
    fn from(text: String) -> Self {
        SummaryLine { text, verdict: None }
    }
}

/// The summary, line by line.
pub fn summary(report: &Report<'_>) -> Vec<SummaryLine> {
    let mut lines = Vec::new();
    let mut shown: Vec<&Row<'_>> = Vec::new();
    for sentence in &report.sentences {
        push(&mut lines, &wrap(&sentence.full(), "", "  "), sentence.verdict);
    }
    for (index, (comparison, rows)) in report.judgement.comparisons.iter().zip(&report.rows).enumerate() {
        let rows = deciding(rows, comparison.suite.as_ref().map(|suite| &suite.reason));
        if rows.is_empty() {
            continue;
        }
        let arms = (&report.plan.arms[0].name, &report.plan.arms[comparison.arm].name);
        push(&mut lines, &format!("\nWhat decides it, {} → {}\n", arms.0, arms.1), None);
        let cells = rows.iter().map(|row| TableLine::Cells(cells(row))).collect::<Vec<_>>();
        shown.extend(&rows);
        // A name that is too wide stands on a line of its own.
        let mut left = rows.iter();
        for text in table(&[false, true, true, true, false], &cells).lines() {
            let row = left.as_slice().first().filter(|row| text.ends_with(&row.verdict()));
            if row.is_some() {
                left.next();
            }
            lines.push(SummaryLine { text: text.to_owned(), verdict: row.map(|row| row.line.verdict) });
        }
        if let Some(robust) = modelled::in_short(report, index, &rows) {
            push(&mut lines, &wrap(&robust, "  ", "  "), None);
        }
    }
    if let Some(legend) = legend(&shown) {
        push(&mut lines, &wrap(&legend, "  ", "  "), None);
    }
    for sentence in machines::disagreements(report) {
        push(&mut lines, &wrap(&sentence, "", "  "), None);
    }
    let marked = lines.iter().any(|line| line.verdict.is_some() && line.text.contains(COPIES_MARK));
    if let Some(copies) = copies_decide(report).filter(|_| marked) {
        push(&mut lines, &wrap(&copies, "", "  "), None);
    }
    if let Some(disturbed) = disturbed_in_short(report) {
        push(&mut lines, &wrap(&format!("{disturbed}: see `bigiron report`"), "", "  "), None);
    }
    push(&mut lines, &format!("\n{}", wrap(&scope::not_tested_in_short(report.plan), "Not tested: ", "  ")), None);
    lines
}

/// The meaning of the signs in the table.
fn legend(rows: &[&Row<'_>]) -> Option<String> {
    let mut all = Vec::new();
    for better in [Better::Higher, Better::Lower] {
        if let Some(row) = rows.iter().find(|row| row.line.metric.better == better) {
            let word = if better == Better::Higher { "more" } else { "less" };
            all.push(format!("{} {word} is better", row.arrow()));
        }
    }
    if rows.iter().any(|row| row.mark() == Some(Mark::MorePairs)) {
        all.push("+N: about N more pairs would settle it".to_owned());
    }
    if rows.iter().any(|row| row.is_doubtful()) {
        all.push("~: the arms vary differently, and a wider interval would change the verdict".to_owned());
    }
    (!all.is_empty()).then(|| all.join("; "))
}

fn push(lines: &mut Vec<SummaryLine>, text: &str, verdict: Option<Verdict>) {
    let count = text.lines().count();
    lines.extend(
        text.lines()
            .enumerate()
            .map(|(i, line)| SummaryLine { text: line.to_owned(), verdict: verdict.filter(|_| i + 1 == count) }),
    );
}

/// The rows that decided the verdict, then those with the largest changes.
fn deciding<'r, 'a>(rows: &'r [Row<'a>], reason: Option<&Reason>) -> Vec<&'r Row<'a>> {
    let by: &[String] = match reason {
        Some(Reason::Primaries { workloads }) => workloads,
        _ => &[],
    };
    // Without any pair there is nothing to show: the sentences say why.
    let mut chosen: Vec<&Row<'a>> =
        rows.iter().filter(|r| r.line.estimate.is_some() && (r.line.metric.primary || r.line.discovery())).collect();
    let rank = |line: &Line| match line.metric.primary {
        true if by.contains(&line.workload) => 0,
        true => 1,
        false => 2,
    };
    let size = |line: &Line| line.estimate.map_or(0.0, |e| e.mean.abs());
    chosen.sort_by(|a, b| rank(a.line).cmp(&rank(b.line)).then(size(b.line).total_cmp(&size(a.line))));
    chosen.truncate(LINES);
    chosen
}

fn cells(row: &Row<'_>) -> Vec<String> {
    vec![
        format!("  {} {} {}", row.line.workload, row.line.metric.name, row.arrow()),
        shown(&row.a),
        shown(&row.b),
        shown(&row.change),
        row.verdict(),
    ]
}
