//! The report of a bisection as text of at most 100 columns.

use std::fmt::Write;

use super::BisectReport;
use crate::bisect::SearchKind;
use bigiron_report::table::{Line, clip, table, wrap};
use bigiron_report::text::{command, list};

/// Replaces a space at which no line may be broken, until the lines are broken.
const GLUE: &str = "\u{1f}";

/// Wraps to at most 100 columns and keeps each number with its unit.
fn lines(text: &str, first: &str, rest: &str) -> String {
    let glued = text
        .replace(" %", &format!("{GLUE}%"))
        .replace("> ", &format!(">{GLUE}"))
        .replace(" … ", &format!("{GLUE}…{GLUE}"));
    wrap(&glued, first, rest).replace(GLUE, " ")
}

/// `1 test`, `3 tests`.
fn tests(number: usize) -> String {
    format!("{number} test{}", if number == 1 { "" } else { "s" })
}

/// The whole report.
pub fn text(report: &BisectReport<'_>) -> String {
    let b = report.bisection;
    let title = format!(
        "Bisection of {}: {}, {} and {} boots",
        b.begun.split('T').next().unwrap_or(&b.begun),
        report.metric(),
        tests(report.tests),
        report.boots
    );
    let mut out = lines(&title, "", "  ");
    out.push('\n');
    for sentence in &report.sentences {
        out.push_str(&lines(sentence, "", "  "));
    }
    for commit in &report.commits {
        out.push('\n');
        for (head, text) in commit.lines() {
            out.push_str(&wrap(&text, &format!("  {head:<9}"), "           "));
        }
    }
    if let Some(options) = &report.options {
        out.push('\n');
        for (head, text) in options.lines() {
            out.push_str(&wrap(&text, &format!("  {head:<9}"), "           "));
        }
    }
    if !report.rows.is_empty() {
        out.push('\n');
        out.push_str(&rows(report));
    }
    for note in report.rows.iter().flat_map(|row| &row.notes) {
        out.push_str(&lines(note, "  ", "    "));
    }
    list(&mut out, "How to read it", &report.method);
    out.push_str("\nHow to repeat it\n");
    out.push_str(&command(&b.repeat));
    if !report.next.is_empty() || !report.commands.is_empty() {
        out.push_str("\nWhat next\n");
    }
    for next in &report.next {
        out.push_str(&lines(next, "  ", "    "));
    }
    for text in &report.commands {
        out.push_str(&command(text));
    }
    out
}

fn rows(report: &BisectReport<'_>) -> String {
    let mut lines = vec![Line::Cells(report.head.iter().map(|h| (*h).to_owned()).collect())];
    let columns = report.head.len();
    let widest = if report.bisection.what == SearchKind::Configs { SWITCHED } else { SUBJECT };
    let mut passed = 0;
    for (index, row) in report.rows.iter().enumerate() {
        if is_passed_over(report, index) {
            passed += 1;
            continue;
        }
        lines.extend(gap(&mut passed));
        let mut name = String::new();
        let _ = write!(name, "{}{}", if row.marked { "► " } else { "  " }, row.name);
        let mut cells = vec![
            name,
            row.change.as_ref().map_or_else(String::new, ToString::to_string),
            row.interval.clone().unwrap_or_default(),
            row.boots.to_string(),
            row.shown.clone(),
            row.word.to_owned(),
        ];
        cells.extend((columns > cells.len()).then(|| clip(row.subject.as_deref().unwrap_or(""), widest)));
        lines.push(Line::Cells(cells));
    }
    if let Some(Line::Cells(head)) = lines.first_mut() {
        head[0].insert_str(0, "  ");
    }
    let right = [false, true, true, true, true, false, false];
    table(&right[..columns], &lines)
}

/// Widest subject of a commit in the table.
const SUBJECT: usize = 27;

/// The same for the options of a configuration, whose name is shorter than a commit's.
const SWITCHED: usize = 32;

/// Tables of commits up to this many rows are always shown in full.
const SHORT: usize = 24;

/// Whether a row of a long table is omitted: a commit that was not tested, between others.
fn is_passed_over(report: &BisectReport<'_>, index: usize) -> bool {
    let says = |i: usize| {
        let row = &report.rows[i];
        i == 0
            || i + 1 == report.rows.len()
            || row.boots > 0
            || row.marked
            || !row.notes.is_empty()
            || row.build.is_some()
    };
    let from = index.saturating_sub(1);
    report.rows.len() > SHORT
        && report.rows[index].subject.is_some()
        && !(from..=(index + 1).min(report.rows.len() - 1)).any(says)
}

/// A line that counts omitted rows, if there are any.
fn gap(passed: &mut usize) -> Option<Line> {
    let count = std::mem::take(passed);
    (count > 0).then(|| Line::Heading(format!("  … {count} more that were not tested")))
}
