//! The page's table of modelled cycles.

use maud::{Markup, html};

use super::super::{Report, modelled};
use super::{minus, prose};

/// The cycles that each modelled window would take on a processor, also where no line differs.
pub(super) fn section(report: &Report<'_>) -> Markup {
    let Some(legend) = modelled::legend(report) else { return html! {} };
    html! {
        h2 { "Modelled cycles" }
        @for (index, comparison) in report.judgement.comparisons.iter().enumerate() {
            @let all = modelled::windows(report, index, comparison);
            @if !all.is_empty() {
                details {
                    summary { (report.plan.arms[comparison.arm].name) ": all " (all.len()) " windows" }
                    div class="scroll" {
                        table class="cols" {
                            thead {
                                tr {
                                    th { "metric" } th class="n" { "clock" } th class="n" { "A" } th class="n" { "B" }
                                    th class="n" { "change" } th class="n" { "all models" } th {}
                                }
                            }
                            tbody {
                                @for (_, row) in &all {
                                    tr {
                                        td { (row.name) }
                                        td class="n" { (minus(&row.clock)) }
                                        td class="n" { (minus(&row.a)) }
                                        td class="n" { (minus(&row.b)) }
                                        td class="n" { (minus(&row.change)) }
                                        td class="n" { (minus(&row.range)) }
                                        td { (row.agreement) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        p class="note" { (prose(&legend)) }
    }
}
