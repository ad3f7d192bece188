//! The page's section on why lines differ.

use maud::{Markup, PreEscaped, html};

use super::super::flame::{self, FlameView};
use super::super::{Report, shared, why};
use super::{minus, open, prose};
use bigiron_judge::Comparison;
use bigiron_judge::causes::Causes;

/// Half the width of a share's bar in CSS pixels: 100 %.
const BAR: f64 = 32.0;

/// Why lines differ: the line that decides first; primaries and the largest changes open, the others closed.
pub(super) fn section(report: &Report<'_>) -> Markup {
    let found = &report.why;
    if found.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Why" }
        @for missing in &found.missing { p class="note" { (prose(missing)) } }
        @for (index, comparison) in report.judgement.comparisons.iter().enumerate() {
            @let ordered = why::ordered(found, index, comparison);
            @let open = why::selected(&ordered, comparison);
            @for (place, of) in ordered.iter().enumerate() { (line(report, comparison, of, place < open)) }
            (behind(report, index))
        }
        @if let Some(method) = why::method(found) { p class="note" { (prose(&method)) } }
        (super::locks::section(report))
    }
}

/// What several lines share.
fn behind(report: &Report<'_>, comparison: usize) -> Markup {
    let shared = shared::shared(report, comparison);
    html! {
        @if !shared.is_empty() {
            h3 { "Behind these lines, differences between A and B" }
            ul class="plain" { @for text in shared { li { (prose(&text)) } } }
        }
    }
}

/// A bar from the middle: to the right if it is in the direction of the difference, else to the left; red if B spends more there, as in flame graphs.
fn bar(share: f64, delta: f64) -> Markup {
    let width = (share.abs().min(1.0) * BAR).max(1.0);
    let from = if share < 0.0 { BAR - width } else { BAR };
    html! {
        svg class={ "share " (if delta > 0.0 { "costs" } else { "saves" }) } width=(2.0 * BAR) height="10" viewBox={ "0 0 " (2.0 * BAR) " 10" } aria-hidden="true" {
            path class="zero" d={ "M" (BAR) " 0V10" } {}
            rect x=(format!("{from:.1}")) y="1" width=(format!("{width:.1}")) height="8" {}
        }
    }
}

fn line(report: &Report<'_>, comparison: &Comparison, of: &Causes, is_open: bool) -> Markup {
    let arms = (report.plan.arms[0].name.as_str(), report.plan.arms[comparison.arm].name.as_str());
    let shown = of.listed.min(why::MOST);
    html! {
        details open=[open(is_open)] {
            summary {
                (arms.1) ": " (why::head(of))
                @if why::decides(comparison, &of.workload, &of.metric) { (why::DECIDES) }
            }
            div class="scroll" {
                table class="cols causes" {
                    thead {
                        tr {
                            th class="bar" {} th class="n" { "share" } th class="n" { "change, ns" } th class="n" { "A" } th class="n" { "B" }
                            th { "in" }
                        }
                    }
                    tbody {
                        @for cause in &of.causes[..shown] {
                            tr {
                                @let share = cause.delta() / of.delta();
                                td class="bar" { (bar(share, cause.delta())) }
                                td class="n" { (minus(&why::share(share))) }
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
                details class="flame" {
                    summary { "Flame graph of the difference" }
                    div class="scroll" { (PreEscaped(flame::svg(stacks, arms, FlameView::Difference))) }
                }
            }
        }
    }
}
