//! The page's section on what lines waited for.

use maud::{Markup, html};

use super::super::{Report, locks};
use super::{minus, open, prose};
use bigiron_judge::locks::Contended;

/// What every traced line waited for; primaries open.
pub(super) fn section(report: &Report<'_>) -> Markup {
    let found = &report.why.locks;
    html! {
        @for (arm, why) in &found.untold { p class="note" { (arm) ": no locks: " (prose(why)) } }
        @for line in &found.lines { (waits(report, line)) }
        @if let Some(method) = locks::method(found) { p class="note" { (prose(&method)) } }
    }
}

fn waits(report: &Report<'_>, line: &Contended) -> Markup {
    let comparison = &report.judgement.comparisons[line.comparison];
    let (a, b) = (&report.plan.arms[0].name, &report.plan.arms[comparison.arm].name);
    html! {
        details open=[open(locks::is_primary(line, &comparison.lines))] {
            summary { (b) ": " (locks::head(line)) }
            @for sentence in locks::sentences(line) { p class="note" { (prose(&sentence)) } }
            (table(&["change, ns", "A", "B", "waits, A", "B", "for"], &locks::changes(line, locks::MOST)))
            @for (letter, arm, baseline) in [('A', a, true), ('B', b, false)] {
                p class="note" { (letter) " = " (arm) }
                (table(&locks::COLUMNS, &locks::lockmeter(line, baseline, report.plan.machine.cpus, locks::MOST)))
            }
        }
    }
}

/// A table whose last column is a name, indented if it is a caller's.
fn table<const N: usize>(heads: &[&str; N], rows: &[[String; N]]) -> Markup {
    let class = |n: usize| (n + 1 < N).then_some("n");
    html! {
        div class="scroll" {
            table class="cols" {
                thead { tr { @for (n, head) in heads.iter().enumerate() { th class=[class(n)] { (head) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (n, cell) in row.iter().enumerate() {
                                td class=[class(n)] {
                                    @if n + 1 < N { (minus(cell)) } @else { (cell.replace("  ", "\u{a0}\u{a0}\u{a0}")) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
