//! Formats that other programs read: pull requests, test results, mail, monitoring, streams.
//!
//! Invariant: sentences, figures and verdicts are those of the report; nothing here judges.

pub mod jsonl;
pub mod junit;
pub mod mail;
pub mod markdown;
pub mod openmetrics;

#[cfg(test)]
mod tests;

use bigiron_stats::Verdict;

use super::Report;
use super::row::Row;
use super::sentence::About;

/// The verdict of the whole study in a word or two: `unfinished` where there is none yet.
fn verdict(report: &Report<'_>) -> &'static str {
    match report.judgement.decision() {
        Some(verdict) => verdict.name(),
        None if report.judgement.verdict.is_some() => "no result",
        None => "unfinished",
    }
}

/// The sentences on the survival of arms and on progress: what comes before any effect.
fn first_of_all<'a>(report: &'a Report<'_>) -> impl Iterator<Item = String> + 'a {
    let first = |about: About| matches!(about, About::Progress | About::Survival);
    report.sentences.iter().filter(move |s| first(s.about)).map(|s| s.full())
}

/// The rows that decide, and the exploratory ones whose difference survives its correction.
fn telling<'r, 'a>(rows: &'r [Row<'a>]) -> impl Iterator<Item = &'r Row<'a>> {
    rows.iter().filter(|row| row.line.metric.primary || row.line.discovery())
}

/// The full sentence of a primary line of `arm`.
fn sentence_of(report: &Report<'_>, arm: &str, row: &Row<'_>) -> Option<String> {
    let of = |s: &&super::sentence::Sentence| {
        s.about == About::Workload
            && s.arm.as_deref() == Some(arm)
            && s.workload.as_deref() == Some(row.line.workload.as_str())
    };
    report.sentences.iter().find(of).map(|s| s.full())
}

/// Whether the verdict is one of a difference for the worse.
fn is_worse(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Worse | Verdict::SlightlyWorse)
}
