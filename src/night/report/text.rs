//! The grid as text of at most 100 columns.

use std::fmt::Write;

use super::{Changed, NightReport, ReportRow};
use bigiron_report::quantity::Quantity;
use bigiron_report::table::{Line, clip, table, wrap};
use bigiron_report::text::{command, list};

/// Maximum number of metrics named for each row, the largest changes first; the page and the JSON have all.
const NAMED: usize = 10;

/// Maximum width of a folder's name, so that the names of rows are not cut.
const FOLDER: usize = 12;

/// Replaces a space at which no line may be broken, until the lines are broken.
const GLUE: &str = "\u{1f}";

/// The whole report of a night.
pub fn text(report: &NightReport) -> String {
    let mut out = wrap(&format!("{}, {}", report.title(), report.design()), "", "  ");
    out.push('\n');
    for arm in 0..report.grid.verdicts.len() {
        out.push_str(&wrap(&report.sentence(arm), "", "  "));
    }
    for arm in 0..report.grid.verdicts.len() {
        let _ = writeln!(out, "\nA = {}, B = {}", report.grid.arms[0], report.grid.arms[arm + 1]);
        grid(&mut out, &report.rows(arm));
    }
    for previous in &report.previous {
        let (rows, reasons) = NightReport::previous_rows(previous);
        out.push('\n');
        out.push_str(&wrap(&report.previous_title(previous), "", "  "));
        if !rows.is_empty() {
            grid(&mut out, &rows);
        }
        for reason in reasons {
            out.push_str(&wrap(&reason, "  ", "    "));
        }
    }
    list(&mut out, "How to read it", &report.method());
    out.push_str("\nHow to repeat it\n");
    out.push_str(&command(&report.night.repeat));
    out
}

fn grid(out: &mut String, rows: &[ReportRow]) {
    let head = ["row", "pass", "improved", "regressed", "result A", "result B", "change", "verdict", "report"];
    let shown = |q: &Option<Quantity>| q.as_ref().map_or_else(String::new, ToString::to_string);
    // A report's folder suffices to find it.
    let folder = |row: &ReportRow| clip(row.report.trim_end_matches("/report.html"), FOLDER);
    let mut lines = vec![Line::Cells(head.map(str::to_owned).to_vec())];
    for row in rows {
        lines.push(Line::Cells(vec![
            row.name.clone(),
            row.outcome.to_owned(),
            row.yes(&row.improved),
            row.yes(&row.regressed),
            shown(&row.a),
            shown(&row.b),
            shown(&row.change),
            row.verdict.map_or_else(String::new, |v| v.to_string()),
            folder(row),
        ]));
    }
    out.push_str(&table(&[false, false, false, false, true, true, true, false, false], &lines));
    for row in rows {
        let changed = |out: &mut String, what: &str, changed: &[Changed]| {
            if !changed.is_empty() {
                let mut all: Vec<String> = changed.iter().take(NAMED).map(|c| c.text().replace(' ', GLUE)).collect();
                if changed.len() > NAMED {
                    all.push(format!("and {} more", changed.len() - NAMED));
                }
                let text = wrap(&format!("{} {what}: {}", row.name, all.join(", ")), "  ", "    ");
                out.push_str(&text.replace(GLUE, " "));
            }
        };
        changed(out, "improved", &row.improved);
        changed(out, "regressed", &row.regressed);
        for note in &row.notes {
            out.push_str(&wrap(&format!("{}: {note}", row.name), "  ", "    "));
        }
    }
}
