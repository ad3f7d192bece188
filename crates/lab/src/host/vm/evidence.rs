//! Evidence from a guest: QEMU counts what its windows execute, or the guest samples that, or records what they wait for.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context as _, ensure};
use bigiron_profile::Windows;

use super::FinishedGuest;
use crate::host::Trial;
use crate::host::window_sums::WindowSums;
use crate::host::{samples, waits};
use bigiron_model::evidence::{Evidence, SCHEMA};
use bigiron_model::modelled::{self, Event, Geometry};
use bigiron_model::waits::TrialWaits;
use bigiron_probe::symbols::Symbols;

/// What a guest executed, from its events and from the plugin's file.
pub(super) fn counted(trial: &Trial<'_>, booted: &mut FinishedGuest, profile: &Path) -> anyhow::Result<Evidence> {
    let bytes = std::fs::read(profile).with_context(|| format!("Cannot read {}", profile.display()))?;
    let windows: Vec<_> = Windows::new(&bytes)
        .and_then(Iterator::collect)
        .map_err(|why| anyhow::anyhow!("The profile is not usable: {why}"))?;
    let received = std::mem::take(&mut booted.received);
    let said = received.windows;
    ensure!(
        windows.len() == said.len(),
        "{} windows were counted, and the guest tells of {}",
        windows.len(),
        said.len()
    );
    let symbols = Symbols::from_compact(&received.symbols, received.programs).map_err(anyhow::Error::msg)?;
    let mut sums = WindowSums::default();
    for ((workload, window), counts) in said.into_iter().zip(windows) {
        let (mut functions, mut calls) = (HashMap::<String, u64>::new(), HashMap::<String, u64>::new());
        for (address, count) in counts.counts {
            if let Some(call) = symbols.system_call(address) {
                *calls.entry(call.to_owned()).or_default() += count;
            }
            *functions.entry(symbols.name(address)).or_default() += count;
        }
        sums.add(&workload, &window, functions.iter().map(|(name, n)| (name.as_str(), *n)));
        sums.add_calls(&workload, &window, &calls);
        let mut modelled = HashMap::<String, BTreeMap<u8, u64>>::new();
        for (address, row) in counts.rows {
            let events = modelled.entry(symbols.name(address)).or_default();
            // A place is in the upper 8 bits of a word.
            row.for_each(|(place, n)| *events.entry(place as u8).or_default() += whole(place, n, counts.sampled));
        }
        sums.add_modelled(&workload, &window, &modelled);
    }
    let is_modelled = sums.is_modelled();
    Ok(Evidence {
        schema: SCHEMA,
        slot: trial.slot.slot,
        image_sha256: trial.plan.image_of(trial.slot).to_owned(),
        metrics: booted.result.metrics.clone(),
        cpu_s: booted.result.cost.cpu_s,
        windows: sums.executed(),
        sampled: None,
        stacks: String::new(),
        places: if is_modelled { modelled::places() } else { Vec::new() },
    })
}

/// The count of a window, given that of its samples, and the instructions of both.
fn whole(place: usize, n: u64, (total, sampled): (u64, u64)) -> u64 {
    let is_sampled = Event::ALL
        .into_iter()
        .any(|event| event.is_sampled() && (0..Geometry::ALL.len()).any(|geometry| event.at(geometry) == place));
    if !is_sampled || sampled == 0 {
        return n;
    }
    let scaled = (u128::from(n) * u128::from(total) + u128::from(sampled) / 2) / u128::from(sampled);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// What a guest executed, by the samples that it took itself.
pub(super) fn sampled(trial: &Trial<'_>, booted: &mut FinishedGuest) -> anyhow::Result<Evidence> {
    let received = std::mem::take(&mut booted.received);
    let taken = received.samples.context("The guest did not tell what it sampled")?;
    let profiles = taken.map_err(|why| anyhow::anyhow!("The guest cannot be sampled: {why}"))?;
    samples::evidence(trial, booted.result.metrics.clone(), booted.result.cost.cpu_s, received.windows, profiles)
}

/// What a guest waited for, from its events.
pub(super) fn waiting(trial: &Trial<'_>, booted: &mut FinishedGuest) -> anyhow::Result<TrialWaits> {
    let received = std::mem::take(&mut booted.received);
    let (cpus, traced, windows) = received.waits.context("The guest did not tell what it waited for")?;
    waits::evidence(
        trial,
        booted.result.metrics.clone(),
        &received.windows,
        (cpus, traced, &windows),
        received.lock_stat,
    )
}
