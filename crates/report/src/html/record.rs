//! The page's record of the study: date, kernels, raw data, and the command that repeats it.

use maud::{Markup, html};

use super::super::text::{day, letter};
use super::super::{Report, scope};
use super::prose;

/// The files beside the page that everything on it is made from.
const RAW: [(&str, &str); 2] = [("plan.toml", "the plan"), ("records.jsonl", "a line for each trial")];

/// What a reader cites: below the answer.
pub(super) fn summary(report: &Report<'_>) -> Markup {
    let plan = report.plan;
    html! {
        dl class="study" {
            @if let Some(begun) = &plan.begun { dt { "Date" } dd { (day(begun)) } }
            @for (index, kernel) in scope::booted(plan, report.records).iter().enumerate() {
                dt { "Kernel " (letter(index)) }
                dd { (kernel.arm) @if kernel.release != kernel.arm { ", Linux " (kernel.release) } }
            }
            dt { "Measured" }
            dd {
                (plan.clock) " clock, " (plan.design.pairs) " pairs of " (plan.trials()) ", "
                @if let Some(builds) = plan.design.rebuilds { (builds) " builds of each source, " }
                (prose(&scope::machine(plan, report.records)))
            }
            dt { "Raw records" }
            dd {
                @for (index, (file, what)) in RAW.iter().enumerate() {
                    @if index > 0 { ", " }
                    a href=(file) { (file) } " (" (what) ")"
                }
            }
            dt { "Repeat" }
            dd { code { (words(&plan.repeat)) } }
        }
    }
}

/// A command whose lines break between its words only, not at the hyphens of options.
fn words(command: &str) -> Markup {
    html! {
        @for (index, word) in command.split(' ').enumerate() { @if index > 0 { " " } span { (word) } }
    }
}

/// The command alone, for copying, and what it needs.
pub(super) fn repeat(report: &Report<'_>) -> Markup {
    let plan = report.plan;
    html! {
        h2 { "How to repeat it" }
        pre { (plan.repeat) }
        p class="note" {
            "Seed " (plan.design.seed) ". Made by bigiron " (plan.bigiron) " from the study's plan and records; "
            code { "bigiron report DIR" } " makes it again. The links to raw records work in the study's folder."
        }
    }
}
