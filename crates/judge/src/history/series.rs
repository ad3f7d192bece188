//! A series: one metric of one row over all kernels of the history, and the change points in it.
//!
//! Invariant: a series holds values of one configuration only, and each kernel once, with all its boots.

use std::collections::{BTreeMap, BTreeSet};

use bigiron_stats::Student;
use bigiron_stats::change_point::{self, Search};

use super::entry::{Boot, EntryRow, HistoryEntry, Measured};
use super::file::History;
use super::kernels;
use bigiron_model::clock::Clock;
use bigiron_model::margins;
use bigiron_model::metric::{Better, MetricDef};

/// One metric of one row over many kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub row: String,
    pub metric: MetricDef,
    pub clock: Option<Clock>,
    /// Digest of the configuration under which all values were measured.
    pub configuration: String,
    /// By version.
    pub kernels: Vec<SeriesPoint>,
    /// By version. All are at least as large as the margin of the metric's kind, unless the caller wanted all.
    pub changes: Vec<SeriesChange>,
    /// Number of change points smaller than the margin.
    pub small: usize,
    /// The smallest change that is shown, as a ratio.
    pub margin: f64,
    /// Number of entries with other configurations, and the parts in which these differ.
    pub left_out: usize,
    pub differing: Vec<String>,
    /// Kernels whose boots with equal seeds gave different values on different nights, which must not happen under the exact clock.
    pub unrepeatable: Vec<String>,
}

/// A kernel in a series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoint {
    /// Upstream version.
    pub label: String,
    /// Its name in the newest night.
    pub arm: String,
    pub release: String,
    /// When its newest night began.
    pub begun: String,
    /// One value for each boot, in the metric's base unit.
    pub values: Vec<f64>,
    /// Number of failed boots.
    pub failed: usize,
}

/// A place where a metric changed.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesChange {
    /// The first kernel after the change: index into [`Series::kernels`].
    pub at: usize,
    /// p of "there is no further change".
    pub p: f64,
    /// ln of the ratio of geometric means, after to before, over the boots up to the neighbouring changes; and its 95 % interval (Welch).
    pub log: f64,
    pub ci95: Option<(f64, f64)>,
    /// Whether the change is for the better.
    pub better: bool,
}

/// Rows and metrics of the history, in the order of its newest entries: (row, metric).
pub fn names(history: &History) -> Vec<(String, MetricDef)> {
    let mut names: Vec<(String, MetricDef)> = Vec::new();
    for row in history.entries.iter().rev().flat_map(|e| &e.rows) {
        for measured in &row.metrics {
            if !names.iter().any(|(r, m)| *r == row.row && m.name == measured.metric.name) {
                names.push((row.row.clone(), measured.metric.clone()));
            }
        }
    }
    // Rows stay together, in whichever nights they ran.
    let mut rows: Vec<String> = Vec::new();
    for (row, _) in &names {
        if !rows.contains(row) {
            rows.push(row.clone());
        }
    }
    names.sort_by_key(|(row, _)| rows.iter().position(|r| r == row));
    names
}

/// The series of `metric` in `row`; `None` if no entry has it. `all` includes changes smaller than the margin.
pub fn series(history: &History, row: &str, metric: &str, search: &Search, all: bool) -> Option<Series> {
    let of = |entry: &'_ HistoryEntry| -> Option<(EntryRow, Measured)> {
        let found = entry.rows.iter().find(|r| r.row == row)?;
        Some((found.clone(), found.metrics.iter().find(|m| m.metric.name == metric)?.clone()))
    };
    let having: Vec<(&HistoryEntry, EntryRow, Measured)> =
        history.entries.iter().filter_map(|e| of(e).map(|(r, m)| (e, r, m))).collect();
    // A night in which a boot failed reran its rows alone; that must not hide the nights without failures.
    let (_, newest, measured) = having.iter().rev().find(|(_, row, _)| !row.alone).or(having.last())?;
    let clock: Option<Clock> = newest.configuration.get("clock").and_then(|c| Clock::named(c));
    let mut differing: BTreeSet<String> = BTreeSet::new();
    let mut left_out = 0;
    let mut same = Vec::new();
    for (entry, row, measured) in &having {
        let differences = row.differences(newest);
        if differences.is_empty() {
            same.push((*entry, row, measured));
        } else {
            left_out += 1;
            differing.extend(differences.into_iter().map(str::to_owned));
        }
    }
    same.sort_by(|a, b| kernels::compare(&a.0.kernel, &b.0.kernel));
    let mut points = Vec::new();
    let mut unrepeatable = Vec::new();
    for group in same.chunk_by(|a, b| a.0.kernel.image_sha256 == b.0.kernel.image_sha256) {
        let (point, repeats) = point(group, clock);
        if !repeats {
            unrepeatable.push(point.arm.clone());
        }
        points.push(point);
    }
    let margin = margins::complete(&BTreeMap::new())[&measured.metric.kind];
    let (changes, small) = changes(&points, &measured.metric, search, if all { 0.0 } else { margin.ln_1p() });
    Some(Series {
        row: row.to_owned(),
        metric: measured.metric.clone(),
        clock,
        configuration: newest.digest(),
        kernels: points,
        changes,
        small,
        margin,
        left_out,
        differing: differing.into_iter().collect(),
        unrepeatable,
    })
}

