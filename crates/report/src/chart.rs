//! Curves over a load: one line chart for all arms where a workload has a metric for each of several loads (`NAME-1`, `NAME-2`, `NAME-4` …).
//!
//! Invariant: a chart shows exactly what the rows show: the arms' means, and the intervals of the changes.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::html::escape;
use super::quantity::Quantity;
use super::row::Row;
use bigiron_model::metric::Unit;

/// Size in CSS pixels, and the margins of the plot: left, right, above, below.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const ROOM: [f64; 4] = [124.0, 18.0, 14.0, 44.0];
/// Fewest loads that make a curve.
const POINTS: usize = 3;
/// If the largest load is at least this multiple of the smallest, the axis is logarithmic.
const WIDE: f64 = 10.0;
/// Width of a label of the horizontal axis.
const LABEL: f64 = 34.0;
/// Offset between lines in pixels, so that their intervals do not cover each other.
const APART: f64 = 5.0;

/// A metric over a load.
pub struct Chart {
    workload: String,
    name: String,
    unit: Unit,
    /// The arms that have points: the arm's index in the plan, and its points.
    lines: Vec<(usize, Vec<Point>)>,
}

/// An arm's value at a load.
struct Point {
    load: f64,
    value: f64,
    /// The 95 % interval of its change, applied to the first arm's value.
    interval: Option<(f64, f64)>,
}

/// `NAME` and the load of a metric `NAME-LOAD`.
fn split(name: &str) -> Option<(&str, u32)> {
    let (name, load) = name.rsplit_once('-')?;
    let is_number = !load.is_empty() && load.bytes().all(|b| b.is_ascii_digit()) && !load.starts_with('0');
    Some((name, load.parse().ok().filter(|_| is_number)?))
}

