//! The history as JSON.

use bigiron_stats::change_point::Search;
use serde::Serialize;

use super::super::quantity::Quantity;
use super::View;
use super::{ChangeText, SeriesText};
use bigiron_judge::history::series::{Series, SeriesChange};
use bigiron_model::metric::MetricDef;

/// Version of this format.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    significance: f64,
    permutations: u32,
    series: Vec<Shown<'a>>,
    method: Vec<String>,
}

#[derive(Serialize)]
struct Shown<'a> {
    row: &'a str,
    metric: &'a MetricDef,
    clock: Option<&'static str>,
    configuration: &'a str,
    kernels: Vec<Kernel<'a>>,
    change_points: Vec<Changed<'a>>,
    smaller_than_margin: usize,
    margin: f64,
    entries_left_out: usize,
}

#[derive(Serialize)]
struct Kernel<'a> {
    version: &'a str,
    name: &'a str,
    release: &'a str,
    begun: &'a str,
    values: &'a [f64],
    mean: Option<Quantity>,
    failed_boots: usize,
}

#[derive(Serialize)]
struct Changed<'a> {
    /// Releases.
    before: &'a str,
    after: &'a str,
    change: Quantity,
    ci95: Option<[Quantity; 2]>,
    verdict: &'static str,
    p: f64,
    log: f64,
}

/// The whole view as one indented JSON document.
pub fn json(view: &View) -> String {
    let Search { significance, permutations, .. } = view.search;
    let document = Document {
        schema: SCHEMA,
        significance,
        permutations,
        series: view.series.iter().map(shown).collect(),
        method: view.method(),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("A view has string keys only");
    text.push('\n');
    text
}

fn shown(series: &Series) -> Shown<'_> {
    let changed = |change: &SeriesChange| Changed {
        before: &series.kernels[change.at - 1].release,
        after: &series.kernels[change.at].release,
        change: change.size(),
        ci95: change.interval().map(|(low, high)| [low, high]),
        verdict: change.word(),
        p: change.p,
        log: change.log,
    };
    let kernels = series.kernels.iter().zip(series.means()).map(|(k, mean)| Kernel {
        version: &k.label,
        name: &k.arm,
        release: &k.release,
        begun: &k.begun,
        values: &k.values,
        mean,
        failed_boots: k.failed,
    });
    Shown {
        row: &series.row,
        metric: &series.metric,
        clock: series.clock.map(|c| c.name()),
        configuration: &series.configuration,
        kernels: kernels.collect(),
        change_points: series.changes.iter().map(changed).collect(),
        smaller_than_margin: series.small,
        margin: series.margin,
        entries_left_out: series.left_out,
    }
}
