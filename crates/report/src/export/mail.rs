//! The report as a mail to a list of kernel developers: plain text of at most 72 columns, the reproducing command on a line of its own.

use std::fmt::Write as _;

use super::{first_of_all, telling, verdict};
use crate::Report;
use crate::quantity::shown;
use crate::scope;
use crate::table::{Line, table_of_width, wrap_at};
use crate::text::copies_decide;
use crate::why;

/// The width that mail programs and the archives of kernel lists expect.
const WIDTH: usize = 72;
/// Maximum number of metrics in the subject.
const IN_SUBJECT: usize = 2;
/// Maximum number of metrics in a table.
const METRICS: usize = 12;
/// Maximum number of causes for one metric.
const CAUSES: usize = 5;

/// The subject, an empty line, and the body.
pub fn mail(report: &Report<'_>) -> String {
    let mut out = format!("Subject: {}\n\n", subject(report));
    let kernels: Vec<String> =
        scope::booted(report.plan, report.records).iter().map(|k| format!("{}: {}", k.arm, k.release)).collect();
    let _ = writeln!(out, "Hi,\n");
    for sentence in first_of_all(report).chain(effects(report)) {
        out.push_str(&wrap_at(WIDTH, &format!("{sentence}."), "", ""));
        out.push('\n');
    }
    for (comparison, rows) in report.judgement.comparisons.iter().zip(&report.rows) {
        let mut rows: Vec<_> = telling(rows).collect();
        if rows.is_empty() || !report.has_numbers() {
            continue;
        }
        // Primaries first; the others by the size of their change.
        let size = |row: &crate::row::Row<'_>| row.line.estimate.map_or(0.0, |e| e.mean.abs());
        rows.sort_by(|a, b| b.line.metric.primary.cmp(&a.line.metric.primary).then(size(b).total_cmp(&size(a))));
        let more = rows.len().saturating_sub(METRICS);
        rows.truncate(METRICS);
        let _ = writeln!(out, "{} -> {}:\n", report.plan.arms[0].name, report.plan.arms[comparison.arm].name);
        let cells = |row: &&crate::row::Row<'_>| {
            Line::Cells(vec![
                format!("  {} {}", row.line.workload, row.line.metric.name),
                shown(&row.a),
                shown(&row.b),
                shown(&row.change),
                row.verdict(),
            ])
        };
        let lines: Vec<Line> = rows.iter().map(cells).collect();
        out.push_str(&table_of_width(WIDTH, &[false, true, true, true, false], &lines));
        if more > 0 {
            let _ = writeln!(out, "  and {more} more metrics that differ");
        }
        out.push('\n');
    }
    if let Some(copies) = copies_decide(report) {
        out.push_str(&wrap_at(WIDTH, &format!("{copies}."), "", ""));
        out.push('\n');
    }
    causes(&mut out, report);
    let _ = writeln!(out, "Kernels:");
    for kernel in kernels {
        out.push_str(&wrap_at(WIDTH, &kernel, "  ", "    "));
    }
    out.push('\n');
    let not_tested = scope::not_tested_in_short(report.plan);
    out.push_str(&wrap_at(WIDTH, &format!("Not tested: {not_tested}."), "", ""));
    let _ = writeln!(out, "\nReproduce:\n\n  {}\n", report.plan.repeat.replace('\n', "\n  "));
    let _ = writeln!(out, "Tested with bigiron {}, seed {}.", report.plan.bigiron, report.plan.design.seed);
    out
}

/// `[bigiron] dbsim throughput -7.9 % (worse): debian:6.12 against debian:6.1`, in one line.
fn subject(report: &Report<'_>) -> String {
    let primaries = report.rows.iter().flatten().filter(|row| row.line.metric.primary);
    let mut differing: Vec<_> = primaries.filter(|row| row.line.verdict.name() == verdict(report)).collect();
    differing.truncate(IN_SUBJECT);
    let what: Vec<String> = differing
        .iter()
        .map(|row| format!("{} {} {}", row.line.workload, row.line.metric.name, shown(&row.change)))
        .collect();
    let what = if what.is_empty() { String::new() } else { format!("{} ", what.join(", ")) };
    format!("[bigiron] {what}({}): {}", verdict(report), report.title()).replace(['\n', '\r'], " ")
}

/// The sentences on workloads and suites.
fn effects<'a>(report: &'a Report<'_>) -> impl Iterator<Item = String> + 'a {
    use crate::sentence::About;
    report
        .sentences
        .iter()
        .filter(|s| matches!(s.about, About::Workload | About::Family | About::Suite))
        .map(|s| s.full())
}

/// The functions that explain the primaries, at most [`CAUSES`] each.
fn causes(out: &mut String, report: &Report<'_>) {
    let is_primary = |workload: &str, metric: &str| {
        report
            .rows
            .iter()
            .flatten()
            .any(|row| row.line.metric.primary && row.line.workload == workload && row.line.metric.name == metric)
    };
    for causes in report.why.causes.iter().filter(|c| is_primary(&c.workload, &c.metric)) {
        if causes.causes.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "Where the difference in {} {} is spent (ns{} per operation):\n",
            causes.workload,
            causes.metric,
            why::of_cpus(causes).unwrap_or_default()
        );
        let cells = |cause: &bigiron_judge::causes::Cause| {
            Line::Cells(vec![
                format!("  {}", cause.name),
                format!("{:.1}", cause.a),
                format!("{:.1}", cause.b),
                format!("{:+.1}", cause.b - cause.a),
            ])
        };
        let lines: Vec<Line> = causes.causes.iter().take(CAUSES).map(cells).collect();
        out.push_str(&table_of_width(WIDTH, &[false, true, true, true], &lines));
        out.push('\n');
    }
}
