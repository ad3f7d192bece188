//! The page's section on why lines differ.

use maud::{Markup, PreEscaped, html};

use super::super::flame::{self, FlameView};
use super::super::{Report, why};
use super::{minus, open, prose};
use bigiron_judge::Comparison;
use bigiron_judge::causes::Causes;

/// Why lines differ: primaries and the largest changes open, the others closed.
pub(super) fn section(report: &Report<'_>) -> Markup {
    let found = &report.why;
    if found.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Why" }
        @for missing in &found.missing { p class="note" { (prose(missing)) } }
        @for (index, comparison) in report.judgement.comparisons.iter().enumerate() {
            @let (first, _) = why::selected(found, index, &comparison.lines);
            @for of in found.causes.iter().filter(|c| c.comparison == index) {
                (line(report, comparison, of, first.contains(&of)))
            }
        }
        @if let Some(method) = why::method(found) { p class="note" { (prose(&method)) } }
        (super::locks::section(report))
    }
}

fn line(report: &Report<'_>, comparison: &Comparison, of: &Causes, is_open: bool) -> Markup {
    let arms = (report.plan.arms[0].name.as_str(), report.plan.arms[comparison.arm].name.as_str());
    let shown = of.listed.min(why::MOST);
    html! {
        details open=[open(is_open)] {
            summary { (arms.1) ": " (why::head(of)) }
            div class="scroll" {
                table class="cols" {
                    thead {
                        tr {
                            th class="n" { "share" } th class="n" { "change, ns" } th class="n" { "A" } th class="n" { "B" }
                            th { "in" }
                        }
                    }
                    tbody {
                        @for cause in &of.causes[..shown] {
                            tr {
                                td class="n" { (minus(&why::share(cause.delta() / of.delta()))) }
                                td class="n" { (minus(&why::change(cause))) }
                                td class="n" { (minus(&why::ns(cause.a))) }
                                td class="n" { (minus(&why::ns(cause.b))) }
                                td { (why::name(cause)) }
                            }
                        }
                    }
                }
            }
            @for text in report.told(of, shown) { p class="note" { (prose(&text)) } }
            @if let Some(stacks) = report.why.stacks_of(of).filter(|_| is_open) {
                div class="scroll" { (PreEscaped(flame::svg(stacks, arms, FlameView::Difference))) }
            }
        }
    }
}
