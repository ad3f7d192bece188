//! The number of pairs of a question that asks for a time (`--budget`) or a precision (`--precision`) instead.
//!
//! Invariant: the number is fixed before the first trial, from what earlier studies and the noise card have shown, never from this study's results.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bigiron_model::plan::Plan;
use bigiron_model::store::Folder;
use bigiron_stats::power;
use indicatif::HumanDuration;

use super::environment::Environment;
use super::estimate::{self, Spreads, Work};
use super::study_folder::{self, RESULTS};
use super::{StudyRequest, noise_card};
use crate::study::question::Question;
use crate::study::repeat;
use crate::study::resolved::{PAIRS_LIMIT, ResolvedQuestion};

/// Chooses the pairs of a question that asks for a time or a precision, and says what it chose.
///
/// # Errors
/// Nothing is known of this work here, or the smallest study is too large.
pub(super) fn choose(
    resolved: &mut ResolvedQuestion,
    request: &StudyRequest<'_>,
    environment: &Environment<'_>,
    jobs: usize,
) -> anyhow::Result<()> {
    let q = &request.question;
    if q.budget.is_none() && q.precision.is_none() {
        return Ok(());
    }
    if let Some(pairs) = existing(resolved, request)? {
        resolved.pairs = pairs;
        environment.observer().note(&format!("A study of this question has {pairs} pairs already"));
        return Ok(());
    }
    let work = Work::of(resolved);
    let spreads = estimate::spreads(environment.cache(), &work).or_else(|| noise_card::spreads(resolved));
    let said = match (q.budget, q.precision) {
        (Some(budget), _) => by_time(resolved, q, budget, environment, jobs)?,
        (None, Some(precision)) => by_precision(resolved, q, precision, spreads.as_ref())?,
        (None, None) => unreachable!("one of them is given"),
    };
    environment.observer().note(&format!("{said}; {}", expected(resolved, spreads.as_ref())));
    Ok(())
}

/// The pairs of a study of the same question, apart from its pairs: it is resumed, or has the answer.
fn existing(resolved: &ResolvedQuestion, request: &StudyRequest<'_>) -> anyhow::Result<Option<u32>> {
    if request.fresh {
        return Ok(None);
    }
    let same = |plan: &Plan| {
        let as_planned = ResolvedQuestion { pairs: plan.design.pairs, ..resolved.clone() };
        (plan.question_sha256 == as_planned.sha256()).then_some(plan.design.pairs)
    };
    if let Some(dir) = request.out {
        return Ok(Folder::open(dir).ok().and_then(|folder| same(folder.plan())));
    }
    let folders = fs::read_dir(Path::new(RESULTS)).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    folders.sort();
    let mut found = None;
    for folder in folders.iter().filter_map(|dir| Folder::open(dir).ok()) {
        let Some(pairs) = same(folder.plan()) else { continue };
        found = Some(pairs);
        if !study_folder::finished(&folder)? {
            break;
        }
    }
    Ok(found)
}

fn primaries(resolved: &ResolvedQuestion) -> usize {
    resolved.workloads.len() * (resolved.arms.len() - 1)
}

fn refuse(resolved: &ResolvedQuestion, key: &str, message: String, hint: String) -> anyhow::Error {
    resolved.places.refuse(&format!("design.{key}"), message).hint(hint).into()
}

/// What would measure what is not known.
fn measure(resolved: &ResolvedQuestion, q: &Question) -> String {
    match repeat::selftest(q, resolved) {
        Some(command) => format!("`{command}` measures it; or choose a number of pairs with `--pairs N`"),
        None => "Choose a number of pairs with `--pairs N`; a finished study of the same work tells both".to_owned(),
    }
}

