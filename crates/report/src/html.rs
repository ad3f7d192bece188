//! The report as one HTML page: no network, no script; legible in light mode, in dark mode and on paper.
//!
//! Invariant: everything except the SVG comes from maud templates, which escape every string; the page is well-formed XML except for its doctype.

mod answer;
mod causes;
mod contents;
mod counters;
mod cycles;
mod forest;
mod locks;
mod machines;
mod record;
mod subject;

use bigiron_stats::Verdict;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::layers::layers;
use super::quantity::Quantity;
use super::text::trouble_lines;
use super::{Report, scope};
pub use answer::lead_text;
use bigiron_model::printable::printable;
use contents::{Section, sections};

const CSS: &str = include_str!("report.css");

/// maud writes void elements without the slash that XML requires.
const META: &str = "<meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>";

/// At the top of every page.
const NAME: &str = "<b>bigiron</b>";

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
                    div class="kicker" { (PreEscaped(NAME)) span { (kicker) } }
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
    let builds = plan.design.rebuilds.map_or_else(String::new, |n| format!(", {n} builds of each source"));
    let kicker = html! { (plan.clock) " clock, " (plan.design.pairs) " pairs of " (plan.trials()) (builds) };
    let metrics = html! {
        @if report.has_numbers() {
            (answer::matrix(report))
            (forest::charts(report))
            @for (index, rows) in report.rows.iter().enumerate() { (forest::forest(report, index, rows)) }
            (forest::reading(report))
            (machines::section(report))
        }
    };
    let layers: Vec<String> = layers(report).into_iter().map(|l| l.text).collect();
    let body = html! {
        @if let Some(question) = &plan.question {
            p class="question" { (prose(question)) }
        }
        (sections(&[
            Section::new("answer", "Answer", html! { (answer::answer(report)) (record::summary(report)) }),
            Section::new("metrics", "Metrics", metrics),
            Section::new("layers", "Layers", list("Layers of the file server", &layers)),
            Section::new("why", "Why", causes::section(report)),
            Section::new("cycles", "Cycles", cycles::section(report)),
            Section::new("counters", "Counters", counters::section(report)),
            Section::new("trouble", "Trouble", list("What did not go as planned", &trouble_lines(report))),
            Section::new("scope", "Not tested", list("What was not tested", &scope::not_tested(plan))),
            Section::new("kernels", "Kernels", subject::kernels(report)),
            Section::new("config", "Configuration", subject::configs(report)),
            Section::new("environment", "Environment", subject::environment(report)),
            Section::new("facts", "Facts", subject::facts(report)),
            Section::new("method", "Method", list("Method", &scope::method(plan))),
            Section::new("measured", "Definitions", subject::metrics(report)),
            Section::new("repeat", "Repeat", record::repeat(report)),
        ]))
    };
    page(&report.title(), "", &kicker, &body)
}

/// A page whose name at the top links to the index of its site.
pub fn linked(page: &str, index: &str) -> String {
    page.replacen(NAME, &format!("<a href=\"{}\">{NAME}</a>", escape(index)), 1)
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

pub fn symbol(verdict: Verdict) -> &'static str {
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

pub fn list(title: &str, items: &[String]) -> Markup {
    html! {
        @if !items.is_empty() {
            h2 { (title) }
            ul class="plain" { @for item in items { li { (prose(item)) } } }
        }
    }
}