/// Joins one kernel's entries, and tells whether boots with the same seeds agree.
fn point(group: &[(&HistoryEntry, &EntryRow, &Measured)], clock: Option<Clock>) -> (SeriesPoint, bool) {
    let mut boots: Vec<(Boot, f64)> = Vec::new();
    let mut repeats = true;
    for (_, row, measured) in group {
        for (boot, value) in row.boots.iter().zip(&measured.values) {
            match boots.iter().find(|(known, _)| known == boot) {
                // The same boot repeated gives the same bytes and adds no evidence. On the wall clock no two boots are the same.
                Some((_, known)) if clock.is_some_and(Clock::is_exact) => repeats &= known == value,
                _ => boots.push((*boot, *value)),
            }
        }
    }
    let newest = group.iter().map(|(e, ..)| e).max_by(|a, b| a.begun.cmp(&b.begun)).expect("a group is never empty");
    let point = SeriesPoint {
        label: kernels::label(newest),
        arm: newest.arm.clone(),
        release: newest.kernel.release.clone(),
        begun: newest.begun.clone(),
        values: boots.into_iter().map(|(_, value)| value).collect(),
        failed: group.iter().map(|(_, row, _)| row.failures.len()).max().unwrap_or(0),
    };
    (point, repeats)
}

fn changes(points: &[SeriesPoint], metric: &MetricDef, search: &Search, least: f64) -> (Vec<SeriesChange>, usize) {
    let logs = |p: &SeriesPoint| p.values.iter().map(|v| v.max(metric.floor()).ln()).collect::<Vec<f64>>();
    let groups: Vec<Vec<f64>> = points.iter().map(logs).collect();
    let found = search.run(&groups);
    let places: Vec<usize> = found.iter().map(|c| c.at).collect();
    let kept = change_point::at_least(&groups, &places, least);
    let change = |(index, at): (usize, &usize)| {
        let (before, after) = change_point::sides(&groups, &kept, index);
        let difference = Student::welch(&before, &after);
        SeriesChange {
            at: *at,
            p: found.iter().find(|c| c.at == *at).map_or(1.0, |c| c.p),
            log: difference.mean(),
            ci95: difference.interval(0.05),
            better: (difference.mean() > 0.0) == (metric.better == Better::Higher),
        }
    };
    (kept.iter().enumerate().map(change).collect(), places.len() - kept.len())
}

impl SeriesPoint {
    /// Geometric mean; `None` if there is no boot.
    pub fn mean(&self, metric: &MetricDef) -> Option<f64> {
        let n = self.values.len() as f64;
        (n > 0.0).then(|| (self.values.iter().map(|v| v.max(metric.floor()).ln()).sum::<f64>() / n).exp())
    }
}

/// Made-up histories for tests.
pub mod fixture {
    use super::*;
    use crate::history::entry::SCHEMA;
    use bigiron_model::identity::Identity;
    use bigiron_model::metric::{Kind, Unit};

