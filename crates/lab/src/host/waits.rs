//! What a trial waited for, from its windows' marks and the waits traced.

use anyhow::ensure;

use super::Trial;
use bigiron_model::values::Values;
use bigiron_model::waits::{LockStat, SCHEMA, Traced, TrialWaits, WindowWaits};
use bigiron_model::workload::Window;
use bigiron_probe::locks::waits::ByMetric;

/// The evidence of a trial: `marked` are its windows, and `windows` the waits in each.
pub(super) fn evidence(
    trial: &Trial<'_>,
    metrics: Values,
    marked: &[(String, Window)],
    (cpus, traced, windows): (u32, Traced, &[WindowWaits]),
    stat: Vec<LockStat>,
) -> anyhow::Result<TrialWaits> {
    ensure!(!marked.is_empty(), "Its workloads do not mark their windows");
    ensure!(
        windows.len() == marked.len(),
        "{} windows have marks with times, but the trial reports {}; with too many marks none are kept",
        windows.len(),
        marked.len()
    );
    let mut sums = ByMetric::default();
    for ((workload, window), waited) in marked.iter().zip(windows) {
        sums.add(workload, window, waited);
    }
    Ok(TrialWaits {
        schema: SCHEMA,
        slot: trial.slot.slot,
        image_sha256: trial.plan.image_of(trial.slot).to_owned(),
        metrics,
        cpus,
        traced,
        windows: sums.all(),
        stat,
    })
}
