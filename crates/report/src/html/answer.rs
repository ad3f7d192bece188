//! The page's answer: the suite's verdict, every sentence, and the matrix of a study of several arms.

use bigiron_stats::Verdict;
use maud::{Markup, PreEscaped, html};

use super::super::Report;
use super::super::row::Row;
use super::super::sentence::{About, Sentence};
use super::{chip, figure, prose, symbol};
use bigiron_judge::State;

/// Its text without the verdict, which stands beside it.
pub fn lead_text<'a>(report: &'a Report<'_>) -> &'a str {
    report.lead().map_or("", |lead| {
        let tail = lead.verdict.map(|v| format!(": {v}")).unwrap_or_default();
        lead.text.strip_suffix(&tail).unwrap_or(&lead.text)
    })
}

/// The answer at the top: the suite's verdict, then every sentence.
pub(super) fn answer(report: &Report<'_>) -> Markup {
    let judgement = report.judgement;
    let lead = report.lead();
    let class = judgement.verdict.map_or("unfinished", Verdict::name);
    let word = judgement.verdict.map_or_else(|| "unfinished".to_owned(), |v| format!("{} {v}", symbol(v)));
    let why = lead_text(report);
    let rest: Vec<&Sentence> =
        report.sentences.iter().filter(|s| lead.is_none_or(|lead| !std::ptr::eq(*s, lead)) && s.text != why).collect();
    html! {
        section class={ "answer " (class) } {
            div class="suite" {
                span class="word" { (word) }
                @if !why.is_empty() { span class="why" { (prose(why)) } }
            }
            @if judgement.state == State::Unfinished {
                div class="suite" { progress max=(judgement.planned) value=(judgement.done) {} }
            }
            @if !rest.is_empty() {
                ul { (sentences(&rest, judgement.comparisons.len() > 1)) }
            }
        }
    }
}

/// Sentences as list items, under the arms' names if there are `several` arms.
fn sentences(all: &[&Sentence], several: bool) -> Markup {
    let mut arm = None;
    html! {
        @for sentence in all {
            @if several && sentence.about != About::Survival && sentence.arm != arm {
                @if let Some(name) = &sentence.arm { li class="group" { (name) } }
                (PreEscaped({ arm.clone_from(&sentence.arm); "" }))
            }
            @let is_survival = sentence.about == About::Survival;
            li class=(if is_survival { "survival" } else { "said" }) {
                span {
                    @if is_survival { b { "survival" } } @else if let Some(verdict) = sentence.verdict { (chip(verdict)) }
                }
                span {
                    @if !sentence.head.is_empty() { b { (sentence.head) ":" } " " }
                    (prose(&sentence.text))
                }
            }
        }
    }
}

/// One line per workload and one column per arm, for a study of several arms.
pub(super) fn matrix(report: &Report<'_>) -> Markup {
    let plan = report.plan;
    let primary = |rows: &[Row<'_>], workload: &str| {
        let row = rows.iter().find(|r| r.line.metric.primary && r.line.workload == workload)?;
        Some(html! { (figure(row.change.as_ref())) " " (chip(row.line.verdict)) })
    };
    if report.rows.len() < 2 {
        return html! {};
    }
    html! {
        h2 { "All arms against " (plan.arms[0].name) }
        div class="scroll" {
            table class="matrix" {
                thead {
                    tr {
                        th { "primary, " (plan.clock) " clock" }
                        @for comparison in &report.judgement.comparisons { th { (plan.arms[comparison.arm].name) } }
                    }
                }
                tbody {
                    @for workload in &plan.workloads {
                        tr {
                            th { (workload.name) }
                            @for rows in &report.rows { td { @if let Some(cell) = primary(rows, &workload.name) { (cell) } } }
                        }
                    }
                    tr {
                        th { "suite" }
                        @for comparison in &report.judgement.comparisons {
                            td { @if let Some(suite) = &comparison.suite { (chip(suite.verdict)) } }
                        }
                    }
                }
            }
        }
    }
}
