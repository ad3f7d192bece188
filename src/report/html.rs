//! The report as one HTML page: no network, no script, legible in light, in dark and on paper.
//!
//! Invariant: every string that comes from a plan, a record or a configuration goes through [`escape`] or [`minus`]; the page is well-formed XML
//! but for its doctype.

mod causes;
mod counters;
mod locks;

use std::collections::BTreeSet;
use std::fmt::Write;

use bigiron_stats::Verdict;

use super::chart::Chart;
use super::fact;
use super::kconfig::Difference;
use super::quantity::Quantity;
use super::row::{Mark, Row};
use super::sentence::{About, Sentence};
use super::svg::Axis;
use super::text::{letter, margins, trouble_lines, uneven};
use super::{Report, scope};
use crate::judge::State;
use crate::lever;

pub(super) const CSS: &str = include_str!("report.css");

/// Heights of a primary's and of an exploratory metric's row, in CSS pixels.
const PRIMARY_HEIGHT: f64 = 46.0;
const HEIGHT: f64 = 30.0;

/// The whole report as one page.
pub fn html(report: &Report<'_>) -> String {
    let title = escape(&report.title());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"/>\n<title>{title} - bigiron</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n"
    );
    let plan = report.plan;
    let _ = writeln!(
        out,
        "<div class=\"kicker\"><b>bigiron</b><span>{} clock, {} pairs of {}, {}</span></div>\n<h1>{title}</h1>",
        plan.clock,
        plan.design.pairs,
        plan.trials(),
        prose(&scope::machine(plan, report.records))
    );
    if let Some(question) = &plan.question {
        let _ = writeln!(out, "<p class=\"question\">{}</p>", prose(question));
    }
    answer(&mut out, report);
    if report.has_numbers() {
        matrix(&mut out, report);
        charts(&mut out, report);
        for (index, rows) in report.rows.iter().enumerate() {
            forest(&mut out, report, index, rows);
        }
        reading(&mut out, report);
    }
    causes::section(&mut out, report);
    counters::section(&mut out, report);
    list(&mut out, "What did not go as planned", &trouble_lines(report));
    list(&mut out, "What was not tested", &scope::not_tested(plan));
    kernels(&mut out, report);
    configs(&mut out, report);
    facts(&mut out, report);
    list(&mut out, "Method", &scope::method(plan));
    metrics(&mut out, report);
    let _ = writeln!(
        out,
        "<h2>How to repeat it</h2>\n<pre>{}</pre>\n<p class=\"note\">Seed {}. Made by bigiron {} from the study's plan and records; \
         <code>bigiron report DIR</code> makes it again.</p>\n</main>\n</body>\n</html>",
        escape(&plan.repeat),
        plan.design.seed,
        escape(&plan.bigiron)
    );
    out
}

/// Text made safe for element content and quoted attributes. Control characters, which XML cannot carry, become blanks.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A sentence: escaped, with what stands between backticks set as code.
pub(super) fn prose(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // An odd backtick is one that somebody meant.
    if parts.len().is_multiple_of(2) {
        return escape(text);
    }
    let set = |(i, part): (usize, &&str)| {
        if i % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) }
    };
    parts.iter().enumerate().map(set).collect()
}

/// A figure with a typographic minus.
pub(super) fn minus(figure: &str) -> String {
    escape(&figure.replace('-', "\u{2212}"))
}

