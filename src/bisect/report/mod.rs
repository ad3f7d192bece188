//! The report of a bisection: the place or the levers, everything that was tested, and what to do next.
//!
//! Invariant: every format renders the same [`BisectReport`].

mod commits;
mod configs;
mod json;
mod kernels;
mod levers;
mod text;

use std::path::Path;

use bigiron_stats::Verdict;
use serde::Serialize;

use crate::bisect::Bisection;
use crate::bisect::config::Switched;
use crate::bisect::git::touched::Function;
use crate::bisect::git::{Built, Commit, Touched};
use bigiron_model::metric::Better;
use bigiron_report::quantity::{Quantity, percent_decimals};

pub use configs::OptionsAtChange;
pub use json::json;
pub use text::text;

/// The contents of a search's folder besides its tests and builds.
pub struct FolderExtras<'d> {
    /// The folder, as named on the command line.
    pub dir: &'d Path,
    pub touched: Option<Touched>,
    pub switched: Option<Switched>,
}

/// The complete report of a bisection.
pub struct BisectReport<'a> {
    pub bisection: &'a Bisection,
    /// The outcome as one word, for programs.
    pub outcome: BisectOutcome,
    /// The result; the first sentence summarizes it.
    pub sentences: Vec<String>,
    pub place: Option<ChangePlace>,
    /// The commits at one of which the change is, as far as they are listed.
    pub commits: Vec<CommitDetails>,
    /// The options at one of which the change is.
    pub options: Option<OptionsAtChange>,
    /// Headings of the table's columns after the first.
    head: &'static [&'static str],
    pub rows: Vec<CandidateRow>,
    /// Suggested next steps.
    pub next: Vec<String>,
    /// The command for each next step.
    pub commands: Vec<String>,
    pub method: Vec<String>,
    pub tests: usize,
    pub boots: u32,
}

/// How a bisection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BisectOutcome {
    Found,
    /// The place is found, but other kernels show further changes; or several levers act together.
    FoundWithOthers,
    /// No single place.
    Several,
    /// Neither a single lever nor any set that was tried.
    Unexplained,
    NoDifference,
    /// The comparison of the ends is inconclusive.
    EndsInconclusive,
    Unmeasured,
    Unsettled,
    Unfinished,
}

/// Where the change lies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangePlace {
    pub good: String,
    pub bad: String,
    pub probability: f64,
    /// Kernels between the two that could not be tested, or whose side is open.
    pub between: Vec<String>,
}

/// A commit at which the change may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommitDetails {
    #[serde(flatten)]
    pub commit: Commit,
    /// Why it was not tested, if it is not the first candidate after the change.
    pub untested: Option<String>,
    pub files: Vec<String>,
    /// Functions whose cost changed and that these files define, the largest change first; null without a profile.
    pub functions: Option<Vec<Function>>,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateRow {
    pub name: String,
    /// The release that it booted, if known.
    pub release: Option<String>,
    /// The first line of a commit's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The result of its build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Built>,
    /// Relative to the first.
    pub change: Option<Quantity>,
    /// 95 %, in per cent.
    pub interval: Option<String>,
    pub boots: u32,
    /// Of a kernel: the probability that it lies after the change; of levers: the share of the difference.
    pub weight: Option<f64>,
    /// The weight as shown in the text.
    #[serde(skip)]
    shown: String,
    pub word: &'static str,
    /// Whether the answer begins at this row.
    pub marked: bool,
    /// Errors of this candidate.
    pub notes: Vec<String>,
}

/// A change on the log scale with its interval: the change, and `low … high`.
fn change(mean: f64, interval: Option<(f64, f64)>) -> (Quantity, Option<String>) {
    let percent = |log: f64| 100.0 * log.exp_m1();
    let decimals = percent_decimals(percent(mean), interval.map(|(low, high)| (percent(low), percent(high))));
    let shown = |log: f64| Quantity::change(log, decimals);
    (shown(mean), interval.map(|(low, high)| format!("{} … {}", shown(low).number(), shown(high).number())))
}

/// `+5.3 % (+5.1 … +5.5)`.
fn changed(mean: f64, interval: Option<(f64, f64)>) -> String {
    match change(mean, interval) {
        (change, Some(interval)) => format!("{change} ({interval})"),
        (change, None) => change.to_string(),
    }
}

/// A probability in per cent; values close to 0 or 1 are not rounded to 0 or 1.
fn probability(p: f64) -> String {
    match p {
        p if p > 0.0 && p < 0.001 => "< 0.1 %".to_owned(),
        p if p < 1.0 && p > 0.999 => "> 99.9 %".to_owned(),
        p => Quantity::percent(100.0 * p, 1).to_string(),
    }
}

impl BisectReport<'_> {
    /// `micro:fork-exit ↓`.
    fn metric(&self) -> String {
        title(self.bisection)
    }
}

fn metric(bisection: &Bisection) -> String {
    format!("`{}:{}`", bisection.workload, bisection.metric.name)
}

/// The same with the better direction.
fn title(bisection: &Bisection) -> String {
    let arrow = match bisection.metric.better {
        Better::Higher => "↑",
        Better::Lower => "↓",
    };
    format!("{}:{} {arrow}", bisection.workload, bisection.metric.name)
}

/// For ends without a proven difference: adds how they compare, and what to do next.
fn nothing(report: &mut BisectReport<'_>, verdict: Verdict, said: &str) {
    let bisection = report.bisection;
    let [good, .., bad] = &bisection.candidates[..] else { return };
    let compared = format!("in {}, `{}` is {said} against `{}`: {verdict}", metric(bisection), bad.name, good.name);
    let (outcome, sentence, next) = match verdict {
        Verdict::Same => (
            BisectOutcome::NoDifference,
            format!("Nothing to bisect: {compared}"),
            "Set a smaller margin: `--margin KIND=PERCENT`",
        ),
        Verdict::Invalid => (
            BisectOutcome::EndsInconclusive,
            format!("The ends cannot be compared on this machine: {compared}"),
            "`bigiron report` of the study of the ends says why; once `bigiron selftest` passes, a new bisection is valid",
        ),
        _ => (
            BisectOutcome::EndsInconclusive,
            format!("It is not settled whether the ends differ: {compared}"),
            "Run more pairs: `--pairs N`",
        ),
    };
    report.outcome = outcome;
    report.sentences.push(sentence);
    report.next.push(next.to_owned());
}

/// The sentence for ends one of which gave no values.
fn unmeasured(bisection: &Bisection, failed: &[(&str, &Option<String>)]) -> String {
    let said: Vec<String> =
        failed.iter().filter_map(|(name, failed)| failed.as_ref().map(|failed| format!("`{name}` {failed}"))).collect();
    format!("{} was not measured on both ends: {}", metric(bisection), bigiron_report::sentence::join(&said))
}
