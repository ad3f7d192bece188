//! The sentences at the top of a report: survival first, then one for each workload, then the suite.
//!
//! Invariant: a sentence is complete by itself: it contains the arms, the change, the interval, the pairs, the clock and the verdict.

use std::collections::BTreeSet;

use bigiron_stats::Verdict;
use serde::Serialize;

use super::quantity::Quantity;
use super::row::Row;
use bigiron_judge::family::Family;
use bigiron_judge::suite::Reason;
use bigiron_judge::survival::Survival;
use bigiron_judge::{Comparison, Judgement, State};
use bigiron_model::metric::{Better, Unit};
use bigiron_model::plan::Plan;

/// The subject of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// The progress of an unfinished study.
    Progress,
    Survival,
    Workload,
    /// The metrics of which a workload's primary is the mean.
    Family,
    Suite,
    /// What a screening cannot show.
    Screening,
}

/// One sentence, without its full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    pub about: About,
    /// The arm that the sentence is about; `None` for all arms.
    pub arm: Option<String>,
    pub workload: Option<String>,
    /// The beginning of the text: a workload's name, `suite`, or empty.
    pub head: String,
    pub text: String,
    pub verdict: Option<Verdict>,
}

impl Sentence {
    /// Head and text.
    pub fn full(&self) -> String {
        if self.head.is_empty() { self.text.clone() } else { format!("{}: {}", self.head, self.text) }
    }
}

