//! The report as GitHub-flavoured Markdown, for a comment on a pull request or a merge request.
//!
//! Invariant: names from a study are text: they form no markup, mention nobody and open no link.

use std::fmt::Write as _;

use super::verdict;
use crate::Report;
use crate::quantity::shown;
use crate::row::Row;
use crate::scope;

/// The report: its sentences, the lines that decide, all others folded away, and the command that repeats it.
pub fn markdown(report: &Report<'_>) -> String {
    let mut out = format!("### bigiron: {}, {}\n\n", verdict(report), escaped(&report.title()));
    if let Some(question) = &report.plan.question {
        let _ = writeln!(out, "> {}\n", escaped(question));
    }
    for sentence in &report.sentences {
        let _ = writeln!(out, "- {}", escaped(&sentence.full()));
    }
    if report.has_numbers() {
        for (comparison, rows) in report.judgement.comparisons.iter().zip(&report.rows) {
            let arms = (&report.plan.arms[0].name, &report.plan.arms[comparison.arm].name);
            let (primaries, others): (Vec<&Row<'_>>, Vec<_>) = rows.iter().partition(|row| row.line.metric.primary);
            table(&mut out, arms, &primaries);
            if !others.is_empty() {
                let differ = others.iter().filter(|row| row.line.discovery()).count();
                let _ = write!(
                    out,
                    "\n<details><summary>{} exploratory metrics, of which {differ} differ</summary>\n",
                    others.len()
                );
                table(&mut out, arms, &others);
                out.push_str("\n</details>\n");
            }
        }
    }
    let _ = writeln!(out, "\nNot tested: {}", escaped(&scope::not_tested_in_short(report.plan)));
    let _ = writeln!(out, "\nRepeat it:\n\n{}", block(&report.plan.repeat));
    let _ = writeln!(out, "Seed {}, bigiron {}", report.plan.design.seed, escaped(&report.plan.bigiron));
    out
}

fn table(out: &mut String, arms: (&String, &String), rows: &[&Row<'_>]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "\n| metric | {} | {} | change | 95 % interval | verdict |\n|---|---:|---:|---:|---:|---|\n",
        escaped(arms.0),
        escaped(arms.1)
    );
    for row in rows {
        let name = format!("{} {} {}", row.line.workload, row.line.metric.name, row.arrow());
        let verdict = if row.line.metric.primary {
            format!("**{}**", escaped(&row.verdict()))
        } else {
            escaped(&row.verdict())
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {verdict} |",
            escaped(&name),
            escaped(&shown(&row.a)),
            escaped(&shown(&row.b)),
            escaped(&shown(&row.change)),
            escaped(&row.interval())
        );
    }
}

/// Text in which nothing is markup: CommonMark allows a backslash before each of these characters. An `@` would mention somebody, a `#1` an issue, and
/// `https:` would become a link, so these are written as entities.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '|' | '~' | '!' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '@' => out.push_str("&#64;"),
            '#' => out.push_str("&#35;"),
            '/' if out.ends_with(":/") => out.push_str("&#47;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A block of code whose fence is longer than any in the text.
fn block(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}sh\n{}\n{fence}\n", text.replace('\r', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_form_no_markup() {
        assert_eq!(escaped("a|b\n<img src=x> @root #12"), "a\\|b &lt;img src=x&gt; &#64;root &#35;12");
        assert_eq!(escaped("https://x.example"), "https:/&#47;x.example");
        assert_eq!(block("a ``` b"), "````sh\na ``` b\n````\n");
    }
}
