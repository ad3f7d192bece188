//! The history as text of at most 100 columns.

use std::fmt::Write;

use super::super::table::{Line, table, wrap};
use super::super::text::list;
use super::{ChangeText, SeriesText};
use super::{View, day};
use bigiron_judge::history::series::Series;

/// Width of a bar in columns.
const BAR: usize = 16;

/// Heights of a small bar, in steps of one eighth.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The whole view.
pub fn text(view: &View) -> String {
    let mut out = String::new();
    let main = view.main();
    if view.what.is_some() {
        for series in &main {
            detail(&mut out, series);
        }
    } else {
        overview(&mut out, &main);
    }
    let places = view.places();
    if places.is_empty() {
        let _ = writeln!(out, "\nNo change points");
    }
    for place in &places {
        let _ = write!(
            out,
            "\nBetween {} and {} ({} and {})\n",
            place.before.label, place.after.label, place.before.arm, place.after.arm
        );
        let cells = |(series, change): &(&Series, &bigiron_judge::history::series::SeriesChange)| {
            let interval = change
                .interval()
                .map_or_else(|| "none".to_owned(), |(l, h)| format!("{} … {}", l.number(), h.number()));
            Line::Cells(vec![
                format!("  {}{}", series.heading(), if series.metric.primary { " *" } else { "" }),
                change.size().to_string(),
                interval,
                change.word().to_owned(),
                format!("p {:.3}", change.p),
            ])
        };
        let head = ["  metric (* primary)", "change", "95 % CI, %", "", ""].map(str::to_owned).to_vec();
        let lines: Vec<Line> = std::iter::once(Line::Cells(head)).chain(place.changes.iter().map(cells)).collect();
        out.push_str(&table(&[false, true, true, false, false], &lines));
    }
    list(&mut out, "How to read it", &view.method());
    out
}

/// One line for each row: its primary metric over the kernels.
fn overview(out: &mut String, main: &[&Series]) {
    let mut lines = vec![Line::Cells(
        ["row and primary metric", "kernels", "", "first", "last", "change points"].map(str::to_owned).to_vec(),
    )];
    for series in main {
        let means = series.means();
        let at = |mean: Option<&Option<_>>| -> String {
            mean.and_then(|m: &Option<super::Quantity>| m.as_ref()).map_or_else(String::new, ToString::to_string)
        };
        let places: Vec<String> =
            series.changes.iter().map(|c| format!("{} {}", series.kernels[c.at].label, c.size())).collect();
        lines.push(Line::Cells(vec![
            series.heading(),
            series.kernels.len().to_string(),
            sparkline(series),
            at(means.first()),
            at(means.last()),
            places.join(", "),
        ]));
    }
    out.push_str(&table(&[false, true, false, true, true, false], &lines));
}

/// One line for each kernel.
fn detail(out: &mut String, series: &Series) {
    if !out.is_empty() {
        out.push('\n');
    }
    let clock = series.clock.map_or_else(String::new, |c| format!(", {c} clock"));
    let heading = format!("{}: {}{clock}", series.heading(), series.metric.summary);
    out.push_str(&wrap(&heading, "", "  "));
    let head = ["  kernel", "night", "boots", "mean", "", ""].map(str::to_owned).to_vec();
    let mut lines = vec![Line::Cells(head)];
    let means = series.means();
    let largest = series.kernels.iter().filter_map(|k| k.mean(&series.metric)).fold(0.0, f64::max);
    for (index, (kernel, mean)) in series.kernels.iter().zip(&means).enumerate() {
        let change = series.changes.iter().find(|c| c.at == index);
        let bar = kernel.mean(&series.metric).map_or_else(String::new, |m| bar(m / largest));
        let failed = if kernel.failed > 0 { format!(" ({} failed)", kernel.failed) } else { String::new() };
        lines.push(Line::Cells(vec![
            format!("{} {} {}", if change.is_some() { "►" } else { " " }, kernel.label, kernel.arm),
            day(&kernel.begun).to_owned(),
            format!("{}{failed}", kernel.values.len()),
            mean.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string),
            bar,
            change.map_or_else(String::new, |c| c.text()),
        ]));
    }
    out.push_str(&table(&[false, false, true, true, false, false], &lines));
}

/// A bar from zero, in eighths of a column.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// A character for each kernel, from the smallest mean to the largest.
fn sparkline(series: &Series) -> String {
    let means: Vec<Option<f64>> = series.kernels.iter().map(|k| k.mean(&series.metric)).collect();
    let low = means.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let high = means.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
    let height = |mean: f64| match high > low {
        true => HEIGHTS[((mean - low) / (high - low) * 7.0).round() as usize],
        false => HEIGHTS[0],
    };
    means.iter().map(|m| m.map_or(' ', height)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!((bar(0.0), bar(1.0).chars().count(), bar(2.0).chars().count()), (String::new(), BAR, BAR));
        assert_eq!(bar(1.0 / (8.0 * BAR as f64)), "▏");
        assert_eq!(bar(0.5), "█".repeat(BAR / 2));
    }
}
