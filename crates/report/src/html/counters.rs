//! The page's section on counters: those that differ, and all others folded.

use maud::{Markup, html};

use super::super::Report;
use super::super::counters::{Figures, ShownCounters, method, name, shown, sum};
use super::{minus, prose};
use bigiron_judge::counters::{ComparedCounter, ComparedCounters};

/// Counters that differ, and all others folded.
pub(super) fn section(report: &Report<'_>) -> Markup {
    let Some(method) = method(report) else { return html! {} };
    html! {
        h2 { "Counters" }
        @for (counts, comparison) in report.counters.iter().zip(&report.judgement.comparisons) {
            @let arm = &report.plan.arms[comparison.arm].name;
            @if report.counters.len() > 1 { h3 { (arm) } }
            (compared(arm, counts))
        }
        p class="note" { (prose(&method)) }
    }
}

fn compared(arm: &str, counts: &ComparedCounters) -> Markup {
    let few = shown(counts, false);
    let names = [
        ("Zero in both arms", &counts.never),
        ("Only in A's kernel", &counts.only_a),
        ("Only in B's kernel", &counts.only_b),
    ];
    html! {
        (table(&few))
        p class="note" { (prose(&sum(counts, &few))) }
        details {
            summary { (arm) ": all " (counts.counters.len()) " that were not zero" }
            (table(&shown(counts, true)))
            @for (title, names) in names {
                @if !names.is_empty() { p class="note" { (title) ": " (names.join(", ")) "." } }
            }
        }
    }
}

fn table(shown: &ShownCounters<'_>) -> Markup {
    html! {
        @if !shown.counters.is_empty() {
            div class="scroll" {
                table class="cols" {
                    thead {
                        tr {
                            th { "counter" } th class="n" { "A" } th class="n" { "B" } th class="n" { "change" }
                            th class="n" { "95 % CI, %" } th { "in" }
                        }
                    }
                    tbody { @for counter in &shown.counters { (row(shown, counter)) } }
                }
            }
        }
    }
}

fn row(shown: &ShownCounters<'_>, counter: &ComparedCounter) -> Markup {
    let figures = Figures::of(counter);
    let mark = if counter.differs() && !counter.discovery() { " ?" } else { "" };
    html! {
        tr {
            td { (name(counter)) }
            td class="n" { (minus(&figures.a.to_string())) }
            td class="n" { (minus(&figures.b.to_string())) }
            td class="n" { @if let Some(change) = &figures.change { (minus(&change.to_string())) (mark) } }
            td class="n" { (minus(&figures.interval)) }
            td { (shown.place(counter)) }
        }
    }
}
