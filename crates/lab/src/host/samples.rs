//! What a trial executed, from its windows' marks and the samples taken.

use std::collections::BTreeMap;

use anyhow::ensure;

use super::Trial;
use super::window_sums::WindowSums;
use bigiron_model::evidence::{Evidence, SCHEMA};
use bigiron_model::values::Values;
use bigiron_model::workload::Window;
use bigiron_probe::sampled::profile::Profiles;

/// The evidence of a trial: `marked` are its windows, and `cpu_s` the CPU seconds that it cost the host.
pub(super) fn evidence(
    trial: &Trial<'_>,
    metrics: Values,
    cpu_s: f64,
    marked: Vec<(String, Window)>,
    profiles: Profiles,
) -> anyhow::Result<Evidence> {
    ensure!(!marked.is_empty(), "Its workloads do not mark their windows");
    ensure!(
        profiles.windows.len() == marked.len(),
        "{} windows have marks with times, but the trial reports {}; with too many marks none are kept",
        profiles.windows.len(),
        marked.len()
    );
    let (mut sums, mut stacks) = (WindowSums::default(), BTreeMap::<String, u64>::new());
    for ((workload, window), profile) in marked.into_iter().zip(profiles.windows) {
        sums.add(&workload, &window, profile.functions.iter().map(|(name, n)| (name.as_str(), *n)));
        for metric in &window.metrics {
            for (stack, n) in &profile.stacks {
                let count = stacks.entry(format!("{workload} {metric};{stack}")).or_default();
                *count = count.saturating_add(*n);
            }
        }
    }
    Ok(Evidence {
        schema: SCHEMA,
        slot: trial.slot.slot,
        image_sha256: trial.plan.image_of(trial.slot).to_owned(),
        metrics,
        cpu_s,
        windows: sums.executed(),
        sampled: Some(profiles.sampled),
        stacks: stacks.into_iter().map(|(stack, n)| format!("{stack} {n}\n")).collect(),
        places: Vec::new(),
    })
}