/// All sentences of a report, in order.
pub fn sentences(plan: &Plan, judgement: &Judgement, rows: &[Vec<Row<'_>>]) -> Vec<Sentence> {
    let mut all: Vec<Sentence> = Vec::new();
    if judgement.state == State::Unfinished {
        let arms: Vec<&str> = plan.arms.iter().skip(1).map(|a| a.name.as_str()).collect();
        let text = format!(
            "{} of {} {} of {} against {}; no effect is estimated before the end. The command that began it resumes it",
            judgement.done,
            judgement.planned,
            plan.trials(),
            join(&arms),
            plan.arms[0].name
        );
        all.push(Sentence {
            about: About::Progress,
            arm: None,
            workload: None,
            head: "unfinished".into(),
            text,
            verdict: None,
        });
    }
    all.extend(survival(plan, judgement));
    for (comparison, rows) in judgement.comparisons.iter().zip(rows) {
        let arm = &plan.arms[comparison.arm].name;
        for row in rows.iter().filter(|r| r.line.metric.primary) {
            all.push(Sentence {
                about: About::Workload,
                arm: Some(arm.clone()),
                workload: Some(row.line.workload.clone()),
                head: row.line.workload.clone(),
                text: workload(plan, arm, row, rows_primaries(judgement)),
                verdict: Some(row.line.verdict),
            });
        }
        all.extend(comparison.families.iter().map(|of| family(arm, of)));
        all.extend(suite(plan, judgement, comparison));
    }
    if judgement.comparisons.len() > 1
        && let Some(verdict) = judgement.verdict
    {
        let named: Vec<&str> = judgement
            .comparisons
            .iter()
            .filter(|c| c.suite.as_ref().is_some_and(|s| s.verdict == verdict))
            .map(|c| plan.arms[c.arm].name.as_str())
            .collect();
        let text = format!("{} against {}: {verdict}", join(&named), plan.arms[0].name);
        all.push(Sentence {
            about: About::Suite,
            arm: None,
            workload: None,
            head: "all arms".into(),
            text,
            verdict: Some(verdict),
        });
    }
    if plan.is_screening() && judgement.state == State::Finished {
        let text = format!(
            "{} pairs show large changes only, and their intervals are not exact; a decision needs the pairs of a full study",
            plan.design.pairs
        );
        all.push(Sentence {
            about: About::Screening,
            arm: None,
            workload: None,
            head: "screening".into(),
            text,
            verdict: None,
        });
    }
    all
}

fn rows_primaries(judgement: &Judgement) -> usize {
    judgement.comparisons.iter().flat_map(Comparison::primaries).count()
}

/// `x`, `x and y`, `x, y and z`.
pub fn join<S: AsRef<str>>(items: &[S]) -> String {
    match items {
        [] => String::new(),
        [one] => one.as_ref().to_owned(),
        [rest @ .., last] => {
            let rest: Vec<&str> = rest.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", rest.join(", "), last.as_ref())
        }
    }
}

/// `panicked in 3 of 8 boots and hung in 1 (1 of these did not repeat: unconfirmed)`; `None` if none failed.
pub fn failures(plan: &Plan, survival: &Survival) -> Option<String> {
    let parts: Vec<String> = survival
        .failures
        .iter()
        .enumerate()
        .map(|(i, f)| {
            let of = if i == 0 { format!(" of {} {}", survival.boots, plan.trials()) } else { String::new() };
            format!("{} in {}{of}", f.failure.verb(), f.trials.len())
        })
        .collect();
    let unconfirmed = match (survival.failed(), survival.unconfirmed()) {
        (_, 0) => String::new(),
        (1, _) => " (it did not repeat: unconfirmed)".to_owned(),
        (_, n) => format!(" ({n} of these did not repeat: unconfirmed)"),
    };
    (!parts.is_empty()).then(|| format!("{}{unconfirmed}", join(&parts)))
}

fn survival(plan: &Plan, judgement: &Judgement) -> Vec<Sentence> {
    let mut all = Vec::new();
    let Some((baseline, arms)) = judgement.survival.split_first() else { return all };
    let mut push = |arm: &Survival, text: String| {
        all.push(Sentence {
            about: About::Survival,
            arm: Some(arm.arm.clone()),
            workload: None,
            head: String::new(),
            text,
            verdict: None,
        });
    };
    for arm in arms {
        if let Some(text) = failures(plan, arm) {
            push(arm, format!("{} {text}", arm.arm));
        }
    }
    if let Some(text) = failures(plan, baseline) {
        push(baseline, format!("{}, the baseline, {text}", baseline.arm));
    }
    for arm in arms {
        for complaint in arm.new_complaints(baseline) {
            let but = match complaint {
                of if of.decides() => "",
                of if of.is_unconfirmed() => " (unconfirmed, so it decides nothing)",
                _ => " (a warning alone decides nothing)",
            };
            let known = if baseline.has_logged(&complaint.class) { "unconfirmed failures only" } else { "none" };
            let text = format!(
                "{} logged kernel complaints of class `{}` in {} of {} {}, {} in {known}{but}: {}",
                arm.arm,
                complaint.class,
                complaint.boots,
                arm.logs(),
                plan.trials(),
                baseline.arm,
                complaint.lines.first().map_or("", String::as_str)
            );
            push(arm, text);
        }
    }
    all
}

/// A primary's sentence.
fn workload(plan: &Plan, arm: &str, row: &Row<'_>, primaries: usize) -> String {
    let (line, baseline) = (row.line, &plan.arms[0].name);
    let clock = format!("{} clock", plan.clock);
    let missing = line.missing;
    if let (Verdict::Invalid, Some(check)) = (line.verdict, &plan.failed_check) {
        let change = row.change.as_ref().map_or_else(String::new, |change| format!(" ({change})"));
        return format!(
            "the difference between {arm} and {baseline}{change} cannot be told from noise, because the machine failed its last A/A check (Linux {} against \
             itself): invalid",
            check.kernel
        );
    }
    if line.verdict == Verdict::Invalid {
        let planned = line.deltas.len() as u32 + missing.total();
        return format!(
            "{} of {planned} pairs of {arm} and {baseline} lack the metric, more than a quarter: invalid",
            missing.absent
        );
    }
    let (Some(change), Some(estimate)) = (&row.change, &line.estimate) else {
        return format!("no pair of {arm} and {baseline} completed: {}", line.verdict);
    };
    let statement = statement(row, change, arm, baseline);
    // The interval has the sign of the word: "2 % slower (1 … 3 %)", "2 % faster (1 … 3 %)"; an interval across zero keeps its signs.
    let interval = match &row.ci95 {
        None => "no 95 % interval for this few pairs".to_owned(),
        Some((low, high)) => {
            let one_sided = !statement.signed && estimate.ci95.is_some_and(|(l, h)| l >= 0.0 || h <= 0.0);
            let (low, high) = match one_sided {
                true if estimate.mean < 0.0 => (high.size(), low.size()),
                true => (low.size(), high.size()),
                false => (low.clone(), high.clone()),
            };
            format!("95 % CI {} … {}", low.number(), high)
        }
    };
    let units = match plan.design.rebuilds {
        Some(builds) => format!("{}, {builds} builds of each source", row.pairs()),
        None => row.pairs(),
    };
    let inside = format!("({}{interval}, {units}, {clock})", statement.lead);
    let (margin, verdict) = (&row.margin, line.verdict);
    let tail = match (verdict, line.unadjusted) {
        (Verdict::SlightlyBetter | Verdict::SlightlyWorse, Some(unadjusted)) => format!(
            "real, but that it is beyond the {margin} margin does not survive the correction for {primaries} primaries: {verdict} (unadjusted: {unadjusted})"
        ),
        (_, Some(unadjusted)) => {
            let more = more(plan, row);
            format!(
                "that does not survive the correction for {primaries} primaries: {verdict} (unadjusted: {unadjusted}){more}"
            )
        }
        (Verdict::Better | Verdict::Worse, _) => format!("beyond the {margin} margin: {verdict}"),
        (Verdict::SlightlyBetter | Verdict::SlightlyWorse, _) => {
            format!("real, but not shown to be beyond the {margin} margin: {verdict}")
        }
        (Verdict::Same, _) if line.tiny && plan.design.rebuilds.is_some() => {
            format!("within the {margin} margin: same (tiny, but the sources differ: {change})")
        }
        // What is real on the exact clock is a difference of two images, not yet of two sources.
        (Verdict::Same, _) if line.tiny && plan.clock.charges_moves() && !has_kernel_of_baseline(plan, arm) => {
            format!("within the {margin} margin: same (tiny, but these builds differ: {change})")
        }
        (Verdict::Same, _) if line.tiny => format!("within the {margin} margin: same (tiny but real: {change})"),
        (Verdict::Same, _) => format!("within the {margin} margin: same"),
        _ => format!("neither a difference nor its absence (margin {margin}) is shown: {verdict}{}", more(plan, row)),
    };
    format!("{} {inside}; {tail}", statement.text)
}

fn has_kernel_of_baseline(plan: &Plan, arm: &str) -> bool {
    plan.arms.iter().filter(|a| a.name == arm).all(|a| a.kernel == plan.arms[0].kernel)
}

fn more(plan: &Plan, row: &Row<'_>) -> String {
    row.line.more_pairs.map_or_else(String::new, |n| match plan.design.rebuilds {
        Some(_) => {
            format!("; about {} more builds of each source would settle it", n / plan.design.pairs_per_build().max(1))
        }
        None => format!("; about {n} more pairs would settle it"),
    })
}

/// The statement of a sentence, and the beginning of its parenthesis.
struct Statement {
    text: String,
    lead: String,
    /// Whether the interval keeps its signs.
    signed: bool,
}

fn statement(row: &Row<'_>, change: &Quantity, arm: &str, baseline: &str) -> Statement {
    let line = row.line;
    // A change that no interval distinguishes from zero is not described as more or less.
    let shown = line.unadjusted.is_some()
        || line.tiny
        || matches!(line.verdict, Verdict::Better | Verdict::SlightlyBetter | Verdict::SlightlyWorse | Verdict::Worse);
    if !shown {
        let text = match (line.verdict, line.metric.unit) {
            (Verdict::Same, Unit::Ns) => format!("{arm} is as fast as {baseline}"),
            (Verdict::Same, _) => format!("{arm} does as well as {baseline}"),
            _ => format!("{arm} may or may not differ from {baseline}"),
        };
        return Statement { text, lead: format!("{change}, "), signed: true };
    }
    let more = change.value > 0.0;
    let size = change.size();
    let text = match line.metric.unit {
        Unit::Ns => {
            let word = if more { "slower" } else { "faster" };
            format!("{arm} is {size} {word} than {baseline}")
        }
        Unit::TransactionsPerSecond => {
            format!("{arm} serves {size} {} tx/s than {baseline}", quantity_word(more, true))
        }
        Unit::TransactionsPerMinute => {
            format!("{arm} serves {size} {} tx/min than {baseline}", quantity_word(more, true))
        }
        Unit::OperationsPerSecond => format!("{arm} does {size} {} op/s than {baseline}", quantity_word(more, true)),
        Unit::JobsPerMinute => format!("{arm} does {size} {} jobs/min than {baseline}", quantity_word(more, true)),
        Unit::QueriesPerHour => {
            format!("{arm} answers {size} {} queries per hour than {baseline}", quantity_word(more, true))
        }
        Unit::BytesPerSecond => format!("{arm} moves {size} {} B/s than {baseline}", quantity_word(more, false)),
        Unit::Bytes | Unit::Count | Unit::Other(_) => {
            let good = more == (line.metric.better == Better::Higher);
            let word = if good { "better" } else { "worse" };
            format!(
                "{} is {size} {} with {arm} than with {baseline} ({word})",
                line.metric.name,
                if more { "larger" } else { "smaller" }
            )
        }
    };
    Statement { text, lead: String::new(), signed: false }
}

fn quantity_word(more: bool, countable: bool) -> &'static str {
    match (more, countable) {
        (true, _) => "more",
        (false, true) => "fewer",
        (false, false) => "less",
    }
}

