//! The report as OpenMetrics text, for the node exporter's textfile collector or a push gateway (Prometheus).
//!
//! Format: <https://github.com/OpenObservability/OpenMetrics>, version 1.0: `TYPE` and `HELP` before the samples of a family, families in one piece,
//! label values escaped, `# EOF` at the end. Ratios are B to A, without a unit in per cent.

use std::fmt::Write as _;

use super::verdict;
use crate::Report;
use crate::row::Row;
use bigiron_stats::Verdict;

/// The text.
pub fn openmetrics(report: &Report<'_>) -> String {
    let mut out = String::new();
    let verdicts = Verdict::ALL.map(Verdict::name);
    family(&mut out, "bigiron_study_verdict", "stateset", "The verdict over all arms; none is set while there is no result.");
    for name in verdicts {
        let is = u8::from(name == verdict(report));
        let labels = labels(&[("study", &report.title()), ("bigiron_study_verdict", name)]);
        let _ = writeln!(out, "bigiron_study_verdict{labels} {is}");
    }
    family(&mut out, "bigiron_trials", "gauge", "Trials of an arm by their outcome.");
    for survival in &report.judgement.survival {
        let failed = survival.boots - survival.completed;
        let counts =
            [("completed", survival.completed), ("failed", failed), ("void", survival.void), ("missing", survival.missing)];
        for (outcome, count) in counts {
            let labels = labels(&[("arm", &survival.arm), ("outcome", outcome)]);
            let _ = writeln!(out, "bigiron_trials{labels} {count}");
        }
    }
    if report.has_numbers() {
        numbers(&mut out, report, &verdicts);
    }
    out.push_str("# EOF\n");
    out
}

/// Reads a figure of a row.
type Figure = fn(&Row<'_>) -> Option<f64>;

fn numbers(out: &mut String, report: &Report<'_>, verdicts: &[&str]) {
    let figures: [(&str, &str, Figure); 6] = [
        ("bigiron_baseline_mean", "The baseline's geometric mean, in the unit of the label `unit`.", |row| row.line.a),
        ("bigiron_arm_mean", "The arm's geometric mean, in the unit of the label `unit`.", |row| row.line.b),
        ("bigiron_change_ratio", "The ratio of geometric means, arm to baseline.", |row| {
            row.line.estimate.map(|e| e.mean.exp())
        }),
        ("bigiron_change_low_ratio", "The lower end of its 95 % interval.", |row| {
            row.line.estimate.and_then(|e| e.ci95).map(|ci| ci.0.exp())
        }),
        ("bigiron_change_high_ratio", "The upper end of its 95 % interval.", |row| {
            row.line.estimate.and_then(|e| e.ci95).map(|ci| ci.1.exp())
        }),
        ("bigiron_detectable_ratio", "The smallest change that would be detected with 80 % power, as a ratio.", |row| {
            row.line.estimate.and_then(|e| e.mde).map(f64::exp)
        }),
    ];
    for (name, help, figure) in figures {
        family(out, name, "gauge", help);
        for (arm, row) in rows(report) {
            if let Some(value) = figure(row).filter(|value| value.is_finite()) {
                let _ = writeln!(out, "{name}{} {value}", labels(&of_row(report, arm, row)));
            }
        }
    }
    family(out, "bigiron_verdict", "stateset", "The verdict on a metric of an arm.");
    for (arm, row) in rows(report) {
        for name in verdicts {
            let mut all = of_row(report, arm, row).to_vec();
            all.push(("bigiron_verdict", name));
            let _ = writeln!(out, "bigiron_verdict{} {}", labels(&all), u8::from(*name == row.line.verdict.name()));
        }
    }
}

/// Each row with its arm's name.
fn rows<'r, 'a>(report: &'r Report<'a>) -> impl Iterator<Item = (&'r str, &'r Row<'a>)> {
    report.judgement.comparisons.iter().zip(&report.rows).flat_map(|(comparison, rows)| {
        let arm = report.plan.arms[comparison.arm].name.as_str();
        rows.iter().map(move |row| (arm, row))
    })
}

fn of_row<'r>(report: &'r Report<'_>, arm: &'r str, row: &'r Row<'_>) -> [(&'static str, &'r str); 6] {
    [
        ("baseline", &report.plan.arms[0].name),
        ("arm", arm),
        ("workload", &row.line.workload),
        ("metric", &row.line.metric.name),
        ("unit", row.line.metric.unit.name()),
        ("role", if row.line.metric.primary { "primary" } else { "exploratory" }),
    ]
}

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# TYPE {name} {kind}\n# HELP {name} {help}");
}

fn labels(all: &[(&str, &str)]) -> String {
    let each: Vec<String> = all.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", each.join(","))
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
