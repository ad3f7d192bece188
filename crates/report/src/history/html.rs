//! The history as one HTML page.
//!
//! Invariant: as for the report of a study: no network, no script, every string from outside escaped.

use maud::{Markup, PreEscaped, html};

use super::super::html::{list, minus, page, prose};
use super::{ChangeText, SeriesText};
use super::{View, day, svg};
use bigiron_judge::history::series::Series;

/// Style of the line charts, in addition to the reports' style.
const LINES: &str = "svg.line { display: block; min-width: 640px; }\n\
    svg.line text { font-size: 13px; }\nsvg .level { stroke: var(--zero); stroke-width: 2; stroke-dasharray: 5 4; fill: none; }\n\
    svg .joined { stroke: var(--same); stroke-width: 1.5; fill: none; }\nsvg .change { stroke: var(--v); stroke-width: 2; }\n\
    svg text.size { fill: var(--v); text-anchor: middle; font-weight: 600; }\nsvg.line .dot { fill: var(--same); }\n";

/// The whole view as one page.
pub fn html(view: &View) -> String {
    // A view of one row shows all its metrics that changed; the overview shows only the primaries.
    let shown =
        |s: &&Series| s.metric.primary || view.series.len() == 1 || (view.what.is_some() && !s.changes.is_empty());
    let body = html! {
        (places(view))
        @for series in view.series.iter().filter(shown) {
            h2 { (series.heading()) }
            p class="note" {
                (prose(&series.metric.summary))
                @if let Some(clock) = series.clock { ", " (clock) " clock" }
            }
            div class="scroll" { (PreEscaped(svg::svg(series))) }
            (kernels(series))
        }
        (list("How to read it", &view.method()))
    };
    page(&view.title(), LINES, &html! { "history" }, &body)
}

fn places(view: &View) -> Markup {
    let places = view.places();
    if places.is_empty() {
        return html! { p { "No change points." } };
    }
    html! {
        h2 { "Change points" }
        div class="scroll" {
            table class="cols" {
                thead { tr { th { "metric" } th class="n" { "change" } th class="n" { "95 % CI, %" } th {} th class="n" { "p" } } }
                tbody {
                    @for place in &places {
                        tr class="head" {
                            th colspan="5" { "Between " (place.before.release) " and " (place.after.release) }
                        }
                        @for (series, change) in &place.changes {
                            @let interval = change.interval().map(|(l, h)| format!("{} … {}", l.number(), h.number()));
                            tr {
                                th { (series.heading()) }
                                td class="n" { (minus(&change.size().to_string())) }
                                td class="n" { (minus(interval.as_deref().unwrap_or("none"))) }
                                td { span class={ "chip " (change.word()) } { (change.word()) } }
                                td class="n" { (format!("{:.3}", change.p)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn kernels(series: &Series) -> Markup {
    html! {
        details {
            summary { "Kernels" }
            div class="scroll" {
                table class="cols" {
                    thead {
                        tr { th { "version" } th { "release" } th { "night" } th class="n" { "boots" } th class="n" { "mean" } }
                    }
                    tbody {
                        @for (kernel, mean) in series.kernels.iter().zip(series.means()) {
                            tr {
                                th { (kernel.label) }
                                td { (kernel.release) }
                                td { (day(&kernel.begun)) }
                                td class="n" { (kernel.values.len()) }
                                td class="n" { (mean.map_or_else(|| "none".to_owned(), |m| m.to_string())) }
                            }
                        }
                    }
                }
            }
        }
    }
}
