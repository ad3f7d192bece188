//! The report as CSV: one row per arm, workload and metric. The columns are described in docs/reference/report.md.
//!
//! Invariant: numbers are unrounded and carry no unit; the columns `unit` and `*_percent` give it.

use super::Report;
use bigiron_judge::counters::ComparedCounter;
use bigiron_judge::line::Line;
use bigiron_model::printable::printable;

/// The name of a column and the function that reads its value.
type Column = (&'static str, fn(&Context<'_>) -> String);

struct Context<'a> {
    report: &'a Report<'a>,
    arm: usize,
    line: &'a Line,
    copies_decide: bool,
}

const COLUMNS: &[Column] = &[
    ("arm", |c| c.report.plan.arms[c.arm].name.clone()),
    ("baseline", |c| c.report.plan.arms[0].name.clone()),
    ("workload", |c| c.line.workload.clone()),
    ("metric", |c| c.line.metric.name.clone()),
    ("role", |c| if c.line.metric.primary { "primary" } else { "exploratory" }.to_owned()),
    ("unit", |c| word(&c.line.metric.unit)),
    ("better", |c| word(&c.line.metric.better)),
    ("kind", |c| word(&c.line.metric.kind)),
    ("clock", |c| c.report.plan.clock.name().to_owned()),
    ("baseline_mean", |c| number(c.line.a)),
    ("arm_mean", |c| number(c.line.b)),
    ("change_percent", |c| number(c.line.estimate.map(|e| percent(e.mean)))),
    ("ci95_low_percent", |c| number(c.line.estimate.and_then(|e| e.ci95).map(|ci| percent(ci.0)))),
    ("ci95_high_percent", |c| number(c.line.estimate.and_then(|e| e.ci95).map(|ci| percent(ci.1)))),
    ("ci90_low_percent", |c| number(c.line.estimate.and_then(|e| e.ci90).map(|ci| percent(ci.0)))),
    ("ci90_high_percent", |c| number(c.line.estimate.and_then(|e| e.ci90).map(|ci| percent(ci.1)))),
    ("p", |c| number(c.line.estimate.map(|e| e.p))),
    ("adjusted_p", |c| number(Some(c.line.adjusted_p))),
    ("smallest_visible_percent", |c| number(c.line.estimate.and_then(|e| e.mde).map(percent))),
    ("margin_percent", |c| number(Some(100.0 * c.line.margin))),
    ("pairs", |c| c.line.deltas.len().to_string()),
    ("pairs_failed", |c| c.line.missing.failed.to_string()),
    ("pairs_absent", |c| c.line.missing.absent.to_string()),
    ("verdict", |c| c.line.verdict.to_string()),
    ("unadjusted_verdict", |c| c.line.unadjusted.unwrap_or(c.line.verdict).to_string()),
    ("more_pairs", |c| c.line.more_pairs.map_or_else(String::new, |n| n.to_string())),
    ("copies_decide_sign", |c| c.copies_decide.to_string()),
];

/// A counter's row: in the columns of a line, with `METRIC METRIC …/COUNTER` for the metric.
fn counter(report: &Report<'_>, arm: usize, c: &ComparedCounter) -> Vec<String> {
    let metric = format!("{}/{}", c.metrics.join(" "), c.name);
    let ends = c.change.ci95.map(|(low, high)| (percent(low), percent(high)));
    let cell = |name: &str| match name {
        "arm" => report.plan.arms[arm].name.clone(),
        "baseline" => report.plan.arms[0].name.clone(),
        "workload" => c.workload.clone(),
        "metric" => metric.clone(),
        "role" => "counter".to_owned(),
        "unit" => c.unit.name().to_owned(),
        "clock" => report.plan.clock.name().to_owned(),
        "baseline_mean" => number(Some(c.a)),
        "arm_mean" => number(Some(c.b)),
        "change_percent" => number(Some(percent(c.change.mean))),
        "ci95_low_percent" => number(ends.map(|e| e.0)),
        "ci95_high_percent" => number(ends.map(|e| e.1)),
        "p" => number(Some(c.change.p)),
        "adjusted_p" => number(c.change.adjusted_p),
        "pairs" => c.pairs.to_string(),
        _ => String::new(),
    };
    COLUMNS.iter().map(|(name, _)| cell(name)).collect()
}

/// The rows with a header; the header alone where the report has no numbers.
pub fn csv(report: &Report<'_>) -> String {
    let mut out = COLUMNS.iter().map(|c| c.0).collect::<Vec<_>>().join(",");
    out.push('\n');
    for (comparison, rows) in report.judgement.comparisons.iter().zip(&report.rows) {
        for row in rows {
            let context = Context { report, arm: comparison.arm, line: row.line, copies_decide: row.copies_decide };
            let cells: Vec<String> = COLUMNS.iter().map(|c| quoted(&(c.1)(&context))).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
    }
    for (counts, comparison) in report.counters.iter().zip(&report.judgement.comparisons) {
        for c in &counts.counters {
            let cells: Vec<String> = counter(report, comparison.arm, c).iter().map(|cell| quoted(cell)).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
    }
    out
}

fn percent(log: f64) -> f64 {
    100.0 * log.exp_m1()
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| v.to_string())
}

/// The serialised name of a unit variant.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// RFC 4180. A word that a spreadsheet would compute as a formula begins with an apostrophe, which makes it text there; a number does not.
fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    let cell = printable(&format!("{}{cell}", if is_formula { "'" } else { "" })).into_owned();
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_numbers_stay_numbers() {
        for (cell, want) in [
            ("=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-x", "'-x"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("a\u{1b}[2J", "a␛[2J"),
            ("-3.5", "-3.5"),
            ("-1e-7", "-1e-7"),
            ("micro", "micro"),
        ] {
            assert_eq!(quoted(cell), want, "{cell:?}");
        }
    }
}
