//! The page's part on what lines waited for.

use std::fmt::Write as _;

use super::super::{Report, locks};
use super::{escape, minus, prose};

/// What every line that was looked at waited for; primaries open.
pub(super) fn section(out: &mut String, report: &Report<'_>) {
    let found = &report.why.locks;
    for (arm, why) in &found.untold {
        let _ = writeln!(out, "<p class=\"note\">{}: no locks: {}</p>", escape(arm), prose(why));
    }
    for line in &found.lines {
        let comparison = &report.judgement.comparisons[line.comparison];
        let arms = (&report.plan.arms[0].name, &report.plan.arms[comparison.arm].name);
        let open = if locks::is_primary(line, &comparison.lines) { " open=\"open\"" } else { "" };
        let _ = writeln!(out, "<details{open}>\n<summary>{}: {}</summary>", escape(arms.1), escape(&locks::head(line)));
        for sentence in locks::sentences(line) {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(&sentence));
        }
        rows(out, &["change, ns", "A", "B", "waits, A", "B", "for"], &locks::changes(line, locks::MOST));
        for (letter, arm, baseline) in [('A', arms.0, true), ('B', arms.1, false)] {
            let _ = writeln!(out, "<p class=\"note\">{letter} = {}</p>", escape(arm));
            let table = locks::lockmeter(line, baseline, report.plan.machine.cpus, locks::MOST);
            rows(out, &locks::COLUMNS, &table);
        }
        out.push_str("</details>\n");
    }
    if let Some(method) = locks::method(found) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(&method));
    }
}

/// A table whose last column is a name, indented where it is a caller's.
fn rows<const N: usize>(out: &mut String, heads: &[&str; N], rows: &[[String; N]]) {
    out.push_str("<div class=\"scroll\"><table class=\"cols\"><thead><tr>");
    for (n, head) in heads.iter().enumerate() {
        let class = if n + 1 < N { " class=\"n\"" } else { "" };
        let _ = write!(out, "<th{class}>{}</th>", escape(head));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (n, cell) in row.iter().enumerate() {
            let _ = match n + 1 < N {
                true => write!(out, "<td class=\"n\">{}</td>", minus(cell)),
                false => write!(out, "<td>{}</td>", escape(cell).replace("  ", "\u{a0}\u{a0}\u{a0}")),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}
