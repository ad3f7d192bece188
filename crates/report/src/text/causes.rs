//! The text report's sections on why lines differ, on modelled cycles, and on what lines waited for.

use std::fmt::Write;

use super::super::table::{Line, table, wrap};
use super::super::{Report, locks, modelled, shared, why};
use bigiron_judge::Comparison;
use bigiron_judge::causes::Causes;

/// The causes of the lines that differ.
pub(super) fn why(out: &mut String, report: &Report<'_>) {
    let found = &report.why;
    if found.is_empty() {
        return;
    }
    out.push_str("\nWhy\n");
    for missing in &found.missing {
        out.push_str(&wrap(missing, "  - ", "    "));
    }
    let mut left = 0;
    for (index, comparison) in report.judgement.comparisons.iter().enumerate() {
        let ordered = why::ordered(found, index, comparison);
        let selected = why::selected(&ordered, comparison);
        left += ordered.len() - selected;
        if report.rows.len() > 1 && !ordered.is_empty() {
            let _ = writeln!(out, "  {} against {}", report.plan.arms[comparison.arm].name, report.plan.arms[0].name);
        }
        for causes in &ordered[..selected] {
            line_causes(out, report, comparison, causes);
        }
        let shared = shared::shared(report, index);
        if !shared.is_empty() {
            out.push_str("  Behind these lines, differences between A and B\n");
        }
        for text in shared {
            out.push_str(&wrap(&text, "  - ", "    "));
        }
    }
    if left > 0 {
        let lines = if left == 1 { "line has its" } else { "lines have their" };
        out.push_str(&wrap(&format!("{left} more {lines} causes in the HTML and JSON reports."), "  ", "  "));
    }
    if let Some(method) = why::method(found) {
        out.push_str(&wrap(&method, "  ", "  "));
    }
}

/// Windows shown of the table of modelled cycles besides those of primaries.
const WINDOWS: usize = 8;

/// The cycles that the windows would take on a processor, also where no line differs.
pub(super) fn modelled_cycles(out: &mut String, report: &Report<'_>) {
    let Some(legend) = modelled::legend(report) else { return };
    out.push_str("\nModelled cycles\n");
    let cells = |texts: [&str; 6]| Line::Cells(texts.iter().map(|t| (*t).to_owned()).collect());
    let mut left = 0;
    for (index, comparison) in report.judgement.comparisons.iter().enumerate() {
        let all = modelled::windows(report, index, comparison);
        if all.is_empty() {
            continue;
        }
        if report.rows.len() > 1 {
            let _ = writeln!(out, "  {} against {}", report.plan.arms[comparison.arm].name, report.plan.arms[0].name);
        }
        let selected = all.len().min(WINDOWS + all.iter().filter(|(is_primary, _)| *is_primary).count());
        left += all.len() - selected;
        let mut lines = vec![cells(["  metric", "clock", "A", "B", "change", ""])];
        for (_, row) in &all[..selected] {
            lines.push(cells([&format!("  {}", row.name), &row.clock, &row.a, &row.b, &row.change, row.agreement]));
        }
        out.push_str(&table(&[false, true, true, true, true, false], &lines));
    }
    if left > 0 {
        let windows = if left == 1 { "window, which differs less, is" } else { "windows, which differ less, are" };
        out.push_str(&wrap(&format!("{left} more {windows} in the HTML and JSON reports."), "  ", "  "));
    }
    out.push_str(&wrap(&legend, "  ", "  "));
}

/// The causes of one line.
fn line_causes(out: &mut String, report: &Report<'_>, comparison: &Comparison, causes: &Causes) {
    let decides = if why::decides(comparison, &causes.workload, &causes.metric) { why::DECIDES } else { "" };
    out.push_str(&wrap(&format!("{}{decides}", why::head(causes)), "  ", "    "));
    let shown = causes.listed.min(why::ROWS);
    let cells = |texts: [&str; 5]| Line::Cells(texts.iter().map(|t| (*t).to_owned()).collect());
    let mut lines = vec![cells(["    share", "change, ns", "A", "B", "in"])];
    for cause in &causes.causes[..shown] {
        let share = why::share(cause.delta() / causes.delta());
        lines.push(cells([
            &format!("    {share:>7}"),
            &why::change(cause),
            &why::ns(cause.a),
            &why::ns(cause.b),
            &why::name(cause),
        ]));
    }
    out.push_str(&table(&[false, true, true, true, false], &lines));
    for text in report.told(causes, shown) {
        out.push_str(&wrap(&text, "    ", "    "));
    }
}

/// What these lines waited for.
pub(super) fn waits(out: &mut String, report: &Report<'_>) {
    let (plan, found) = (report.plan, &report.why.locks);
    if found.traced.is_none() {
        return;
    }
    out.push_str("\nLocks\n");
    for (arm, why) in &found.untold {
        out.push_str(&wrap(&format!("{arm}: {why}"), "  - ", "    "));
    }
    for line in &found.lines {
        let comparison = &report.judgement.comparisons[line.comparison];
        let arms = (plan.arms[0].name.as_str(), plan.arms[comparison.arm].name.as_str());
        out.push_str(&locks::text(line, arms, plan.machine.cpus, locks::is_primary(line, &comparison.lines)));
    }
    if let Some(method) = locks::method(found) {
        out.push_str(&wrap(&method, "  ", "  "));
    }
}
