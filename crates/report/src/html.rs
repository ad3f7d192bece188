//! The report as one HTML page: no network, no script; legible in light mode, in dark mode and on paper.
//!
//! Invariant: everything except the SVG comes from maud templates, which escape every string; the page is well-formed XML except for its doctype.

mod causes;
mod counters;
mod locks;

use std::collections::BTreeSet;

use bigiron_stats::Verdict;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::Chart;
use super::fact;
use super::kconfig::Difference;
use super::quantity::Quantity;
use super::row::{Mark, Row};
use super::sentence::{About, Sentence};
use super::svg::Axis;
use super::text::{letter, margins, trouble_lines, uneven};
use super::{Report, scope};
use bigiron_judge::State;
use bigiron_model::printable::printable;
use bigiron_model::setting;

const CSS: &str = include_str!("report.css");

/// maud writes void elements without the slash that XML requires.
const META: &str = "<meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>";

/// Heights of the rows of a primary and of an exploratory metric, in CSS pixels.
const PRIMARY_HEIGHT: f64 = 46.0;
const HEIGHT: f64 = 30.0;

/// A page headed by `kicker` and `title`; `style` is its style in addition to that of all pages.
pub fn page(title: &str, style: &str, kicker: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (PreEscaped(META))
                title { (title) " - bigiron" }
                style { (PreEscaped(CSS)) (PreEscaped(style)) }
            }
            body {
                main {
                    div class="kicker" { b { "bigiron" } span { (kicker) } }
                    h1 { (title) }
                    (body)
                }
            }
        }
    };
    // XML cannot carry control characters, which kernels' messages may have.
    let page = page.into_string().replace(|c: char| c.is_control() && c != '\n', " ") + "\n";
    printable(&page).into_owned()
}

/// The whole report as one page.
pub fn html(report: &Report<'_>) -> String {
    let plan = report.plan;
    let kicker = html! {
        (plan.clock) " clock, " (plan.design.pairs) " pairs of " (plan.trials()) ", "
        (prose(&scope::machine(plan, report.records)))
    };
    let body = html! {
        @if let Some(question) = &plan.question {
            p class="question" { (prose(question)) }
        }
        (answer(report))
        @if report.has_numbers() {
            (matrix(report))
            (charts(report))
            @for (index, rows) in report.rows.iter().enumerate() {
                (forest(report, index, rows))
            }
            (reading(report))
        }
        (causes::section(report))
        (counters::section(report))
        (list("What did not go as planned", &trouble_lines(report)))
        (list("What was not tested", &scope::not_tested(plan)))
        (kernels(report))
        (configs(report))
        (facts(report))
        (list("Method", &scope::method(plan)))
        (metrics(report))
        h2 { "How to repeat it" }
        pre { (plan.repeat) }
        p class="note" {
            "Seed " (plan.design.seed) ". Made by bigiron " (plan.bigiron) " from the study's plan and records; "
            code { "bigiron report DIR" } " makes it again."
        }
    };
    page(&report.title(), "", &kicker, &body)
}

/// Escapes text for the content and the quoted attributes of SVG. Control characters, which XML cannot carry, become blanks.
pub fn escape(text: &str) -> String {
    html! { (text) }.into_string().replace(|c: char| c.is_control() && c != '\n', " ")
}

/// A sentence with the text between backticks set as code.
pub fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    // With an odd number of backticks, they are literal characters.
    if parts.len().is_multiple_of(2) {
        return html! { (text) };
    }
    html! {
        @for (i, part) in parts.iter().enumerate() {
            @if i % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A figure with a typographic minus.
pub fn minus(figure: &str) -> String {
    figure.replace('-', "\u{2212}")
}

pub fn figure(quantity: Option<&Quantity>) -> String {
    quantity.map_or_else(|| "none".to_owned(), |q| minus(&q.to_string()))
}

fn symbol(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "▲",
        Verdict::SlightlyBetter => "△",
        Verdict::Same => "=",
        Verdict::SlightlyWorse => "▽",
        Verdict::Worse => "▼",
        Verdict::Inconclusive => "?",
        Verdict::Invalid => "×",
    }
}

pub fn chip(verdict: Verdict) -> Markup {
    html! { span class={ "chip " (verdict) } { (symbol(verdict)) " " (verdict) } }
}

/// The attribute `open` of `<details>`.
pub fn open(is_open: bool) -> Option<&'static str> {
    is_open.then_some("open")
}

