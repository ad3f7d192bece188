//! `bigiron report`.

use std::sync::atomic::AtomicBool;

use clap::ValueEnum as _;

use super::bisect;
use super::nightly;
use super::output;
use crate::bisect::Bisection;
use crate::cli::{BisectFormat, Counters, Flame, Format, HistoryFormat, Report, ResultOptions};
use crate::commands::output::Terminal;
use crate::conduct::{self, Conducted, StudyRequest, TrialsBy};
use crate::night::Night;
use crate::study::repeat;
use bigiron_judge::stacks::Stacks;
use bigiron_judge::{Comparison, Judgement, State};
use bigiron_model::plan::Plan;
use bigiron_model::refusal::Refusal;
use bigiron_model::shell::quote;
use bigiron_model::store::Folder;
use bigiron_report as report;
use bigiron_report::flame;
use bigiron_report::flame::FlameView;
use bigiron_report::summary::SummaryLine;
use bigiron_report::why::Why;

pub(super) fn run(args: &Report) -> anyhow::Result<u8> {
    if let Some(night) = Night::open(&args.dir)? {
        if args.flame.is_some() {
            return Err(Refusal::new(
                "A night has no flame graph; its studies may have: `bigiron report DIR/STUDY --flame diff`",
            )
            .into());
        }
        let format = match args.format {
            Format::Text => HistoryFormat::Text,
            Format::Json => HistoryFormat::Json,
            Format::Html => HistoryFormat::Html,
            other => {
                let format = name(other);
                return Err(Refusal::new(format!(
                    "A night is reported as text, JSON or HTML, not as {format}; each of its studies has all formats: `bigiron report DIR/STUDY \
                     --format {format}`"
                ))
                .into());
            }
        };
        return nightly::again(&args.dir, &night, format, &args.fail_on);
    }
    if let Some(bisection) = Bisection::open(&args.dir)? {
        let format = match args.format {
            Format::Text => BisectFormat::Text,
            Format::Json => BisectFormat::Json,
            _ => {
                return Err(Refusal::new(
                    "A bisection is reported as text or JSON; each of its studies has all formats: `bigiron report DIR/STUDY`",
                )
                .into());
            }
        };
        return bisect::again(&args.dir, &bisection, format, &args.fail_on);
    }
    let folder = Folder::open(&args.dir)?;
    super::check_gate(folder.plan().is_screening(), &args.fail_on)?;
    let never = AtomicBool::new(false);
    let judged = conduct::judged(&folder, &never, &Terminal)?;
    let study = Conducted::new(folder, judged, Vec::new(), &never)?;
    let text = match args.flame {
        Some(flame) => graph(study.folder.plan(), &study.judgement, &study.why, flame, args.line.as_deref())?,
        None => rendered(&study, args.format, args.counters == Counters::All),
    };
    if args.flame.is_none() && args.format == Format::Text { output::paged(&text) } else { output::data(&text) }?;
    if study.judgement.state == State::Unfinished {
        let dir = args.dir.display().to_string();
        output::note(&format!("To resume it: {}", repeat::resumed(&study.folder.plan().repeat, &dir)));
    }
    Ok(super::status(study.judgement.decision(), &args.fail_on))
}

/// Conducts a study, prints its report and returns the exit status.
pub(super) fn conduct(request: &StudyRequest<'_>, outcome: &ResultOptions) -> anyhow::Result<u8> {
    let study = conduct_and_print(request, outcome)?;
    Ok(super::status(study.judgement.decision(), &outcome.fail_on))
}

