//! The forest plot: one small SVG per row of the table, all on one axis.
//!
//! Invariant: the axis is improvement, and right is better for every metric; a metric where lower is better is mirrored here and nowhere else.

use std::fmt::Write;

use super::quantity::Quantity;
use super::row::Row;
use bigiron_judge::line::Order;
use bigiron_model::metric::Better;

/// Plot width in CSS pixels, and the margin at both ends.
pub const WIDTH: f64 = 312.0;
const EDGE: f64 = 10.0;
/// Width of a character of a tick's label in the widest of the page's fonts.
const CHARACTER: f64 = 7.4;
/// Beyond this number of margins the axis is compressed, so that the margin stays visible beside large changes.
const LINEAR_MARGINS: f64 = 8.0;

/// The axis of a comparison's plots, in improvement on the log scale.
pub struct Axis {
    /// Largest improvement shown, on either side.
    reach: f64,
    /// The point where compression begins; `None` for a linear axis.
    knee: Option<f64>,
}

impl Axis {
    /// An axis that fits everything in `rows`.
    pub fn new(rows: &[Row<'_>]) -> Axis {
        let mut reach = 0.0_f64;
        let mut margin = f64::INFINITY;
        for line in rows.iter().map(|r| r.line) {
            margin = margin.min(line.log_margin.max(1e-3));
            reach = reach.max(1.5 * line.log_margin);
            reach = line.deltas.iter().fold(reach, |m, d| m.max(d.d.abs()));
            if let Some((low, high)) = line.estimate.and_then(|e| e.ci95) {
                reach = reach.max(low.abs()).max(high.abs());
            }
        }
        if reach == 0.0 {
            (reach, margin) = (0.02, 0.02);
        }
        let knee = (reach > LINEAR_MARGINS * margin).then_some(margin);
        Axis { reach: reach * 1.04, knee }
    }

    /// The point where compression begins, in per cent, for the legend.
    pub fn knee(&self) -> Option<Quantity> {
        self.knee.map(|k| Quantity::margin(k.exp_m1()))
    }

    fn warp(&self, x: f64) -> f64 {
        match self.knee {
            Some(knee) => (x / knee).asinh(),
            None => x,
        }
    }

    /// The pixel of an improvement.
    fn x(&self, improvement: f64) -> f64 {
        WIDTH / 2.0 + (WIDTH / 2.0 - EDGE) * self.warp(improvement) / self.warp(self.reach)
    }

    /// Ticks on the better side: (improvement, label).
    fn ticks(&self) -> Vec<(f64, String)> {
        let limit = 100.0 * self.reach.exp_m1();
        let mut candidates = Vec::new();
        if self.knee.is_some() {
            for decade in -3..6 {
                candidates.extend([1.0, 2.0, 5.0].map(|d| d * 10f64.powi(decade)));
            }
        } else {
            let rough = limit / 3.5;
            let decade = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * decade).find(|s| *s >= rough).unwrap_or(rough);
            candidates.extend((1..20).map(|i| f64::from(i) * step));
        }
        let mut ticks = Vec::new();
        let width = |label: &str| CHARACTER * label.chars().count() as f64;
        // Where the previous label ends: at first, that of zero.
        let mut end = self.x(0.0) + width("0") / 2.0;
        for percent in candidates {
            let at = (percent / 100.0).ln_1p();
            let x = self.x(at);
            let label = Quantity::margin(percent / 100.0).to_string();
            let half = width(&label) / 2.0;
            if percent <= limit && x - half >= end && x + half <= WIDTH {
                end = x + half;
                ticks.push((at, label));
            }
        }
        ticks
    }

    /// Vertical lines of the axis: zero and the ticks of both sides.
    fn grid(&self, out: &mut String, height: f64) {
        for (at, _) in self.ticks() {
            for x in [self.x(at), self.x(-at)] {
                let _ = write!(out, r#"<path class="grid" d="M{x:.1} 0V{height}"/>"#);
            }
        }
        let _ = write!(out, r#"<path class="zero" d="M{:.1} 0V{height}"/>"#, self.x(0.0));
    }

    /// The labels of the axis, for the head of the column.
    pub fn labels(&self) -> String {
        let mut out = format!(
            r#"<svg class="axis" width="{WIDTH}" height="34" viewBox="0 0 {WIDTH} 34" role="img" aria-label="Axis: left is worse, right is better">"#
        );
        let _ = write!(
            out,
            r#"<text class="side" x="{EDGE}" y="11">← worse</text><text class="side end" x="{:.1}" y="11">better →</text>"#,
            WIDTH - EDGE
        );
        for (at, label) in self.ticks() {
            for x in [self.x(at), self.x(-at)] {
                let _ = write!(out, r#"<text class="tick" x="{x:.1}" y="29">{label}</text>"#);
            }
        }
        let _ = write!(out, r#"<text class="tick" x="{:.1}" y="29">0</text></svg>"#, self.x(0.0));
        out
    }

    /// One row's plot: margin band, a dot for each pair (filled: A ran first; open: B ran first), interval and estimate.
    pub fn plot(&self, row: &Row<'_>, height: f64) -> String {
        let line = row.line;
        let sign = if line.metric.better == Better::Higher { 1.0 } else { -1.0 };
        let label = match &row.change {
            Some(change) => format!("{change}, 95 % interval {}", row.interval()),
            None => "no estimate".to_owned(),
        };
        let mut out = format!(
            r#"<svg class="plot {}" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">"#,
            line.verdict
        );
        let (low, high) = (self.x(-line.log_margin), self.x(line.log_margin));
        let _ = write!(out, r#"<rect class="band" x="{low:.1}" y="0" width="{:.1}" height="{height}"/>"#, high - low);
        self.grid(&mut out, height);
        let middle = height / 2.0;
        if let Some(estimate) = &line.estimate {
            if let Some((low, high)) = estimate.ci95 {
                let (x1, x2) = (self.x(sign * low), self.x(sign * high));
                let (x1, x2) = (x1.min(x2), x1.max(x2));
                // An interval narrower than the marker must still be visible.
                let _ = write!(
                    out,
                    r#"<path class="ci" d="M{x1:.1} {middle}H{x2:.1}M{x1:.1} {:.1}v8M{x2:.1} {:.1}v8"/>"#,
                    middle - 4.0,
                    middle - 4.0
                );
            }
            let spread = height / 2.0 - 5.0;
            let count = line.deltas.len().max(2) as f64 - 1.0;
            for (i, delta) in line.deltas.iter().enumerate() {
                let y = middle + spread * (2.0 * i as f64 / count - 1.0);
                let class = if delta.order == Order::Ab { "dot" } else { "dot open" };
                let _ =
                    write!(out, r#"<circle class="{class}" cx="{:.1}" cy="{y:.1}" r="2"/>"#, self.x(sign * delta.d));
            }
            let r = if line.metric.primary { 6.0 } else { 4.5 };
            let x = self.x(sign * estimate.mean);
            let _ = write!(
                out,
                r#"<path class="mean" d="M{:.1} {middle}L{x:.1} {:.1}L{:.1} {middle}L{x:.1} {:.1}Z"/>"#,
                x - r,
                middle - r,
                x + r,
                middle + r
            );
        }
        out.push_str("</svg>");
        out
    }
}
