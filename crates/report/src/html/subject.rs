//! The page's tables of what was compared: kernels, their configurations, facts and definitions of metrics.

use maud::{Markup, html};

use super::super::kconfig::Difference;
use super::super::text::letter;
use super::super::{Report, environment, fact, scope};
use super::{list, open};
use bigiron_model::setting;

/// A cell's text, or a dash if it is empty.
fn cell(text: &str) -> Markup {
    html! { @if text.is_empty() { td class="off" { "–" } } @else { td { (text) } } }
}

pub(super) fn kernels(report: &Report<'_>) -> Markup {
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
        ("builds", of(&|k| if k.builds.is_empty() { String::new() } else { k.builds.len().to_string() })),
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

pub(super) fn configs(report: &Report<'_>) -> Markup {
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

/// What differs between the arms although no lever asked for it.
pub(super) fn environment(report: &Report<'_>) -> Markup {
    let Some(unasked) = environment::unasked(report.plan, report.records) else { return html! {} };
    html! {
        h2 { (environment::TITLE) }
        @if !unasked.differences.is_empty() {
            details open=[open(unasked.differences.len() <= 40)] {
                summary { (unasked.differences.len()) " of " (unasked.noted) " noted facts differ, and no lever asked for it" }
                div class="scroll" {
                    table class="cols" {
                        thead { tr { th { "fact" } @for (i, arm) in report.plan.arms.iter().enumerate() { th { (letter(i)) ": " (arm.name) } } } }
                        tbody {
                            @for fact in &unasked.differences { tr { th { (fact.fact) } @for value in &fact.values { (cell(value)) } } }
                        }
                    }
                }
            }
        }
        ul class="plain" { @for line in unasked.told() { li { (line) } } }
    }
}

pub(super) fn facts(report: &Report<'_>) -> Markup {
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

pub(super) fn metrics(report: &Report<'_>) -> Markup {
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