    /// A kernel's entry with one row `micro` and one metric `fork` (nanoseconds).
    pub fn entry(night: &str, version: &str, values: &[f64]) -> HistoryEntry {
        let metric = MetricDef {
            name: "fork".into(),
            unit: Unit::Ns,
            better: Better::Lower,
            kind: Kind::Cost,
            primary: true,
            summary: "fork, exit and wait".into(),
        };
        let configuration = [("clock", "exact"), ("executable", "e1")];
        HistoryEntry {
            schema: SCHEMA,
            night: night.into(),
            begun: format!("2026-11-{:02}T00:00:00Z", 1 + night.len()),
            bigiron: "0.1.0".into(),
            arm: format!("debian:{version}"),
            baseline: false,
            kernel: Identity {
                spec: format!("debian:{version}"),
                release: format!("{version}.0-amd64"),
                package: None,
                image_sha256: version.into(),
                config_sha256: None,
            },
            rows: vec![EntryRow {
                row: "micro".into(),
                workload: "micro".into(),
                alone: false,
                configuration: configuration.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
                failures: Vec::new(),
                boots: (0..values.len() as u64).map(|i| Boot { workload_seed: i, boot_seed: i }).collect(),
                metrics: vec![Measured { metric, values: values.to_vec() }],
            }],
        }
    }

    /// Five kernels with four boots each, with a step of 10 % at the third.
    pub fn stepped() -> History {
        let wobble = [0.999, 1.0, 1.0005, 1.001];
        let of = |version: &str, level: f64| entry(version, version, &wobble.map(|w| w * level));
        let entries = [("6.12", 110.0), ("5.10", 100.0), ("7.2", 110.1), ("6.1", 100.1), ("6.18", 110.05)];
        History { entries: entries.iter().map(|(v, l)| of(v, *l)).collect(), unreadable: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{entry, stepped};
    use super::*;

    fn found(history: &History, all: bool) -> Series {
        series(history, "micro", "fork", &Search::default(), all).unwrap()
    }

    #[test]
    fn kernels_stand_in_the_order_of_versions_and_a_step_is_found_with_its_size() {
        let series = found(&stepped(), false);
        let labels: Vec<&str> = series.kernels.iter().map(|k| k.label.as_str()).collect();
        assert_eq!(labels, ["5.10.0", "6.1.0", "6.12.0", "6.18.0", "7.2.0"]);
        let [change] = &series.changes[..] else { panic!("{:?}", series.changes) };
        assert_eq!((change.at, change.better), (2, false));
        let (low, high) = change.ci95.unwrap();
        assert!((change.log - 1.1f64.ln()).abs() < 0.001 && low < change.log && change.log < high);
    }

    #[test]
    fn a_night_again_adds_nothing_and_a_contradiction_is_told() {
        let mut history = stepped();
        history.entries.push(HistoryEntry { night: "again".into(), ..history.entries[0].clone() });
        assert_eq!(found(&history, false), Series { left_out: 0, ..found(&stepped(), false) });
        history.entries.last_mut().unwrap().rows[0].metrics[0].values[2] *= 1.01;
        let series = found(&history, false);
        assert_eq!(series.unrepeatable, ["debian:6.12"]);
        assert!(series.kernels.iter().all(|k| k.values.len() == 4));
    }

    #[test]
    fn what_cannot_be_compared_is_left_out_by_name() {
        let mut history = stepped();
        let mut other = entry("later", "7.3", &[100.0; 4]);
        other.rows[0].configuration.insert("executable".into(), "e2".into());
        history.entries.insert(0, other.clone());
        let series = found(&history, false);
        assert_eq!(
            (series.kernels.len(), series.left_out, &series.differing[..]),
            (5, 1, &["executable".to_owned()][..])
        );
        // The newest entry decides which configuration the series shows.
        history.entries.push(other);
        assert_eq!(found(&history, false).kernels.len(), 1);
        history.entries.last_mut().unwrap().rows[0].alone = true;
        history.entries.remove(0);
        assert_eq!(found(&history, false).kernels.len(), 5);
        assert!(super::series(&history, "micro", "nothing", &Search::default(), false).is_none());
    }

    #[test]
    fn changes_below_the_margin_are_counted_or_shown() {
        let mut history = stepped();
        for value in &mut history.entries[2].rows[0].metrics[0].values {
            *value *= 1.01;
        }
        let (few, all) = (found(&history, false), found(&history, true));
        assert_eq!((few.changes.len(), all.small), (1, 0));
        assert!(few.small > 0 && all.changes.len() == few.changes.len() + few.small);
    }

    #[test]
    fn names_are_those_of_all_entries() {
        let names = names(&stepped());
        assert_eq!(names.iter().map(|(r, m)| (r.as_str(), m.name.as_str())).collect::<Vec<_>>(), [("micro", "fork")]);
    }
}