/// `12 of 46 worse, 16 better` beyond their margins.
fn counts(of: &Family) -> String {
    format!("{} of {} worse, {} better", of.worse, of.metrics, of.better)
}

fn family(arm: &str, of: &Family) -> Sentence {
    let none = match of.verdict {
        Verdict::Better | Verdict::Same => ", and none is worse than its margin",
        Verdict::Inconclusive => "; that none is worse than its margin is not shown",
        _ => "",
    };
    let text = format!(
        "{} beyond the margin with {arm} (false discovery rate 5 %; apart from the suite's verdict){none}: {}",
        counts(of),
        of.verdict
    );
    Sentence {
        about: About::Family,
        arm: Some(arm.to_owned()),
        workload: Some(of.workload.clone()),
        head: format!("{}, its metrics", of.workload),
        text,
        verdict: Some(of.verdict),
    }
}

fn suite(plan: &Plan, judgement: &Judgement, comparison: &Comparison) -> Option<Sentence> {
    let suite = comparison.suite.as_ref()?;
    let (arm, baseline) = (&plan.arms[comparison.arm].name, &plan.arms[0].name);
    let (b, a) = (&judgement.survival[comparison.arm], &judgement.survival[0]);
    let verdict = suite.verdict;
    let why = match &suite.reason {
        Reason::NeitherSurvived => {
            let how = |arm: &Survival| failures(plan, arm).unwrap_or_default();
            format!("neither survived: {arm} {} and {baseline}, the baseline, {}", how(b), how(a))
        }
        Reason::Failed => {
            let too = failures(plan, a).map_or_else(String::new, |text| format!("; {baseline}, the baseline, {text}"));
            format!("{arm} {}{too}", failures(plan, b).unwrap_or_default())
        }
        Reason::Complained { classes } => {
            let not = match classes.iter().any(|class| a.has_logged(class)) {
                true => "did so in unconfirmed failures only",
                false => "did not",
            };
            let classes: Vec<String> = classes.iter().map(|c| format!("`{c}`")).collect();
            format!("the kernel of {arm} complained ({}) where that of {baseline} {not}", join(&classes))
        }
        Reason::TooManyVoid => {
            let (void, pairs) = (judgement.void_pairs, comparison.pairs);
            format!(
                "the host spoilt {void} of {pairs} pairs, more than a quarter, so {arm} and {baseline} are not compared"
            )
        }
        Reason::FailedCheck => format!(
            "the machine failed its last A/A check ({}), so {arm} and {baseline} are not compared; once `bigiron selftest` passes, a new study is valid",
            plan.failed_check.as_ref().map_or_else(String::new, |check| check.reasons.join("; "))
        ),
        Reason::BaselineFailed => {
            format!(
                "{baseline}, the baseline, {}, so {arm} has no valid baseline to compare with",
                failures(plan, a).unwrap_or_default()
            )
        }
        Reason::BothFailed => format!(
            "{arm} {} and {baseline}, the baseline, {}: neither fails more often than chance explains, and as long as both fail, their speed is not judged",
            failures(plan, b).unwrap_or_default(),
            failures(plan, a).unwrap_or_default()
        ),
        Reason::SurvivesBetter => {
            let of_arm = failures(plan, b).unwrap_or_else(|| format!("completed every {}", plan.trial()));
            format!(
                "{arm} survives more often: {baseline}, the baseline, {}, and {arm} {of_arm}; there is no valid baseline to compare its speed with",
                failures(plan, a).unwrap_or_default()
            )
        }
        Reason::NoClock => format!(
            "{arm} and {baseline} completed and verified every {}; without a clock their speed cannot be compared",
            plan.trial()
        ),
        Reason::Primaries { workloads } => {
            let distinct: BTreeSet<&str> = workloads.iter().map(String::as_str).collect();
            let named: Vec<&str> = distinct.into_iter().collect();
            let named = join(&named);
            let behind: Vec<String> = comparison
                .families
                .iter()
                .filter(|of| of.verdict == Verdict::Worse)
                .map(|of| format!("{} ({})", of.workload, counts(of)))
                .collect();
            // A mean that did not regress must not read as if nothing behind it had.
            let no = match behind.as_slice() {
                [] => "no workload regressed".to_owned(),
                behind => format!("no primary metric regressed, although metrics of {} did,", join(behind)),
            };
            match verdict {
                Verdict::Worse | Verdict::SlightlyWorse => format!("{arm} regressed in {named} against {baseline}"),
                Verdict::Better => format!("{no} and {named} improved with {arm}"),
                Verdict::SlightlyBetter => format!("{no} and {named} improved slightly with {arm}"),
                Verdict::Same => format!("{} with {arm}", no.trim_end_matches(',')),
                Verdict::Inconclusive if named.is_empty() => "there is no primary metric to judge by".to_owned(),
                Verdict::Inconclusive => format!("{named} could not be settled between {arm} and {baseline}"),
                Verdict::Invalid => format!("{named} cannot be judged"),
            }
        }
    };
    Some(Sentence {
        about: About::Suite,
        arm: Some(arm.clone()),
        workload: None,
        head: "suite".into(),
        text: format!("{why}: {verdict}"),
        verdict: Some(verdict),
    })
}