/// As many pairs as fit into a time.
fn by_time(
    resolved: &mut ResolvedQuestion,
    q: &Question,
    budget: Duration,
    environment: &Environment<'_>,
    jobs: usize,
) -> anyhow::Result<String> {
    let Some(estimate) = estimate::estimate(environment.cache(), &Work::of(resolved), resolved.idle_gap) else {
        let message =
            "How long a trial of this work takes here is not known, so no number of pairs fits a time".to_owned();
        return Err(refuse(resolved, "budget", message, measure(resolved, q)));
    };
    // Several machines work side by side.
    let width = if resolved.clock.is_exact() { jobs } else { resolved.machine.members.len().max(1) };
    let arms = resolved.arms.len() as u32;
    let takes = |pairs: u32| estimate.time(pairs * arms, width);
    let flips = resolved.flips();
    let least = power::balanced(flips, power::smallest_pairs(flips, primaries(resolved)));
    if takes(least) > budget {
        let message = format!(
            "A budget of {} is too small: {least} pairs are the fewest that allow {}, and take about {}",
            HumanDuration(budget),
            if primaries(resolved) == 1 { "a verdict" } else { "these verdicts" },
            HumanDuration(takes(least))
        );
        let minutes = takes(least).as_secs() / 60 + 1;
        return Err(refuse(
            resolved,
            "budget",
            message,
            format!("Use `--budget {minutes}m` or more, or fewer workloads"),
        ));
    }
    let fits = |pairs: &u32| takes(*pairs) <= budget;
    resolved.pairs =
        (least..=PAIRS_LIMIT).step_by(power::step(flips) as usize).take_while(fits).last().unwrap_or(least);
    let pairs = resolved.pairs;
    Ok(format!(
        "A budget of {}: {pairs} pairs, {} trials in about {}",
        HumanDuration(budget),
        pairs * arms,
        HumanDuration(takes(pairs))
    ))
}

/// As many pairs as make the intervals of all primaries as narrow as asked.
fn by_precision(
    resolved: &mut ResolvedQuestion,
    q: &Question,
    precision: f64,
    spreads: Option<&Spreads>,
) -> anyhow::Result<String> {
    let Some(spreads) = spreads else {
        let message =
            "How far pairs of this work vary here is not known, so no number of pairs has a precision".to_owned();
        return Err(refuse(resolved, "precision", message, measure(resolved, q)));
    };
    let flips = resolved.flips();
    let (name, sd) = spreads.widest();
    let percent = |log: f64| format!("{:.2} %", log.exp_m1() * 100.0);
    let Some(needed) = power::pairs_for_half_width(flips, sd, precision.ln_1p()) else {
        let best = power::half_width(flips, PAIRS_LIMIT, 0.05) * sd;
        let message = format!(
            "A precision of {} would need more than {PAIRS_LIMIT} pairs: pairs of {name} vary by {} here",
            percent(precision.ln_1p()),
            percent(sd)
        );
        let hint = format!("{PAIRS_LIMIT} pairs reach about {}; ask for more than that", percent(best));
        return Err(refuse(resolved, "precision", message, hint));
    };
    resolved.pairs = power::balanced(flips, needed.max(power::smallest_pairs(flips, primaries(resolved))));
    Ok(format!(
        "A precision of {}: {} pairs, whose intervals are expected within ±{}",
        percent(precision.ln_1p()),
        resolved.pairs,
        percent(power::half_width(flips, resolved.pairs, 0.05) * sd)
    ))
}

/// What the chosen pairs are expected to show.
fn expected(resolved: &ResolvedQuestion, spreads: Option<&Spreads>) -> String {
    let Some(spreads) = spreads else {
        return "which effects they show is not known, because no noise card and no earlier study has this work"
            .to_owned();
    };
    let flips = resolved.flips();
    let of = |(name, sd): (&String, &f64)| {
        format!("{name} {:.2} %", power::mde(flips, resolved.pairs as usize, *sd).exp_m1() * 100.0)
    };
    let all: Vec<String> = spreads.by_metric.iter().map(of).collect();
    format!("smallest detectable effect expected {} ({})", all.join(", "), spreads.source)
}

/// Offers the check that a machine without a noise card lacks; it is never begun unasked.
pub(super) fn offer(q: &Question, resolved: &ResolvedQuestion, plan: &Plan, environment: &Environment<'_>) {
    if !plan.machine.host.is_machine() || plan.is_aa() || plan.is_screening() || noise_card::has(plan) {
        return;
    }
    let Some(command) = repeat::selftest(q, resolved) else { return };
    let trials = 2 * repeat::selftest_pairs(resolved);
    let takes = estimate::estimate(environment.cache(), &Work::of(resolved), resolved.idle_gap)
        .map_or_else(String::new, |estimate| format!(" in about {}", HumanDuration(estimate.time(trials, 1))));
    environment.observer().note(&format!(
        "This machine has no noise card, so what it cannot show is not known; `{command}` makes one with {trials} {}{takes}",
        plan.trials()
    ));
}
