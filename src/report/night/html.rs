//! The grid as one HTML page, with a link to each row's own report.
//!
//! Invariant: as for the report of a study: no network, no script, every string from outside escaped.

use std::fmt::Write;

use super::super::html::{CSS, chip, escape, figure, list, minus, prose};
use super::{Changed, Report, Shown};

/// The whole report of a night as one page.
pub fn html(report: &Report) -> String {
    let title = escape(&report.title());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"/>\n<title>{title} - bigiron</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n\
         <div class=\"kicker\"><b>bigiron</b><span>{}</span></div>\n<h1>{title}</h1>\n",
        escape(&report.design())
    );
    let class = report.grid.verdict().map_or("unfinished", |v| v.name());
    let _ = writeln!(out, "<section class=\"answer {class}\">\n<ul>");
    for (arm, verdict) in report.grid.verdicts.iter().enumerate() {
        let chip = verdict.map_or_else(String::new, chip);
        let _ =
            writeln!(out, "<li class=\"said\"><span>{chip}</span><span>{}</span></li>", prose(&report.sentence(arm)));
    }
    out.push_str("</ul>\n</section>\n");
    for arm in 0..report.grid.verdicts.len() {
        let (a, b) = (&report.grid.arms[0], &report.grid.arms[arm + 1]);
        let _ = writeln!(
            out,
            "<h2>{} against {}</h2>\n<p class=\"note\">A = {}, B = {}</p>",
            escape(b),
            escape(a),
            escape(a),
            escape(b)
        );
        grid(&mut out, &report.rows(arm));
    }
    for previous in &report.previous {
        let (rows, reasons) = Report::previous_rows(previous);
        let _ = writeln!(out, "<h2>{}</h2>", escape(&report.previous_title(previous)));
        if !rows.is_empty() {
            grid(&mut out, &rows);
        }
        for reason in reasons {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", prose(&reason));
        }
    }
    list(&mut out, "How to read it", &report.method());
    kernels(&mut out, report);
    let _ = writeln!(
        out,
        "<h2>How to repeat it</h2>\n<pre>{}</pre>\n<p class=\"note\">Made by bigiron {} from the night's studies; <code>bigiron report DIR</code> \
         makes it again.</p>\n</main>\n</body>\n</html>",
        escape(&report.night.repeat),
        escape(&report.night.bigiron)
    );
    out
}

fn grid(out: &mut String, rows: &[Shown]) {
    out.push_str(
        "<div class=\"scroll\"><table class=\"night\"><thead><tr><th>row</th><th>pass/fail</th><th>improvements</th><th>regressions</th>\
         <th>primary</th><th class=\"n\">result A</th><th class=\"n\">result B</th><th class=\"n\">change</th><th class=\"n\">95 % CI, %</th>\
         <th>verdict</th></tr></thead><tbody>\n",
    );
    for row in rows {
        let name = match row.report.as_str() {
            "" => escape(&row.name),
            link => format!("<a href=\"{}\">{}</a>", escape(link), escape(&row.name)),
        };
        let changed = |changed: &[Changed]| {
            let names: Vec<String> = changed.iter().map(|c| minus(&c.text())).collect();
            let yes = row.yes(changed);
            if names.is_empty() {
                yes
            } else {
                format!("<details><summary>{yes}</summary>{}</details>", names.join("<br/>"))
            }
        };
        let outcome = if row.outcome.starts_with("Fail") {
            format!("<span class=\"chip worse\">{}</span>", row.outcome)
        } else {
            escape(row.outcome)
        };
        let _ = writeln!(
            out,
            "<tr><th>{name}</th><td>{outcome}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            changed(&row.improved),
            changed(&row.regressed),
            escape(row.metric.as_deref().unwrap_or_default()),
            row.a.as_ref().map_or_else(String::new, |q| figure(Some(q))),
            row.b.as_ref().map_or_else(String::new, |q| figure(Some(q))),
            row.change.as_ref().map_or_else(String::new, |q| figure(Some(q))),
            minus(row.interval.as_deref().unwrap_or_default()),
            row.verdict.map_or_else(String::new, chip)
        );
        for note in &row.notes {
            let _ = writeln!(out, "<tr><th></th><td colspan=\"9\">{}</td></tr>", prose(note));
        }
    }
    out.push_str("</tbody></table></div>\n");
}

fn kernels(out: &mut String, report: &Report) {
    out.push_str(
        "<h2>Kernels</h2>\n<div class=\"scroll\"><table class=\"cols\"><thead><tr><th>kernel</th><th>release</th><th>package</th>\
         <th>image, sha256</th></tr></thead><tbody>\n",
    );
    for arm in &report.night.arms {
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td><code>{}</code></td></tr>",
            escape(&arm.name),
            escape(&arm.kernel.release),
            escape(arm.kernel.package.as_deref().unwrap_or_default()),
            escape(&arm.kernel.image_sha256)
        );
    }
    out.push_str("</tbody></table></div>\n");
}