pub(super) fn figure(quantity: Option<&Quantity>) -> String {
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

pub(super) fn chip(verdict: Verdict) -> String {
    format!("<span class=\"chip {verdict}\">{} {verdict}</span>", symbol(verdict))
}

/// The answer on top: the suite's word, then every sentence.
fn answer(out: &mut String, report: &Report<'_>) {
    let judgement = report.judgement;
    let several = judgement.comparisons.len() > 1;
    let lead = match judgement.state {
        State::Unfinished => report.sentences.iter().find(|s| s.about == About::Progress),
        State::Finished | State::Spoilt => report.sentences.iter().rev().find(|s| s.about == About::Suite),
    };
    let class = judgement.verdict.map_or("unfinished", Verdict::name);
    let word = judgement.verdict.map_or_else(|| "unfinished".to_owned(), |v| format!("{} {v}", symbol(v)));
    let _ =
        writeln!(out, "<section class=\"answer {class}\">\n<div class=\"suite\"><span class=\"word\">{word}</span>");
    // The word beside it says the verdict already.
    let why = lead.map_or("", |lead| {
        let tail = lead.verdict.map(|v| format!(": {v}")).unwrap_or_default();
        lead.text.strip_suffix(&tail).unwrap_or(&lead.text)
    });
    if !why.is_empty() {
        let _ = writeln!(out, "<span class=\"why\">{}</span>", prose(why));
    }
    out.push_str("</div>\n");
    if judgement.state == State::Unfinished {
        let _ = writeln!(
            out,
            "<div class=\"suite\"><progress max=\"{}\" value=\"{}\"></progress></div>",
            judgement.planned, judgement.done
        );
    }
    let rest: Vec<&Sentence> =
        report.sentences.iter().filter(|s| lead.is_none_or(|lead| !std::ptr::eq(*s, lead)) && s.text != why).collect();
    if !rest.is_empty() {
        out.push_str("<ul>\n");
        let mut arm = None;
        for sentence in rest {
            if several && sentence.about != About::Survival && sentence.arm != arm {
                arm.clone_from(&sentence.arm);
                if let Some(arm) = &arm {
                    let _ = writeln!(out, "<li class=\"group\">{}</li>", escape(arm));
                }
            }
            let (class, left) = match (sentence.about, sentence.verdict) {
                (About::Survival, _) => ("survival", "<b>survival</b>".to_owned()),
                (_, Some(verdict)) => ("said", chip(verdict)),
                _ => ("said", String::new()),
            };
            let head =
                if sentence.head.is_empty() { String::new() } else { format!("<b>{}:</b> ", escape(&sentence.head)) };
            let _ = writeln!(
                out,
                "<li class=\"{class}\"><span>{left}</span><span>{head}{}</span></li>",
                prose(&sentence.text)
            );
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</section>\n");
}

/// One line per workload, one column per arm: where several arms are compared.
fn matrix(out: &mut String, report: &Report<'_>) {
    if report.rows.len() < 2 {
        return;
    }
    let plan = report.plan;
    let _ = write!(
        out,
        "<h2>All arms against {}</h2>\n<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th>primary, {} clock</th>",
        escape(&plan.arms[0].name),
        plan.clock
    );
    for comparison in &report.judgement.comparisons {
        let _ = write!(out, "<th>{}</th>", escape(&plan.arms[comparison.arm].name));
    }
    out.push_str("</tr></thead><tbody>\n");
    for workload in &plan.workloads {
        let _ = write!(out, "<tr><th>{}</th>", escape(&workload.name));
        for rows in &report.rows {
            match rows.iter().find(|r| r.line.metric.primary && r.line.workload == workload.name) {
                Some(row) => {
                    let _ = write!(out, "<td>{} {}</td>", figure(row.change.as_ref()), chip(row.line.verdict));
                }
                None => out.push_str("<td></td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("<tr><th>suite</th>");
    for suite in report.judgement.comparisons.iter().map(|c| c.suite.as_ref()) {
        let _ = write!(out, "<td>{}</td>", suite.map_or_else(String::new, |s| chip(s.verdict)));
    }
    out.push_str("</tr></tbody></table></div>\n");
}

/// Curves over a load, for workloads that have such.
fn charts(out: &mut String, report: &Report<'_>) {
    let comparisons = report.judgement.comparisons.iter().map(|c| c.arm).zip(&report.rows);
    let comparisons: Vec<(usize, &[Row<'_>])> = comparisons.map(|(arm, rows)| (arm, rows.as_slice())).collect();
    let arms: Vec<&str> = report.plan.arms.iter().map(|a| a.name.as_str()).collect();
    for chart in Chart::all(&comparisons) {
        let _ = writeln!(
            out,
            "<h2>{}</h2>\n<div class=\"scroll\">{}</div>\n<p class=\"note\">Means of {} over the load. A bar is the 95 % interval of the change against {}, \
             laid on what that arm has there.</p>",
            escape(&chart.title()),
            chart.svg(&arms),
            report.plan.trials(),
            escape(arms.first().copied().unwrap_or_default())
        );
    }
}

/// Forest plot and table in one: a row per metric.
fn forest(out: &mut String, report: &Report<'_>, index: usize, rows: &[Row<'_>]) {
    let plan = report.plan;
    let comparison = &report.judgement.comparisons[index];
    let axis = Axis::new(rows);
    let (a, b) = (&plan.arms[0].name, &plan.arms[comparison.arm].name);
    let _ = writeln!(
        out,
        "<h2>{}</h2>\n<p class=\"note\">A = {}, B = {}; {} clock, {} pairs of {}. The plot is turned so that right is better for \
         every metric.</p>",
        if report.rows.len() > 1 { format!("{} against {}", escape(b), escape(a)) } else { "All metrics".to_owned() },
        escape(a),
        escape(b),
        plan.clock,
        comparison.pairs,
        plan.trials()
    );
    let _ = writeln!(
        out,
        "<div class=\"scroll\"><table class=\"forest\"><thead><tr><th>metric</th><th class=\"n\">A</th><th class=\"n\">B</th>\
         <th class=\"p\">{}</th><th class=\"n\">change</th><th class=\"n\">95 % CI, %</th><th class=\"n\">visible</th><th>verdict</th></tr></thead>\n<tbody>",
        axis.labels()
    );
    let mut group = String::new();
    for row in rows {
        let line = row.line;
        let heading = if line.metric.primary {
            "primary: carries the verdict".to_owned()
        } else {
            format!("{}, exploratory", line.workload)
        };
        if heading != group {
            let _ = writeln!(out, "<tr class=\"head\"><th colspan=\"8\">{}</th></tr>", escape(&heading));
            group = heading;
        }
        let (class, height, prefix) = if line.metric.primary {
            ("row primary", PRIMARY_HEIGHT, format!("{} ", escape(&line.workload)))
        } else {
            ("row", HEIGHT, String::new())
        };
        let mark = row.mark().map(|m| m.text(line)).into_iter().chain(row.is_uneven().then(|| "~".to_owned()));
        let mark: String = mark.map(|m| format!(" <span class=\"mark\">{}</span>", escape(&m))).collect();
        let _ = writeln!(
            out,
            "<tr class=\"{class}\"><th title=\"{}\">{prefix}{} <span class=\"arrow\">{}</span></th><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"p\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}{mark}</td></tr>",
            escape(&line.metric.summary),
            escape(&line.metric.name),
            row.arrow(),
            figure(row.a.as_ref()),
            figure(row.b.as_ref()),
            axis.plot(row, height),
            figure(row.change.as_ref()),
            minus(&row.interval()),
            figure(row.visible.as_ref()),
            chip(line.verdict)
        );
    }
    let _ = writeln!(
        out,
        "<tr class=\"foot\"><td colspan=\"3\"></td><td class=\"p\">{}</td><td colspan=\"4\"></td></tr>\n</tbody></table></div>",
        axis.labels()
    );
    if let Some(knee) = axis.knee() {
        let _ = writeln!(
            out,
            "<p class=\"note\">Beyond about {knee} the plot's axis is compressed (inverse hyperbolic sine).</p>"
        );
    }
}

/// How to read table and plot.
fn reading(out: &mut String, report: &Report<'_>) {
    let _ = writeln!(
        out,
        "<p class=\"note\">{} estimate, {} 95 % interval, {} a pair in which A ran first, {} one in which B did, {} the margin ({}). \
         Change is B against A: + is a larger number; the verdict says whether that is good (↑ more is better, ↓ less is better). \
         Visible is the smallest change that this many pairs would have shown with 80 % power.</p>",
        key(r#"<path class="mean" d="M3 8L8 3L13 8L8 13Z"/>"#),
        key(r#"<path class="ci" d="M1 8H15M1 4v8M15 4v8"/>"#),
        key(r#"<circle class="dot" cx="8" cy="8" r="3"/>"#),
        key(r#"<circle class="dot open" cx="8" cy="8" r="3"/>"#),
        key(r#"<rect class="band" x="1" y="1" width="14" height="14"/>"#),
        escape(&margins(report).join(", "))
    );
    let marks: BTreeSet<Mark> = report.rows.iter().flatten().filter_map(Row::mark).collect();
    for mark in marks {
        let _ = writeln!(out, "<p class=\"note\">{}.</p>", escape(mark.legend()));
    }
    if let Some(uneven) = uneven(report) {
        let _ = writeln!(out, "<p class=\"note\">{}.</p>", escape(&uneven));
    }
}

fn key(shape: &str) -> String {
    format!(
        "<svg class=\"key same\" width=\"16\" height=\"16\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">{shape}</svg>"
    )
}

pub(super) fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>{title}</h2>\n<ul class=\"plain\">");
    for item in items {
        let _ = writeln!(out, "<li>{}</li>", prose(item));
    }
    out.push_str("</ul>\n");
}

/// A cell's text, or a dash where every arm has it and this one has not.
fn cell(text: &str) -> String {
    if text.is_empty() { "<td class=\"off\">–</td>".to_owned() } else { format!("<td>{}</td>", escape(text)) }
}

fn kernels(out: &mut String, report: &Report<'_>) {
    let booted = scope::booted(report.plan, report.records);
    out.push_str("<h2>Kernels</h2>\n<div class=\"scroll\"><table class=\"cols\"><thead><tr><th></th>");
    for (i, arm) in booted.iter().enumerate() {
        let _ = write!(out, "<th>{}: {}</th>", letter(i), escape(&arm.arm));
    }
    out.push_str("</tr></thead><tbody>\n");
    let hash = |h: &str| {
        if h.is_empty() {
            "<td class=\"off\">–</td>".to_owned()
        } else {
            format!("<td><code>{}</code></td>", escape(h))
        }
    };
    let mut line = |name: &str, cells: Vec<String>| {
        if cells.iter().any(|c| !c.contains("class=\"off\"")) {
            let _ = writeln!(out, "<tr><th>{name}</th>{}</tr>", cells.concat());
        }
    };
    line("release", booted.iter().map(|k| cell(&k.release)).collect());
    line("version", booted.iter().map(|k| cell(&k.version)).collect());
    line("package", booted.iter().map(|k| cell(k.package.as_deref().unwrap_or_default())).collect());
    line("settings", booted.iter().map(|k| cell(&k.settings.join(" "))).collect());
    line("command line, own words", booted.iter().map(|k| cell(&k.cmdline.join(" "))).collect());
    line("image, sha256", booted.iter().map(|k| hash(&k.image_sha256)).collect());
    line("config, sha256", booted.iter().map(|k| hash(k.config_sha256.as_deref().unwrap_or_default())).collect());
    let survived = |i: usize| {
        let s = &report.judgement.survival[i];
        format!("{} of {} completed", s.completed, s.boots)
    };
    line(report.plan.trials(), (0..booted.len()).map(|i| cell(&survived(i))).collect());
    out.push_str("</tbody></table></div>\n");
}

fn configs(out: &mut String, report: &Report<'_>) {
    if report.configs.iter().all(Option::is_none) {
        return;
    }
    out.push_str("<h2>Kernel configuration</h2>\n");
    for (comparison, differences) in report.judgement.comparisons.iter().zip(&report.configs) {
        let Some(differences) = differences else { continue };
        let (a, b) = (&report.plan.arms[0].name, &report.plan.arms[comparison.arm].name);
        let (notable, rest): (Vec<_>, Vec<_>) = differences.iter().partition(|d| d.is_notable());
        let _ = writeln!(
            out,
            "<p>{} options differ between {} and {}; {} of them are of the kind that server kernels are tuned by.</p>",
            differences.len(),
            escape(a),
            escape(b),
            notable.len()
        );
        let fold = |out: &mut String, title: &str, list: &[&Difference], open: bool| {
            if list.is_empty() {
                return;
            }
            let _ = write!(
                out,
                "<details{}><summary>{} {title}</summary>\n<div class=\"scroll\"><table class=\"cols\"><thead><tr><th>option</th><th>{}</th><th>{}</th></tr></thead><tbody>\n",
                if open { " open=\"open\"" } else { "" },
                list.len(),
                escape(a),
                escape(b)
            );
            for d in list {
                let _ = writeln!(
                    out,
                    "<tr><th>{}</th>{}{}</tr>",
                    escape(&d.option),
                    setting(d.a.as_deref()),
                    setting(d.b.as_deref())
                );
            }
            out.push_str("</tbody></table></div></details>\n");
        };
        fold(out, "notable options", &notable, notable.len() <= 40);
        fold(out, "other options", &rest, false);
    }
}

fn setting(value: Option<&str>) -> String {
    match value {
        Some(value) => format!("<td><code>{}</code></td>", escape(value)),
        None => format!("<td class=\"off\">{}</td>", Difference::shown(None)),
    }
}

fn facts(out: &mut String, report: &Report<'_>) {
    let facts = fact::facts(report.plan, report.records);
    if facts.is_empty() {
        return;
    }
    list(out, "Durability", &fact::durability(report.plan, &facts));
    out.push_str(
        "<details><summary>Other facts, as the workloads recorded them; not compared</summary>\n\
         <div class=\"scroll\"><table class=\"cols\"><thead><tr><th>fact</th>",
    );
    for (i, arm) in report.plan.arms.iter().enumerate() {
        let _ = write!(out, "<th>{}: {}</th>", letter(i), escape(&arm.name));
    }
    out.push_str("</tr></thead><tbody>\n");
    for fact in &facts {
        let cells = match &fact.shown()[..] {
            [same] => format!("<td colspan=\"{}\">{}</td>", report.plan.arms.len(), escape(same)),
            values => values.iter().map(|v| cell(v)).collect(),
        };
        let _ = writeln!(out, "<tr><th>{}</th>{cells}</tr>", escape(&fact.name));
    }
    out.push_str("</tbody></table></div></details>\n");
}

fn metrics(out: &mut String, report: &Report<'_>) {
    out.push_str("<h2>What was measured</h2>\n");
    for workload in &report.plan.workloads {
        let options: Vec<String> = workload.options.iter().map(|(k, v)| format!("{k}={}", lever::brief(v))).collect();
        let _ =
            writeln!(out, "<details><summary>{}: {} metrics</summary>", escape(&workload.name), workload.metrics.len());
        if !options.is_empty() {
            let _ = writeln!(out, "<p>Options: <code>{}</code></p>", escape(&options.join(" ")));
        }
        out.push_str("<ul class=\"plain\">\n");
        for metric in &workload.metrics {
            let _ = writeln!(out, "<li><b>{}</b>: {}</li>", escape(&metric.name), escape(&metric.summary));
        }
        out.push_str("</ul></details>\n");
    }
}
