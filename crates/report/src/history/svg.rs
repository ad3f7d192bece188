//! One series as a line over kernels: a dot for each boot, a line through the means, vertical lines at change points.
//!
//! Invariant: kernels stand at equal distances in the order of their versions; the value axis need not begin at zero and labels its ends.

use std::fmt::Write;

use super::super::html::{escape, minus};
use super::super::quantity::Quantity;
use super::{ChangeText, SeriesText};
use bigiron_judge::history::series::Series;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 260.0;
/// Width of a character of a label in the widest of the page's fonts.
const CHARACTER: f64 = 8.3;
const RIGHT: f64 = 30.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;
/// Most kernels whose labels fit side by side.
const LABELS: usize = 14;

/// The picture; empty for a series without values.
pub(super) fn svg(series: &Series) -> String {
    let Some((low, high)) = series.range() else { return String::new() };
    // A constant series is a line in the middle.
    let room = if high > low { 0.08 * (high - low) } else { 0.01 * high.abs().max(1e-9) };
    let (low, high) = (low - room, high + room);
    let count = series.kernels.len();
    let label = |value: f64| Quantity::couple(value, low, series.metric.unit, (high - low) / 20.0).0.to_string();
    let lines = [low, (low + high) / 2.0, high].map(|value| (value, label(value)));
    let longest = lines.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    let left = 16.0 + CHARACTER * longest as f64;
    let x = |i: f64| left + (WIDTH - left - RIGHT) * (i + 0.5) / count as f64;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low);
    let mut out = format!(
        r#"<svg class="line" viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="{}">"#,
        escape(&format!("{} over {count} kernels, {} change points", series.name(), series.changes.len()))
    );
    for (value, label) in lines {
        let _ = write!(
            out,
            r#"<path class="grid" d="M{left:.1} {:.1}H{:.1}"/><text class="tick end" x="{:.1}" y="{:.1}">{}</text>"#,
            y(value),
            WIDTH - RIGHT,
            left - 8.0,
            y(value) + 4.0,
            escape(&label)
        );
    }
    let every = count.div_ceil(LABELS).max(1);
    for (i, kernel) in series.kernels.iter().enumerate().filter(|(i, _)| i % every == 0) {
        let _ = write!(
            out,
            r#"<text class="tick" x="{:.1}" y="{:.1}">{}</text>"#,
            x(i as f64),
            HEIGHT - 14.0,
            escape(&kernel.label)
        );
    }
    // The level between change points.
    let mut bounds: Vec<usize> = series.changes.iter().map(|c| c.at).chain([0, count]).collect();
    bounds.sort_unstable();
    for segment in bounds.windows(2) {
        let values: Vec<f64> =
            series.kernels[segment[0]..segment[1]].iter().flat_map(|k| k.values.iter().copied()).collect();
        if values.is_empty() {
            continue;
        }
        let level = (values.iter().map(|v| v.max(f64::MIN_POSITIVE).ln()).sum::<f64>() / values.len() as f64).exp();
        let (from, to) = (x(segment[0] as f64 - 0.42), x(segment[1] as f64 - 0.58));
        let _ = write!(out, r#"<path class="level" d="M{from:.1} {0:.1}H{to:.1}"/>"#, y(level));
    }
    let means: Vec<(f64, f64)> = series
        .kernels
        .iter()
        .enumerate()
        .filter_map(|(i, k)| Some((x(i as f64), y(k.mean(&series.metric)?))))
        .collect();
    let path: Vec<String> = means.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let _ = write!(out, r#"<path class="joined" d="M{}"/>"#, path.join("L"));
    for (i, kernel) in series.kernels.iter().enumerate() {
        let spread = (kernel.values.len().max(2) - 1) as f64;
        for (boot, value) in kernel.values.iter().enumerate() {
            let at = x(i as f64) + 10.0 * (boot as f64 / spread - 0.5);
            let _ = write!(out, r#"<circle class="dot" cx="{at:.1}" cy="{:.1}" r="2.5"/>"#, y(*value));
        }
    }
    for change in &series.changes {
        let at = x(change.at as f64 - 0.5);
        let _ = write!(
            out,
            r#"<g class="{0}"><path class="change" d="M{at:.1} {TOP}V{1:.1}"/><text class="size" x="{at:.1}" y="{2:.1}">{3}</text></g>"#,
            change.word(),
            HEIGHT - BOTTOM,
            TOP - 10.0,
            escape(&minus(&change.size().to_string()))
        );
    }
    out.push_str("</svg>");
    out
}
