//! The page's table of the differences on each machine.

use maud::{Markup, html};

use super::super::{Report, machines};
use super::{minus, prose};

pub(super) fn section(report: &Report<'_>) -> Markup {
    let tables = machines::tables(report);
    html! {
        @if !tables.is_empty() {
            h2 { "By machine" }
            div class="scroll" {
                table class="cols" {
                    thead { tr { @for (n, head) in machines::COLUMNS.iter().enumerate() { th class=[number(n)] { (head) } } } }
                    tbody {
                        @for (metric, parts) in &tables {
                            tr class="head" { th colspan="5" { (metric) } }
                            @for part in parts {
                                tr { @for (n, cell) in part.cells().iter().enumerate() { td class=[number(n)] { (minus(cell)) } } }
                            }
                        }
                    }
                }
            }
            @for sentence in machines::told(report) { p class="note" { (prose(&sentence)) "." } }
        }
    }
}

/// The class of a column of numbers.
fn number(column: usize) -> Option<&'static str> {
    (column > 0).then_some("n")
}
