//! The history as one HTML page.
//!
//! Invariant: as for the report of a study: no network, no script, every string from outside escaped.

use std::fmt::Write;

use super::super::html::{CSS, escape, list, minus, prose};
use super::{View, day, svg};
use crate::history::series::Series;

/// What the lines need beyond the reports' style.
const LINES: &str = "svg.line { display: block; background: var(--card); border: 1px solid var(--rule); border-radius: 10px; margin: 8px 0; }\n\
    svg.line text { font-size: 13px; }\nsvg .level { stroke: var(--zero); stroke-width: 2; stroke-dasharray: 5 4; fill: none; }\n\
    svg .joined { stroke: var(--same); stroke-width: 1.5; fill: none; }\nsvg .change { stroke: var(--v); stroke-width: 2; }\n\
    svg text.size { fill: var(--v); text-anchor: middle; font-weight: 600; }\nsvg.line .dot { fill: var(--same); }\n";

/// The whole view as one page.
pub fn html(view: &View) -> String {
    let title = escape(&view.title());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"/>\n<title>{title} - bigiron</title>\n<style>\n{CSS}{LINES}</style>\n</head>\n<body>\n<main>\n\
         <div class=\"kicker\"><b>bigiron</b><span>history</span></div>\n<h1>{title}</h1>\n"
    );
    places(&mut out, view);
    // Whoever asks for a row sees where it changed; the overview keeps to the primaries.
    let shown =
        |s: &&Series| s.metric.primary || view.series.len() == 1 || (view.what.is_some() && !s.changes.is_empty());
    for series in view.series.iter().filter(shown) {
        let clock = series.clock.map_or_else(String::new, |c| format!(", {c} clock"));
        let _ = writeln!(
            out,
            "<h2>{}</h2>\n<p class=\"note\">{}{clock}</p>\n{}",
            escape(&series.heading()),
            prose(&series.metric.summary),
            svg::svg(series)
        );
        kernels(&mut out, series);
    }
    list(&mut out, "How to read it", &view.method());
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn places(out: &mut String, view: &View) {
    let places = view.places();
    if places.is_empty() {
        out.push_str("<p>No change points.</p>\n");
        return;
    }
    out.push_str(
        "<h2>Change points</h2>\n<div class=\"scroll\"><table class=\"cols\"><thead><tr><th>metric</th><th class=\"n\">change</th>\
         <th class=\"n\">95 % CI, %</th><th></th><th class=\"n\">p</th></tr></thead><tbody>\n",
    );
    for place in &places {
        let _ = writeln!(
            out,
            "<tr class=\"head\"><th colspan=\"5\">Between {} and {}</th></tr>",
            escape(&place.before.release),
            escape(&place.after.release)
        );
        for (series, change) in &place.changes {
            let interval = change
                .interval()
                .map_or_else(|| "none".to_owned(), |(l, h)| format!("{} … {}", l.number(), h.number()));
            let _ = writeln!(
                out,
                "<tr><th>{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td><span class=\"chip {w}\">{w}</span></td><td class=\"n\">{:.3}</td></tr>",
                escape(&series.heading()),
                minus(&change.size().to_string()),
                minus(&interval),
                change.p,
                w = change.word()
            );
        }
    }
    out.push_str("</tbody></table></div>\n");
}

fn kernels(out: &mut String, series: &Series) {
    out.push_str(
        "<details><summary>Kernels</summary>\n<div class=\"scroll\"><table class=\"cols\"><thead><tr><th>version</th><th>release</th>\
         <th>night</th><th class=\"n\">boots</th><th class=\"n\">mean</th></tr></thead><tbody>\n",
    );
    for (kernel, mean) in series.kernels.iter().zip(series.means()) {
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&kernel.label),
            escape(&kernel.release),
            escape(day(&kernel.begun)),
            kernel.values.len(),
            escape(&mean.map_or_else(|| "none".to_owned(), |m| m.to_string()))
        );
    }
    out.push_str("</tbody></table></div></details>\n");
}
