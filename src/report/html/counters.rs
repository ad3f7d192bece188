//! The page's section on what kernels counted: those that differ, and all, folded.

use std::fmt::Write as _;

use super::super::Report;
use super::super::counters::{Figures, Shown, method, name, shown, sum};
use super::{escape, minus, prose};

/// Counters that differ, and all others behind a fold.
pub(super) fn section(out: &mut String, report: &Report<'_>) {
    let Some(method) = method(report) else { return };
    out.push_str("<h2>Counters</h2>\n");
    for (counts, comparison) in report.counters.iter().zip(&report.judgement.comparisons) {
        let arm = escape(&report.plan.arms[comparison.arm].name);
        if report.counters.len() > 1 {
            let _ = writeln!(out, "<h3>{arm}</h3>");
        }
        let few = shown(counts, false);
        table(out, &few);
        let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(&sum(counts, &few)));
        let _ =
            writeln!(out, "<details>\n<summary>{arm}: all {} that were not nothing</summary>", counts.counters.len());
        table(out, &shown(counts, true));
        for (title, names) in [
            ("Nothing in both arms", &counts.never),
            ("Only A's kernel has", &counts.only_a),
            ("Only B's kernel has", &counts.only_b),
        ] {
            if !names.is_empty() {
                let _ = writeln!(out, "<p class=\"note\">{title}: {}.</p>", escape(&names.join(", ")));
            }
        }
        out.push_str("</details>\n");
    }
    let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(&method));
}

fn table(out: &mut String, shown: &Shown<'_>) {
    if shown.counters.is_empty() {
        return;
    }
    out.push_str(
        "<div class=\"scroll\"><table class=\"cols\"><thead><tr><th>counter</th><th class=\"n\">A</th><th class=\"n\">B</th>\
         <th class=\"n\">change</th><th class=\"n\">95 % CI, %</th><th>in</th></tr></thead><tbody>\n",
    );
    for counter in &shown.counters {
        let figures = Figures::of(counter);
        let mark = if counter.differs() && !counter.discovery() { " ?" } else { "" };
        let change = figures.change.map_or_else(String::new, |change| format!("{}{mark}", minus(&change.to_string())));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{change}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escape(&name(counter)),
            minus(&figures.a.to_string()),
            minus(&figures.b.to_string()),
            minus(&figures.interval),
            escape(&shown.place(counter))
        );
    }
    out.push_str("</tbody></table></div>\n");
}
