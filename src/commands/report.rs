//! `bigiron report`.

use super::bisect;
use super::conduct;
use super::nightly;
use super::output;
use crate::bisect::Bisection;
use crate::cli::{BisectFormat, Counters, Flame, Format, HistoryFormat, Report};
use crate::judge::Judgement;
use crate::judge::stacks::Stacks;
use crate::night::Night;
use crate::refusal::Refusal;
use crate::report::flame::{self, Shown};
use crate::report::why::Why;
use crate::store::Folder;
use crate::study::plan::Plan;

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
            Format::Csv => {
                return Err(Refusal::new(
                    "A night has no CSV; each of its studies has: `bigiron report DIR/STUDY --format csv`",
                )
                .into());
            }
        };
        return nightly::again(&args.dir, &night, format, &args.fail_on);
    }
    if let Some(bisection) = Bisection::open(&args.dir)? {
        let format = match args.format {
            Format::Text => BisectFormat::Text,
            Format::Json => BisectFormat::Json,
            Format::Html | Format::Csv => {
                return Err(Refusal::new(
                    "A bisection is reported as text or JSON; each of its studies has all formats: `bigiron report DIR/STUDY`",
                )
                .into());
            }
        };
        return bisect::again(&args.dir, &bisection, format, &args.fail_on);
    }
    let folder = Folder::open(&args.dir)?;
    let (records, judgement) = conduct::judged(&folder)?;
    let why = conduct::why(&folder, &records, &judgement);
    if let Some(flame) = args.flame {
        output::data(&graph(folder.plan(), &judgement, &why, flame, args.line.as_deref())?)?;
        return Ok(conduct::status(&judgement, &args.fail_on));
    }
    output::data(&conduct::render(
        folder.plan(),
        &records,
        &judgement,
        &why,
        args.format,
        args.counters == Counters::All,
    ))?;
    Ok(conduct::status(&judgement, &args.fail_on))
}

/// The flame graph of a line.
fn graph(plan: &Plan, judgement: &Judgement, why: &Why, flame: Flame, line: Option<&str>) -> anyhow::Result<String> {
    let name = |s: &Stacks| format!("{}.{}", s.workload, s.metric);
    let wanted = |s: &&Stacks| line.is_none_or(|line| line == s.workload || line == name(s));
    let Some(stacks) = why.stacks.iter().find(wanted) else {
        let have: Vec<_> = why.stacks.iter().map(name).collect();
        return Err(match (line, have.is_empty()) {
            (Some(line), false) => Refusal::new(format!("No stacks were sampled of `{line}`"))
                .hint(format!("There are those of {}", have.join(", "))),
            _ => Refusal::new("No stacks were sampled in this study")
                .hint("They are where lines differ: `bigiron compare --on local … --why 2`, see `bigiron doc why`"),
        }
        .into());
    };
    let arms = (plan.arms[0].name.as_str(), plan.arms[judgement.comparisons[stacks.comparison].arm].name.as_str());
    let shown = match flame {
        Flame::A => Shown::A,
        Flame::B => Shown::B,
        Flame::Diff => Shown::Difference,
    };
    Ok(flame::document(stacks, arms, shown))
}