/// The answer at the top: the suite's verdict, then every sentence.
fn answer(report: &Report<'_>) -> Markup {
    let judgement = report.judgement;
    let lead = match judgement.state {
        State::Unfinished => report.sentences.iter().find(|s| s.about == About::Progress),
        State::Finished | State::Spoilt => report.sentences.iter().rev().find(|s| s.about == About::Suite),
    };
    let class = judgement.verdict.map_or("unfinished", Verdict::name);
    let word = judgement.verdict.map_or_else(|| "unfinished".to_owned(), |v| format!("{} {v}", symbol(v)));
    // The word beside it states the verdict already.
    let why = lead.map_or("", |lead| {
        let tail = lead.verdict.map(|v| format!(": {v}")).unwrap_or_default();
        lead.text.strip_suffix(&tail).unwrap_or(&lead.text)
    });
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
fn matrix(report: &Report<'_>) -> Markup {
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

/// Curves over a load, for workloads that have them.
fn charts(report: &Report<'_>) -> Markup {
    let comparisons = report.judgement.comparisons.iter().map(|c| c.arm).zip(&report.rows);
    let comparisons: Vec<(usize, &[Row<'_>])> = comparisons.map(|(arm, rows)| (arm, rows.as_slice())).collect();
    let arms: Vec<&str> = report.plan.arms.iter().map(|a| a.name.as_str()).collect();
    html! {
        @for chart in Chart::all(&comparisons) {
            h2 { (chart.title()) }
            div class="scroll" { (PreEscaped(chart.svg(&arms))) }
            p class="note" {
                "Means of " (report.plan.trials()) " over the load. A bar is the 95 % interval of the change against "
                (arms.first().copied().unwrap_or_default()) ", drawn at that arm's value."
            }
        }
    }
}

/// Forest plot and table in one: a row for each metric.
fn forest(report: &Report<'_>, index: usize, rows: &[Row<'_>]) -> Markup {
    let plan = report.plan;
    let comparison = &report.judgement.comparisons[index];
    let axis = Axis::new(rows);
    let (a, b) = (&plan.arms[0].name, &plan.arms[comparison.arm].name);
    let heading = |row: &Row<'_>| match row.line.metric.primary {
        true => "primary: carries the verdict".to_owned(),
        false => format!("{}, exploratory", row.line.workload),
    };
    html! {
        h2 { @if report.rows.len() > 1 { (b) " against " (a) } @else { "All metrics" } }
        p class="note" {
            "A = " (a) ", B = " (b) "; " (plan.clock) " clock, " (comparison.pairs) " pairs of " (plan.trials())
            ". Right is better for every metric."
        }
        div class="scroll" {
            table class="forest" {
                thead {
                    tr {
                        th { "metric" } th class="n" { "A" } th class="n" { "B" } th class="p" { (PreEscaped(axis.labels())) }
                        th class="n" { "change" } th class="n" { "95 % CI, %" } th class="n" { "MDE" } th { "verdict" }
                    }
                }
                tbody {
                    @for (i, row) in rows.iter().enumerate() {
                        @if i == 0 || heading(row) != heading(&rows[i - 1]) {
                            tr class="head" { th colspan="8" { (heading(row)) } }
                        }
                        (metric(row, &axis))
                    }
                    tr class="foot" {
                        td colspan="3" {} td class="p" { (PreEscaped(axis.labels())) } td colspan="4" {}
                    }
                }
            }
        }
        @if let Some(knee) = axis.knee() {
            p class="note" { "Beyond about " (knee) " the plot's axis is compressed (inverse hyperbolic sine)." }
        }
    }
}

/// A metric's row of the forest plot.
fn metric(row: &Row<'_>, axis: &Axis) -> Markup {
    let line = row.line;
    let (class, height) = if line.metric.primary { ("row primary", PRIMARY_HEIGHT) } else { ("row", HEIGHT) };
    let marks = row.mark().map(|m| m.text(line)).into_iter().chain(row.is_uneven().then(|| "~".to_owned()));
    html! {
        tr class=(class) {
            th title=(line.metric.summary) {
                @if line.metric.primary { (line.workload) " " }
                (line.metric.name) " " span class="arrow" { (row.arrow()) }
            }
            td class="n" { (figure(row.a.as_ref())) }
            td class="n" { (figure(row.b.as_ref())) }
            td class="p" { (PreEscaped(axis.plot(row, height))) }
            td class="n" { (figure(row.change.as_ref())) }
            td class="n" { (minus(&row.interval())) }
            td class="n" { (figure(row.mde.as_ref())) }
            td { (chip(line.verdict)) @for mark in marks { " " span class="mark" { (mark) } } }
        }
    }
}

/// How to read the table and the plot.
fn reading(report: &Report<'_>) -> Markup {
    let marks: BTreeSet<Mark> = report.rows.iter().flatten().filter_map(Row::mark).collect();
    html! {
        p class="note" {
            (key(r#"<path class="mean" d="M3 8L8 3L13 8L8 13Z"/>"#)) " estimate, "
            (key(r#"<path class="ci" d="M1 8H15M1 4v8M15 4v8"/>"#)) " 95 % interval, "
            (key(r#"<circle class="dot" cx="8" cy="8" r="3"/>"#)) " a pair in which A ran first, "
            (key(r#"<circle class="dot open" cx="8" cy="8" r="3"/>"#)) " one in which B did, "
            (key(r#"<rect class="band" x="1" y="1" width="14" height="14"/>"#)) " the margin (" (margins(report).join(", ")) "). "
            "Change is B against A: + is a larger number; the verdict says whether that is good (↑ more is better, ↓ less is better). "
            "MDE, the smallest detectable effect, is the smallest change that this many pairs would have shown with 80 % power."
        }
        @for mark in marks { p class="note" { (mark.legend()) "." } }
        @if let Some(uneven) = uneven(report) { p class="note" { (uneven) "." } }
    }
}

fn key(shape: &str) -> PreEscaped<String> {
    PreEscaped(format!(
        "<svg class=\"key same\" width=\"16\" height=\"16\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">{shape}</svg>"
    ))
}

pub fn list(title: &str, items: &[String]) -> Markup {
    html! {
        @if !items.is_empty() {
            h2 { (title) }
            ul class="plain" { @for item in items { li { (prose(item)) } } }
        }
    }
}

/// A cell's text, or a dash if it is empty.
fn cell(text: &str) -> Markup {
    html! { @if text.is_empty() { td class="off" { "–" } } @else { td { (text) } } }
}

fn kernels(report: &Report<'_>) -> Markup {
    let booted = scope::booted(report.plan, report.records);
    let survived = |i: usize| {
        let s = &report.judgement.survival[i];
        format!("{} of {} completed", s.completed, s.boots)
    };
    let (trials, text) = (report.plan.trials(), String::clone);
    let of = |value: &dyn Fn(&scope::Booted) -> String| booted.iter().map(value).collect::<Vec<String>>();
    let lines = [
        ("release", of(&|k| text(&k.release))),
        ("version", of(&|k| text(&k.version))),
        ("package", of(&|k| k.package.clone().unwrap_or_default())),
        ("settings", of(&|k| k.settings.join(" "))),
        ("own command line", of(&|k| k.cmdline.join(" "))),
        ("image, sha256", of(&|k| text(&k.image_sha256))),
        ("config, sha256", of(&|k| k.config_sha256.clone().unwrap_or_default())),
        (trials, (0..booted.len()).map(survived).collect()),
    ];
    html! {
        h2 { "Kernels" }
        div class="scroll" {
            table class="cols" {
                thead { tr { th {} @for (i, arm) in booted.iter().enumerate() { th { (letter(i)) ": " (arm.arm) } } } }
                tbody {
                    @for (name, values) in lines.iter().filter(|(_, values)| values.iter().any(|v| !v.is_empty())) {
                        tr {
                            th { (name) }
                            @for value in values {
                                @if name.ends_with("sha256") && !value.is_empty() { td { code { (value) } } } @else { (cell(value)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn configs(report: &Report<'_>) -> Markup {
    if report.configs.iter().all(Option::is_none) {
        return html! {};
    }
    let known = report.judgement.comparisons.iter().zip(&report.configs);
    let known = known.filter_map(|(comparison, differences)| Some((comparison, differences.as_ref()?)));
    html! {
        h2 { "Kernel configuration" }
        @for (comparison, differences) in known {
            @let arms = [report.plan.arms[0].name.as_str(), report.plan.arms[comparison.arm].name.as_str()];
            @let (notable, rest): (Vec<_>, Vec<_>) = differences.iter().partition(|d| d.is_notable());
            p {
                (differences.len()) " options differ between " (arms[0]) " and " (arms[1]) "; " (notable.len())
                " of them are options that matter to server tuning."
            }
            (options("notable options", arms, &notable, notable.len() <= 40))
            (options("other options", arms, &rest, false))
        }
    }
}

fn options(title: &str, arms: [&str; 2], list: &[&Difference], is_open: bool) -> Markup {
    html! {
        @if !list.is_empty() {
            details open=[open(is_open)] {
                summary { (list.len()) " " (title) }
                div class="scroll" {
                    table class="cols" {
                        thead { tr { th { "option" } @for arm in arms { th { (arm) } } } }
                        tbody {
                            @for d in list { tr { th { (d.option) } (setting(d.a.as_deref())) (setting(d.b.as_deref())) } }
                        }
                    }
                }
            }
        }
    }
}

fn setting(value: Option<&str>) -> Markup {
    match value {
        Some(value) => html! { td { code { (value) } } },
        None => html! { td class="off" { (Difference::shown(None)) } },
    }
}

fn facts(report: &Report<'_>) -> Markup {
    let facts = fact::facts(report.plan, report.records);
    if facts.is_empty() {
        return html! {};
    }
    html! {
        (list("Durability", &fact::durability(report.plan, &facts)))
        details {
            summary { "Other facts, as the workloads recorded them; not compared" }
            div class="scroll" {
                table class="cols" {
                    thead {
                        tr {
                            th { "fact" }
                            @for (i, arm) in report.plan.arms.iter().enumerate() { th { (letter(i)) ": " (arm.name) } }
                        }
                    }
                    tbody {
                        @for fact in &facts {
                            tr {
                                th { (fact.name) }
                                @match &fact.shown()[..] {
                                    [same] => td colspan=(report.plan.arms.len()) { (same) },
                                    values => { @for value in values { (cell(value)) } },
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn metrics(report: &Report<'_>) -> Markup {
    html! {
        h2 { "What was measured" }
        @for workload in &report.plan.workloads {
            @let options: Vec<String> = workload.options.iter().map(|(k, v)| format!("{k}={}", setting::brief(v))).collect();
            details {
                summary { (workload.name) ": " (workload.metrics.len()) " metrics" }
                @if !options.is_empty() { p { "Options: " code { (options.join(" ")) } } }
                ul class="plain" {
                    @for metric in &workload.metrics { li { b { (metric.name) } ": " (metric.summary) } }
                }
            }
        }
    }
}
