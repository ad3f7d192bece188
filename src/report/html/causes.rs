//! The page's section on why lines differ.

use std::fmt::Write as _;

use super::super::flame::{self, Shown};
use super::super::{Report, why};
use super::{escape, minus, prose};

/// Why the lines that differ do: primaries and the largest changes open, the others closed.
pub(super) fn section(out: &mut String, report: &Report<'_>) {
    let found = &report.why;
    if found.is_empty() {
        return;
    }
    out.push_str("<h2>Why</h2>\n");
    for missing in &found.missing {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(missing));
    }
    for (index, comparison) in report.judgement.comparisons.iter().enumerate() {
        let (open, _) = why::selected(found, index, &comparison.lines);
        let arm = &report.plan.arms[comparison.arm].name;
        for of in found.causes.iter().filter(|c| c.comparison == index) {
            let is_open = if open.contains(&of) { " open=\"open\"" } else { "" };
            let shown = of.listed.min(why::MOST);
            let _ = writeln!(
                out,
                "<details{is_open}>\n<summary>{}: {}</summary>\n<div class=\"scroll\"><table class=\"cols\"><thead><tr>\
                 <th class=\"n\">share</th><th class=\"n\">change, ns</th><th class=\"n\">A</th><th class=\"n\">B</th><th>in</th></tr></thead><tbody>",
                escape(arm),
                escape(&why::head(of))
            );
            for cause in &of.causes[..shown] {
                let _ = writeln!(
                    out,
                    "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                    minus(&why::share(cause.delta() / of.delta())),
                    minus(&why::change(cause)),
                    minus(&why::ns(cause.a)),
                    minus(&why::ns(cause.b)),
                    escape(&why::name(cause))
                );
            }
            let _ = writeln!(out, "</tbody></table></div>");
            for text in report.told(of, shown) {
                let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&text));
            }
            if let Some(stacks) = found.stacks_of(of).filter(|_| open.contains(&of)) {
                let arms = (report.plan.arms[0].name.as_str(), arm.as_str());
                let _ = writeln!(out, "<div class=\"scroll\">{}</div>", flame::svg(stacks, arms, Shown::Difference));
            }
            out.push_str("</details>\n");
        }
    }
    if let Some(method) = why::method(found) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(&method));
    }
    super::locks::section(out, report);
}
