//! The history's report: metrics over kernels, with their change points.
//!
//! Invariant: every format prints the same quantities of the same series.

mod html;
mod json;
mod svg;
mod text;

use bigiron_stats::change_point::Search;

use super::quantity::{Quantity, percent_decimals};
use super::sentence::join;
use crate::text::{arrow, day};
use bigiron_judge::history::series::{Series, SeriesChange, SeriesPoint};

pub use html::html;
pub use json::json;
pub use text::text;

/// The series to show, and how they were searched.
pub struct View {
    /// The requested row or metric; `None` for an overview of all rows.
    pub what: Option<String>,
    pub series: Vec<Series>,
    pub search: Search,
}

/// Change points of several series at one place.
struct SharedChange<'a> {
    before: &'a SeriesPoint,
    after: &'a SeriesPoint,
    /// Largest first.
    changes: Vec<(&'a Series, &'a SeriesChange)>,
}

impl View {
    pub fn new(what: Option<String>, series: Vec<Series>, search: Search) -> View {
        View { what, series, search }
    }

    fn title(&self) -> String {
        match &self.what {
            Some(what) => format!("{what} over kernels"),
            None => "All rows over kernels".to_owned(),
        }
    }

    /// Series shown kernel by kernel: the requested one, or the primary metrics.
    fn main(&self) -> Vec<&Series> {
        match &self.series[..] {
            [one] => vec![one],
            all => all.iter().filter(|s| s.metric.primary).collect(),
        }
    }

    /// The change points of all series by place, in the order of versions.
    fn places(&self) -> Vec<SharedChange<'_>> {
        let mut places: Vec<SharedChange<'_>> = Vec::new();
        for series in &self.series {
            for change in &series.changes {
                let (before, after) = (&series.kernels[change.at - 1], &series.kernels[change.at]);
                let same =
                    |p: &&mut SharedChange<'_>| p.before.release == before.release && p.after.release == after.release;
                match places.iter_mut().find(same) {
                    Some(place) => place.changes.push((series, change)),
                    None => places.push(SharedChange { before, after, changes: vec![(series, change)] }),
                }
            }
        }
        let order =
            |point: &SeriesPoint| self.series.iter().flat_map(|s| &s.kernels).position(|k| k.release == point.release);
        places.sort_by_key(|p| (order(p.after), order(p.before)));
        for place in &mut places {
            place.changes.sort_by(|a, b| b.1.log.abs().total_cmp(&a.1.log.abs()));
        }
        places
    }

    /// How the change points were found, and what limits the result.
    fn method(&self) -> Vec<String> {
        let small: usize = self.series.iter().map(|s| s.small).sum();
        let mut all = vec![format!(
            "Change points by E-divisive on the logarithms of the boots' values, {} permutations: they lie between kernels only, and in a metric that \
             never changed one is found with a probability of at most {}. {} tested",
            self.search.permutations,
            Quantity::margin(self.search.significance),
            match self.series.len() {
                1 => "1 metric was".to_owned(),
                n => format!("{n} metrics were"),
            }
        )];
        if small > 0 {
            all.push(format!("{small} more change points are smaller than their metric's margin; `--all` shows them"));
        }
        all.push(
            "Sizes are ratios of geometric means over the boots between the neighbouring change points, with Welch's 95 % interval".to_owned(),
        );
        let left_out = self.series.iter().map(|s| s.left_out).max().unwrap_or(0);
        if left_out > 0 {
            let mut parts: Vec<&str> =
                self.series.iter().flat_map(|s| s.differing.iter().map(String::as_str)).collect();
            parts.sort_unstable();
            parts.dedup();
            all.push(format!(
                "Up to {left_out} entries are left out, because their configuration differs from the newest: {}",
                join(&parts)
            ));
        }
        let mut unrepeatable: Vec<&str> =
            self.series.iter().flat_map(|s| s.unrepeatable.iter().map(String::as_str)).collect();
        unrepeatable.sort_unstable();
        unrepeatable.dedup();
        if !unrepeatable.is_empty() {
            all.push(format!(
                "The same boots of {} gave different values on another night, which must not happen under the exact clock; the first values are shown",
                join(&unrepeatable)
            ));
        }
        all
    }
}

/// A series as a report prints it.
trait SeriesText {
    /// `micro.fork`.
    fn name(&self) -> String;
    /// `micro.fork ↓`.
    fn heading(&self) -> String;
    /// The mean of every kernel, in one unit.
    fn means(&self) -> Vec<Option<Quantity>>;
    /// The smallest and the largest of the boots' values, or `None` if there are none.
    fn range(&self) -> Option<(f64, f64)>;
}

impl SeriesText for Series {
    fn name(&self) -> String {
        format!("{}.{}", self.row, self.metric.name)
    }

    fn heading(&self) -> String {
        format!("{} {}", self.name(), arrow(self.metric.better))
    }

    fn means(&self) -> Vec<Option<Quantity>> {
        let means: Vec<Option<f64>> = self.kernels.iter().map(|k| k.mean(&self.metric)).collect();
        let least = means.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        means.iter().map(|m| m.map(|m| Quantity::couple(m, least, self.metric.unit, 0.0).0)).collect()
    }

    fn range(&self) -> Option<(f64, f64)> {
        let values = || self.kernels.iter().flat_map(|k| &k.values).copied();
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        (low <= high).then_some((low, high))
    }
}

/// A change point as a report prints it.
trait ChangeText {
    fn decimals(&self) -> usize;
    fn size(&self) -> Quantity;
    fn interval(&self) -> Option<(Quantity, Quantity)>;
    /// `+9.1 % (+8.9 … +9.3) worse`.
    fn text(&self) -> String;
    fn word(&self) -> &'static str;
}

impl ChangeText for SeriesChange {
    fn decimals(&self) -> usize {
        let percent = |log: f64| 100.0 * log.exp_m1();
        percent_decimals(percent(self.log), self.ci95.map(|(l, h)| (percent(l), percent(h))))
    }

    fn size(&self) -> Quantity {
        Quantity::change(self.log, self.decimals())
    }

    fn interval(&self) -> Option<(Quantity, Quantity)> {
        self.ci95.map(|(low, high)| (Quantity::change(low, self.decimals()), Quantity::change(high, self.decimals())))
    }

    fn text(&self) -> String {
        let interval =
            self.interval().map_or_else(String::new, |(low, high)| format!(" ({} … {})", low.number(), high.number()));
        format!("{}{interval} {}", self.size(), self.word())
    }

    fn word(&self) -> &'static str {
        if self.better { "better" } else { "worse" }
    }
}