impl Chart {
    /// All charts that these comparisons make, each given with its arm's index in the plan.
    pub fn all(comparisons: &[(usize, &[Row<'_>])]) -> Vec<Chart> {
        let mut charts: Vec<Chart> = Vec::new();
        for (arm, rows) in comparisons {
            for row in *rows {
                let line = row.line;
                let Some((name, load)) = split(&line.metric.name) else { continue };
                let (Some(a), Some(b)) = (line.a, line.b) else { continue };
                let unit = line.metric.unit;
                let of = |c: &Chart| c.workload == line.workload && c.name == name && c.unit == unit;
                let place = charts.iter().position(of).unwrap_or_else(|| {
                    charts.push(Chart {
                        workload: line.workload.clone(),
                        name: name.to_owned(),
                        unit,
                        lines: Vec::new(),
                    });
                    charts.len() - 1
                });
                let interval = line.estimate.and_then(|e| e.ci95).map(|(low, high)| (a * low.exp(), a * high.exp()));
                charts[place].add(0, Point { load: f64::from(load), value: a, interval: None });
                charts[place].add(*arm, Point { load: f64::from(load), value: b, interval });
            }
        }
        charts.retain(|c| c.lines.iter().any(|(_, points)| points.len() >= POINTS));
        charts
    }

    fn add(&mut self, arm: usize, point: Point) {
        let place = self.lines.iter().position(|(a, _)| *a == arm).unwrap_or_else(|| {
            self.lines.push((arm, Vec::new()));
            self.lines.len() - 1
        });
        let points = &mut self.lines[place].1;
        // The first arm is in every comparison.
        if points.iter().all(|p| p.load != point.load) {
            points.push(point);
            points.sort_by(|x, y| x.load.total_cmp(&y.load));
        }
    }

    pub fn title(&self) -> String {
        format!("{} {}", self.workload, self.name)
    }

    /// The chart as SVG; `arms` are the plan's names.
    pub fn svg(&self, arms: &[&str]) -> String {
        let loads: Vec<f64> = self.points().map(|p| p.load).collect();
        let (least, most) = loads.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), x| (l.min(*x), m.max(*x)));
        let wide = most >= WIDE * least;
        let warp = |x: f64| if wide { x.ln() } else { x };
        let right = WIDTH - ROOM[1];
        let x = |load: f64| {
            ROOM[0] + 8.0 + (right - ROOM[0] - 16.0) * (warp(load) - warp(least)) / (warp(most) - warp(least))
        };
        let highest = self.points().flat_map(|p| [p.value, p.interval.map_or(0.0, |i| i.1)]).fold(0.0, f64::max);
        let (step, top) = steps(highest);
        let y = |value: f64| HEIGHT - ROOM[3] - (HEIGHT - ROOM[2] - ROOM[3]) * value / top;
        let mut out = format!(
            r#"<svg class="chart" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{} over {}">"#,
            escape(&self.title()),
            escape(&of_loads(&loads))
        );
        for n in 0..=(top / step).round() as u32 {
            let (value, at) = (f64::from(n) * step, y(f64::from(n) * step));
            let label = if n == 0 { "0".to_owned() } else { Quantity::metric(value, self.unit, 0.0).to_string() };
            let class = if n == 0 { "zero" } else { "grid" };
            let _ = write!(
                out,
                r#"<path class="{class}" d="M{} {at:.1}H{right}"/><text class="end" x="{}" y="{:.1}">{}</text>"#,
                ROOM[0],
                ROOM[0] - 8.0,
                at + 4.0,
                escape(&label)
            );
        }
        let distinct: BTreeSet<u64> = loads.iter().map(|l| *l as u64).collect();
        let mut last = f64::NEG_INFINITY;
        for load in distinct {
            let at = x(load as f64);
            if at - last >= LABEL {
                let _ = write!(out, r#"<text class="tick" x="{at:.1}" y="{}">{load}</text>"#, HEIGHT - ROOM[3] + 18.0);
                last = at;
            }
        }
        let shift = |place: usize| (place as f64 - (self.lines.len() as f64 - 1.0) / 2.0) * APART;
        for (place, (arm, points)) in self.lines.iter().enumerate() {
            let class = arm % 6;
            let path: Vec<String> = points.iter().map(|p| format!("{:.1} {:.1}", x(p.load), y(p.value))).collect();
            let _ = write!(out, r#"<g class="line{class}"><path class="curve" d="M{}"/>"#, path.join("L"));
            for p in points {
                if let Some((low, high)) = p.interval {
                    let (at, low, high) = (x(p.load) + shift(place), y(low), y(high));
                    let _ = write!(
                        out,
                        r#"<path class="bar" d="M{at:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6"/>"#,
                        at - 3.0,
                        at - 3.0
                    );
                }
                let _ = write!(
                    out,
                    r#"<circle class="at" cx="{:.1}" cy="{:.1}" r="3"><title>{}, {}: {}</title></circle>"#,
                    x(p.load),
                    y(p.value),
                    escape(arms.get(*arm).copied().unwrap_or_default()),
                    p.load,
                    escape(&Quantity::metric(p.value, self.unit, 0.0).to_string())
                );
            }
            out.push_str("</g>");
        }
        let mut from = ROOM[0] + 8.0;
        for (arm, _) in &self.lines {
            let name = arms.get(*arm).copied().unwrap_or_default();
            let _ = write!(
                out,
                r#"<g class="line{}"><path class="curve" d="M{from:.1} {y}h18"/></g><text x="{:.1}" y="{}">{}</text>"#,
                arm % 6,
                from + 24.0,
                HEIGHT - 8.0,
                escape(name),
                y = HEIGHT - 12.0
            );
            from += 44.0 + 7.0 * name.chars().count() as f64;
        }
        out.push_str("</svg>");
        out
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.lines.iter().flat_map(|(_, points)| points)
    }
}

fn of_loads(loads: &[f64]) -> String {
    let distinct: BTreeSet<u64> = loads.iter().map(|l| *l as u64).collect();
    distinct.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

/// Distance of the horizontal lines, a round number; and the top of the plot.
fn steps(highest: f64) -> (f64, f64) {
    let rough = (highest / 5.0).max(f64::MIN_POSITIVE);
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|s| s * decade).find(|s| *s >= rough).unwrap_or(rough);
    (step, step * (highest * 1.02 / step).ceil().max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_whole_numbers_at_the_end_of_a_name() {
        assert_eq!(split("rate-16"), Some(("rate", 16)));
        for name in ["commit-p99", "geomean", "jobs-", "jobs-08", "jobs-1k", "16"] {
            assert_eq!(split(name), None, "{name}");
        }
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(steps(900.0), (200.0, 1000.0));
        assert_eq!(steps(20_000.0), (5_000.0, 25_000.0));
        assert_eq!(steps(0.0).1, steps(0.0).0);
    }
}
