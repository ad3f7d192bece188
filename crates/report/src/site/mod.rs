//! A site of studies and nights: its index, and the names of its pages.
//!
//! Invariant: the index is a function of its entries, so writing a site again gives the same bytes; it needs no server and loads nothing.

use bigiron_judge::Comparison;
use bigiron_stats::Verdict;
use maud::{Markup, PreEscaped, html};

use super::html::{chip, lead_text, page, prose};
use super::text::day;
use super::{Report, scope};
use bigiron_model::plan::Plan;
use bigiron_model::slug;

const CSS: &str = include_str!("site.css");

/// It contains neither `<` nor `&`, which XML would take for markup.
const FILTER: &str = include_str!("filter.js");

/// maud writes void elements without the slash that XML requires.
const FIELD: &str =
    "<input type=\"search\" placeholder=\"Words to look for\" aria-label=\"Show entries with these words\"/>";

/// The page of the history, if there is one.
pub const HISTORY: &str = "history.html";

/// A study or a night, as the index shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its page, below the site's folder.
    pub link: String,
    /// What it compares.
    pub title: String,
    /// The question in words, if the user gave it.
    pub question: Option<String>,
    /// When it began, in UTC, if that is known.
    pub begun: Option<String>,
    /// `None` while unfinished.
    pub verdict: Option<Verdict>,
    /// The answer in a sentence or several.
    pub answer: Vec<String>,
    /// The kernels' releases.
    pub kernels: Vec<String>,
    pub workloads: Vec<String>,
    /// Where it ran.
    pub machine: String,
}

impl Entry {
    /// The entry of a study whose page is `link`.
    pub fn of_study(report: &Report<'_>, link: String) -> Entry {
        let plan = report.plan;
        let mut kernels: Vec<String> = plan.arms.iter().map(|a| a.kernel.release.clone()).collect();
        kernels.dedup();
        Entry {
            link,
            title: report.title(),
            question: plan.question.clone(),
            begun: plan.begun.clone(),
            verdict: report.judgement.verdict,
            answer: vec![verdicts_of_arms(report).unwrap_or_else(|| lead_text(report).to_owned())],
            kernels,
            workloads: plan.workloads.iter().map(|w| w.name.clone()).collect(),
            machine: scope::machine(plan, report.records),
        }
    }
}

/// The verdict of each arm if there are several, because the study's own verdict does not tell which arm has it; `None` while unfinished.
fn verdicts_of_arms(report: &Report<'_>) -> Option<String> {
    let comparisons = &report.judgement.comparisons;
    let verdict = |c: &Comparison| Some(format!("{}: {}", report.plan.arms[c.arm].name, c.suite.as_ref()?.verdict));
    let verdicts = comparisons.iter().map(verdict).collect::<Option<Vec<_>>>()?;
    (verdicts.len() > 1).then(|| verdicts.join("; "))
}

/// The name of a study's folder in a site, the same wherever and whenever the site is made.
pub fn study_name(plan: &Plan) -> String {
    let arms: Vec<&str> = plan.arms.iter().map(|a| a.name.as_str()).collect();
    format!("{}-seed-{}", slug::of_question(&arms, &plan.question_sha256), plan.design.seed)
}

/// Newest first; those without a date last.
pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| b.begun.cmp(&a.begun).then_with(|| a.link.cmp(&b.link)));
}

/// The index of all entries, in their order.
pub fn index(studies: &[Entry], nights: &[Entry], has_history: bool) -> String {
    let kicker = html! { (count(studies.len(), "study")) ", " (count(nights.len(), "night")) };
    let body = html! {
        @if has_history { p { a href=(HISTORY) { "History: metrics over the nights' kernels" } } }
        form class="filter" hidden="hidden" role="search" {
            (PreEscaped(FIELD))
            output {}
        }
        (list("Nights", nights))
        (list("Studies", studies))
        script { (PreEscaped(FILTER)) }
    };
    page("Results", CSS, &kicker, &body)
}

/// `1 study`, `2 studies`.
pub fn count(n: usize, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if n == 1 => format!("1 {noun}"),
        Some(stem) => format!("{n} {stem}ies"),
        None => format!("{n} {noun}s"),
    }
}

fn list(title: &str, entries: &[Entry]) -> Markup {
    html! {
        @if !entries.is_empty() {
            h2 { (title) }
            ul class="entries" { @for entry in entries { li { (shown(entry)) } } }
        }
    }
}

fn shown(entry: &Entry) -> Markup {
    html! {
        span { @if let Some(verdict) = entry.verdict { (chip(verdict)) } @else { span class="chip unfinished" { "unfinished" } } }
        div class="what" {
            a href=(entry.link) { @if let Some(question) = &entry.question { (prose(question)) } @else { (entry.title) } }
            @for answer in &entry.answer { p class="said" { (prose(answer)) } }
            @if entry.question.is_some() { p { (entry.title) } }
            p { (entry.workloads.join(", ")) " on " (entry.kernels.join(", ")) }
            p { (prose(&entry.machine)) }
        }
        @if let Some(begun) = &entry.begun { time datetime=(begun) { (day(begun)) } } @else { time { "no date" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(link: &str, begun: Option<&str>) -> Entry {
        Entry {
            link: link.to_owned(),
            title: "b against <a>".to_owned(),
            question: None,
            begun: begun.map(str::to_owned),
            verdict: None,
            answer: Vec::new(),
            kernels: Vec::new(),
            workloads: Vec::new(),
            machine: String::new(),
        }
    }

    #[test]
    fn the_newest_is_first_and_what_has_no_date_last() {
        let mut all =
            vec![entry("b", None), entry("a", None), entry("c", Some("2026-01-01")), entry("d", Some("2026-02-01"))];
        sort(&mut all);
        let links: Vec<&str> = all.iter().map(|e| e.link.as_str()).collect();
        assert_eq!(links, ["d", "c", "a", "b"]);
    }

    #[test]
    fn the_index_counts_and_escapes() {
        let page = index(&[entry("a", None), entry("b", None)], &[entry("n", None)], false);
        assert!(page.contains("2 studies, 1 night") && page.contains("b against &lt;a&gt;") && !page.contains(HISTORY));
        assert!(index(&[], &[], true).contains(HISTORY));
        assert!(!FILTER.contains(['<', '&']));
    }
}