/// Conducts a study and prints its report.
pub(super) fn conduct_and_print(request: &StudyRequest<'_>, outcome: &ResultOptions) -> anyhow::Result<Conducted> {
    let study = conduct::conduct(request)?;
    if request.trials == TrialsBy::Workers {
        let slots = study.folder.plan().slots.len();
        output::data(&format!(
            "Prepared {slots} trials, slots 0 to {}, in `{}`",
            slots - 1,
            study.folder.dir().display()
        ))?;
        return Ok(study);
    }
    let page = study.page.as_ref().map(|page| format!("Report: {}", page.display()));
    if outcome.format == Format::Text && !outcome.full {
        let mut lines = bigiron_report::summary(&study.report(false));
        let folder = quote(&study.folder.dir().display().to_string());
        let rest = format!("All of it as text: bigiron report {folder}");
        let settle = settle(study.folder.plan(), &study.judgement);
        lines.extend([String::new()].into_iter().chain(settle).chain(page).chain([rest]).map(SummaryLine::from));
        output::summary(&lines)?;
    } else {
        if let Some(page) = page {
            output::note(&page);
        }
        output::data(&rendered(&study, outcome.format, false))?;
    }
    Ok(study)
}

/// The command with enough pairs to settle what is inconclusive, if that is foreseeable.
pub(super) fn settle(plan: &Plan, judgement: &Judgement) -> Option<String> {
    let primaries = judgement.comparisons.iter().flat_map(Comparison::primaries);
    let more = primaries.filter_map(|line| line.more_pairs).max()?;
    let pairs = (plan.design.pairs + more).next_multiple_of(2);
    let old = format!("--pairs {} ", plan.design.pairs);
    plan.repeat.contains(&old).then(|| {
        let command = plan.repeat.replacen(&old, &format!("--pairs {pairs} "), 1);
        let command = match plan.design.rebuilds {
            Some(builds) => {
                let more = pairs / plan.design.pairs_per_build().max(1);
                command.replacen(&format!("--rebuilds {builds} "), &format!("--rebuilds {more} "), 1)
            }
            None => command,
        };
        let command = command.replacen(&format!(" --seed {}", plan.design.seed), "", 1).replacen(" --quick", "", 1);
        format!("To settle it: {command}")
    })
}

/// The format's word on the command line.
fn name(format: Format) -> String {
    format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A study's report in a format; text shows all counters with `all_counters`, else those that differ.
fn rendered(study: &Conducted, format: Format, all_counters: bool) -> String {
    let report = study.report(all_counters);
    match format {
        Format::Text => report::text(&report),
        Format::Json => report::json(&report),
        Format::Html => report::html(&report),
        Format::Csv => report::csv(&report),
        Format::Markdown => report::markdown(&report),
        Format::Junit => report::junit(&report),
        Format::Jsonl => report::jsonl(&report),
        Format::Mail => report::mail(&report),
        Format::Openmetrics => report::openmetrics(&report),
    }
}

/// The flame graph of a line.
fn graph(plan: &Plan, judgement: &Judgement, why: &Why, flame: Flame, line: Option<&str>) -> anyhow::Result<String> {
    let name = |s: &Stacks| format!("{}.{}", s.workload, s.metric);
    let wanted = |s: &&Stacks| line.is_none_or(|line| line == s.workload || line == name(s));
    let Some(stacks) = why.stacks.iter().find(wanted) else {
        let have: Vec<_> = why.stacks.iter().map(name).collect();
        return Err(match (line, have.is_empty()) {
            (Some(line), false) => Refusal::new(format!("No stacks were sampled for `{line}`"))
                .hint(format!("Stacks exist for {}", have.join(", "))),
            _ => Refusal::new("No stacks were sampled in this study")
                .hint("Stacks are sampled where lines differ: `bigiron compare --on local … --why 2`; see `bigiron doc samples`"),
        }
        .into());
    };
    let arms = (plan.arms[0].name.as_str(), plan.arms[judgement.comparisons[stacks.comparison].arm].name.as_str());
    let shown = match flame {
        Flame::A => FlameView::A,
        Flame::B => FlameView::B,
        Flame::Diff => FlameView::Difference,
    };
    Ok(flame::document(stacks, arms, shown))
}
