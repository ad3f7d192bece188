//! What is said of a search among levers.

use super::{BisectOutcome, BisectReport, CandidateRow, change, changed, metric, nothing, unmeasured};
use crate::bisect::folder::ENDS;
use crate::bisect::levers::{HALF, LeverSearch, LeverSearchResult, LeverSearchState, MOST};
use crate::bisect::study_result::{ArmResult, differs};
use bigiron_report::quantity::Quantity;
use bigiron_report::sentence::join;

impl<'a> BisectReport<'a> {
    /// The report of a search among levers.
    pub fn levers(search: &LeverSearch<'a>) -> BisectReport<'a> {
        let bisection = search.bisection;
        let mut report = BisectReport {
            bisection,
            outcome: BisectOutcome::Unfinished,
            sentences: Vec::new(),
            place: None,
            commits: Vec::new(),
            options: None,
            head: &["switched", "change", "95 %", "boots", "share", ""],
            rows: Vec::new(),
            next: Vec::new(),
            commands: Vec::new(),
            method: method(search),
            tests: search.studies.len().saturating_sub(1),
            boots: search.boots(),
        };
        let marked = conclude(search, &mut report);
        let arms = search.studies.iter().flat_map(|s| s.arms.iter().map(move |arm| (s.folder == ENDS, arm)));
        report.rows = arms.map(|(whole, arm)| row(search, arm, whole, marked.contains(&arm.name))).collect();
        report
    }
}

/// Adds the sentences; returns the names of the arms that are the answer.
fn conclude(search: &LeverSearch<'_>, report: &mut BisectReport<'_>) -> Vec<String> {
    let bisection = search.bisection;
    let (good, bad) = (&bisection.candidates[0], &bisection.candidates[1]);
    let ends = search.studies.first().and_then(|s| s.arms.first());
    let whole = ends.and_then(|arm| arm.estimate).map_or_else(String::new, |e| changed(e.mean, e.ci95));
    let percent = |share: Option<f64>| share.map_or_else(String::new, percent);
    let over_all = format!("Overall, `{}` is {whole} against `{}`", bad.name, good.name);
    let single = |i: &usize| format!("`{}` ({} of it)", search.name(&[*i]), percent(search.share(&[*i])));
    let found = match search.state() {
        LeverSearchState::Ends | LeverSearchState::Study { .. } => {
            report.sentences.push("Unfinished: the same command resumes".to_owned());
            return Vec::new();
        }
        LeverSearchState::Done(found) => found,
    };
    let mut names = Vec::new();
    match found {
        LeverSearchResult::Nothing(verdict) => {
            nothing(report, verdict, &whole);
        }
        LeverSearchResult::Unmeasured => {
            report.outcome = BisectOutcome::Unmeasured;
            let study = &search.studies[0];
            let failed = [(good.name.as_str(), &study.failed), (bad.name.as_str(), &study.arms[0].failed)];
            report.sentences.push(unmeasured(bisection, &failed));
        }
        LeverSearchResult::Alone(levers) => {
            report.outcome = BisectOutcome::Found;
            names = levers.iter().map(|i| search.name(&[*i])).collect();
            let makes = if levers.len() == 1 { "causes" } else { "cause, each alone," };
            let said: Vec<String> = levers.iter().map(single).collect();
            report.sentences.push(format!("{} {makes} the difference of {}", join(&said), metric(bisection)));
            report.sentences.push(over_all);
        }
        LeverSearchResult::Together(set) => {
            report.outcome = BisectOutcome::FoundWithOthers;
            names.push(search.name(&set));
            let said: Vec<String> = set.iter().map(|i| format!("`{}`", search.name(&[*i]))).collect();
            let share = search.share(&set).or((set.len() == search.differences().len()).then_some(1.0));
            report.sentences.push(format!(
                "{} together cause the difference of {} ({} of it); none of them alone causes half",
                join(&said),
                metric(bisection),
                percent(share)
            ));
            report.sentences.push(over_all);
        }
        LeverSearchResult::Unexplained => {
            report.outcome = BisectOutcome::Unexplained;
            report.sentences.push(format!(
                "No lever alone causes half of the difference of {}, and no set that was tried causes most of it: several act together",
                metric(bisection)
            ));
            report.sentences.push(over_all);
        }
    }
    if matches!(report.outcome, BisectOutcome::Found) {
        report.next.push("Find the causes by function".to_owned());
        let lever = &names[0];
        let arm = match lever.strip_prefix("without ") {
            Some(_) => bad.text(),
            None => format!("{},{lever}", good.text()),
        };
        let why = if bisection.clock.is_exact() { " --why 1" } else { "" };
        report.commands.push(format!(
            "bigiron compare {} {arm} {} {}{why}",
            good.text(),
            bisection.workload,
            bisection.options
        ));
    }
    names
}

fn percent(share: f64) -> String {
    Quantity::percent(100.0 * share, 0).to_string()
}

fn row(search: &LeverSearch<'_>, arm: &ArmResult, whole: bool, marked: bool) -> CandidateRow {
    let shown = arm.estimate.map(|e| change(e.mean, e.ci95));
    let (change, interval) = shown.map_or((None, None), |(change, interval)| (Some(change), interval));
    let share = match (arm.estimate, search.whole()) {
        (Some(estimate), Some(whole)) => Some(estimate.mean / whole),
        _ => None,
    };
    let is_known = search.studies.first().and_then(|s| s.arms.first()).is_some_and(|ends| differs(ends.verdict));
    let share = share.filter(|_| is_known);
    CandidateRow {
        subject: None,
        build: None,
        name: if whole { format!("all: {}", arm.name) } else { arm.name.clone() },
        release: Some(arm.kernel.release.clone()),
        change,
        interval,
        boots: arm.boots,
        weight: share,
        shown: share.map_or_else(String::new, percent),
        word: if arm.ratios.is_empty() { "failed" } else { arm.verdict.name() },
        marked,
        notes: arm.failed.iter().map(|failed| format!("`{}` {failed}", arm.name)).collect(),
    }
}

fn method(search: &LeverSearch<'_>) -> Vec<String> {
    let b = search.bisection;
    vec![
        format!(
            "Every line is `{}` with these levers set as `{}` has them, against `{}` unchanged; {} pairs, {} clock, seed {}",
            b.candidates[0].name, b.candidates[1].name, b.candidates[0].name, b.pairs_per_step, b.clock, b.seed
        ),
        format!(
            "share: the part of the whole difference, of logarithms; one lever is named as the cause from {} on, several from {} on",
            percent(HALF),
            percent(MOST)
        ),
    ]
}
