//! The report as JUnit XML: a test suite for each arm, a test for its survival, for each primary metric and for the suite.
//!
//! The elements and attributes are those that Jenkins, GitLab and GitHub actions read: `testsuites`, `testsuite`, `testcase`, `failure`, `error`,
//! `skipped`, `system-out`. A worse metric is a failure, an inconclusive one is skipped, and what could not be judged is an error. A test whose
//! survival sentences decide nothing passes, with these sentences as its output.

use std::fmt::Write as _;

use bigiron_stats::Verdict;

use super::{is_worse, sentence_of};
use crate::Report;
use crate::sentence::About;
use bigiron_judge::suite::Reason;
use bigiron_judge::{Comparison, State};

/// A test's outcome: the element inside `testcase`, and its message.
enum Outcome {
    Passed,
    /// Passed, with output.
    Noted(String),
    Failed(String),
    Error(String),
    Skipped(String),
}

struct Test {
    class: String,
    name: String,
    outcome: Outcome,
}

/// The document.
pub fn junit(report: &Report<'_>) -> String {
    let plan = report.plan;
    let suites: Vec<(String, Vec<Test>)> = plan.arms[1..]
        .iter()
        .enumerate()
        .map(|(index, arm)| (format!("{} against {}", arm.name, plan.arms[0].name), tests(report, index)))
        .collect();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all = || suites.iter().flat_map(|(_, tests)| tests);
    let _ = writeln!(out, "<testsuites name=\"bigiron\" {}>", counts(all()));
    for (name, tests) in &suites {
        let _ = writeln!(out, "  <testsuite name=\"{}\" {}>", escaped(name), counts(tests.iter()));
        for test in tests {
            case(&mut out, test);
        }
        let _ = writeln!(out, "    <system-out>{}</system-out>", escaped(&crate::text(report)));
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn counts<'t>(tests: impl Iterator<Item = &'t Test> + Clone) -> String {
    let of = |wanted: fn(&Outcome) -> bool| tests.clone().filter(|test| wanted(&test.outcome)).count();
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
        of(|_| true),
        of(|o| matches!(o, Outcome::Failed(_))),
        of(|o| matches!(o, Outcome::Error(_))),
        of(|o| matches!(o, Outcome::Skipped(_)))
    )
}

fn case(out: &mut String, test: &Test) {
    let head = format!("    <testcase classname=\"{}\" name=\"{}\"", escaped(&test.class), escaped(&test.name));
    let (element, message) = match &test.outcome {
        Outcome::Passed => {
            let _ = writeln!(out, "{head}/>");
            return;
        }
        Outcome::Noted(text) => {
            let _ = writeln!(out, "{head}><system-out>{}</system-out></testcase>", escaped(text));
            return;
        }
        Outcome::Failed(message) => ("failure", message),
        Outcome::Error(message) => ("error", message),
        Outcome::Skipped(message) => ("skipped", message),
    };
    let _ = writeln!(out, "{head}><{element} message=\"{}\"/></testcase>", escaped(message));
}

/// The tests of the arm after `index` others.
fn tests(report: &Report<'_>, index: usize) -> Vec<Test> {
    let arm = &report.plan.arms[index + 1].name;
    let test = |class: &str, name: &str, outcome| Test { class: class.to_owned(), name: name.to_owned(), outcome };
    let mut all = Vec::new();
    if report.judgement.state == State::Unfinished {
        let progress = report.sentences.iter().find(|s| s.about == About::Progress).map(|s| s.full());
        all.push(test("study", "finished", Outcome::Error(progress.unwrap_or_default())));
        return all;
    }
    let lost: Vec<String> = report
        .sentences
        .iter()
        .filter(|s| s.about == About::Survival && s.arm.as_deref() == Some(arm))
        .map(|s| s.full())
        .collect();
    let compared = report.judgement.comparisons.get(index);
    let decides = compared.is_some_and(|comparison| survival_decides(report, comparison));
    let survived = match lost.join(". ") {
        _ if lost.is_empty() => Outcome::Passed,
        said if decides => Outcome::Failed(said),
        said => Outcome::Noted(said),
    };
    all.push(test("survival", "every trial completed", survived));
    let Some((comparison, rows)) = compared.zip(report.rows.get(index)) else { return all };
    for row in rows.iter().filter(|row| row.line.metric.primary) {
        let said = sentence_of(report, arm, row).unwrap_or_default();
        all.push(test(&row.line.workload, &row.line.metric.name, of_verdict(row.line.verdict, said)));
    }
    if let Some(suite) = &comparison.suite {
        let said = report.sentences.iter().find(|s| s.about == About::Suite && s.arm.as_deref() == Some(arm));
        all.push(test("suite", "verdict", of_verdict(suite.verdict, said.map(|s| s.full()).unwrap_or_default())));
    }
    all
}

/// Whether the arm's survival counts against it. A warning and a failure that did not repeat do not: the gate passes them, so its test must pass too.
fn survival_decides(report: &Report<'_>, comparison: &Comparison) -> bool {
    let reason = comparison.suite.as_ref().map(|suite| &suite.reason);
    // Unconfirmed failures decide if they are too many for chance, or if no boot of either arm completed.
    let decided = matches!(reason, Some(Reason::Failed | Reason::Complained { .. } | Reason::NeitherSurvived));
    decided || report.judgement.survival[comparison.arm].confirmed() > 0
}

fn of_verdict(verdict: Verdict, said: String) -> Outcome {
    match verdict {
        verdict if is_worse(verdict) => Outcome::Failed(said),
        Verdict::Invalid => Outcome::Error(said),
        Verdict::Inconclusive => Outcome::Skipped(said),
        _ => Outcome::Passed,
    }
}

/// Text of XML 1.0: characters that it cannot contain become a replacement character.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
