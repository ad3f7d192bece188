//! The grid as one HTML page, with a link to each row's own report.
//!
//! Invariant: as for the report of a study: no network, no script, every external string escaped.

use maud::{Markup, PreEscaped, html};

use super::{Changed, NightReport, ReportRow};
use bigiron_report::html::{chip, figure, list, minus, page, prose};
use bigiron_report::quantity::Quantity;

/// The whole report of a night as one page.
pub fn html(report: &NightReport) -> String {
    let class = report.grid.verdict().map_or("unfinished", |v| v.name());
    let verdicts = &report.grid.verdicts;
    let body = html! {
        section class={ "answer " (class) } {
            ul {
                @for (arm, verdict) in verdicts.iter().enumerate() {
                    li class="said" {
                        span { @if let Some(verdict) = verdict { (chip(*verdict)) } }
                        span { (prose(&report.sentence(arm))) }
                    }
                }
            }
        }
        @for arm in 0..verdicts.len() {
            @let (a, b) = (&report.grid.arms[0], &report.grid.arms[arm + 1]);
            h2 { (b) " against " (a) }
            p class="note" { "A = " (a) ", B = " (b) }
            (grid(&report.rows(arm)))
        }
        @for previous in &report.previous {
            @let (rows, reasons) = NightReport::previous_rows(previous);
            h2 { (report.previous_title(previous)) }
            @if !rows.is_empty() { (grid(&rows)) }
            @for reason in reasons { p class="note" { (prose(&reason)) } }
        }
        (list("How to read it", &report.method()))
        (kernels(report))
        h2 { "How to repeat it" }
        pre { (report.night.repeat) }
        p class="note" {
            "Made by bigiron " (report.night.bigiron) " from the night's studies; " code { "bigiron report DIR" } " regenerates it."
        }
    };
    page(&report.title(), "", &html! { (report.design()) }, &body)
}

fn grid(rows: &[ReportRow]) -> Markup {
    html! {
        div class="scroll" {
            table class="night" {
                thead {
                    tr {
                        th { "row" } th { "pass/fail" } th { "improvements" } th { "regressions" } th { "primary" }
                        th class="n" { "result A" } th class="n" { "result B" } th class="n" { "change" }
                        th class="n" { "95 % CI, %" } th { "verdict" }
                    }
                }
                tbody {
                    @for row in rows {
                        (line(row))
                        @for note in &row.notes { tr { th {} td colspan="9" { (prose(note)) } } }
                    }
                }
            }
        }
    }
}

fn line(row: &ReportRow) -> Markup {
    let known = |quantity: &Option<Quantity>| quantity.as_ref().map_or_else(String::new, |q| figure(Some(q)));
    html! {
        tr {
            th { @if row.report.is_empty() { (row.name) } @else { a href=(row.report) { (row.name) } } }
            td { @if row.outcome.starts_with("Fail") { span class="chip worse" { (row.outcome) } } @else { (row.outcome) } }
            td { (changed(row, &row.improved)) }
            td { (changed(row, &row.regressed)) }
            td { (row.metric.as_deref().unwrap_or_default()) }
            td class="n" { (known(&row.a)) }
            td class="n" { (known(&row.b)) }
            td class="n" { (known(&row.change)) }
            td class="n" { (minus(row.interval.as_deref().unwrap_or_default())) }
            td { @if let Some(verdict) = row.verdict { (chip(verdict)) } }
        }
    }
}

fn changed(row: &ReportRow, changed: &[Changed]) -> Markup {
    html! {
        @if changed.is_empty() { (row.yes(changed)) } @else {
            details {
                summary { (row.yes(changed)) }
                @for (i, one) in changed.iter().enumerate() {
                    // maud would omit the slash.
                    @if i > 0 { (PreEscaped("<br/>")) }
                    (minus(&one.text()))
                }
            }
        }
    }
}

fn kernels(report: &NightReport) -> Markup {
    html! {
        h2 { "Kernels" }
        div class="scroll" {
            table class="cols" {
                thead { tr { th { "kernel" } th { "release" } th { "package" } th { "image, sha256" } } }
                tbody {
                    @for arm in &report.night.arms {
                        tr {
                            th { (arm.name) }
                            td { (arm.kernel.release) }
                            td { (arm.kernel.package.as_deref().unwrap_or_default()) }
                            td { code { (arm.kernel.image_sha256) } }
                        }
                    }
                }
            }
        }
    }
}
