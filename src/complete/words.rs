//! Workloads, jobs, studies, pages, and the words of options.

use clap_complete::engine::CompletionCandidate;

use super::{after, candidate, folders, levers};
use crate::study::ready_made;
use crate::{pages, registry};
use bigiron_image as image;
use bigiron_model::{margins, storage};
use bigiron_workload as workload;
use bigiron_workload::RunsOn;

pub(super) fn workloads() -> Vec<CompletionCandidate> {
    registry::all().iter().map(|w| candidate(w.name(), w.summary())).collect()
}

/// The jobs that come with bigiron.
pub(super) fn jobs(workload: &str) -> Vec<CompletionCandidate> {
    let library = registry::find(workload).and_then(|workload| workload.library());
    library.iter().flat_map(|(_, library)| library.shipped).map(|job| candidate(job.name, "")).collect()
}

/// A job, or the path of a job file.
pub(super) fn job(workload: &str, typed: &str) -> Vec<CompletionCandidate> {
    let mut found = jobs(workload);
    found.extend(folders::files(typed, |name| name.ends_with(".toml")));
    found
}

/// The ready-made studies.
pub(super) fn studies() -> Vec<CompletionCandidate> {
    ready_made::ALL.iter().map(|study| candidate(study.name, study.question())).collect()
}

/// A ready-made study, or the path of a study file.
pub(super) fn study(typed: &str) -> Vec<CompletionCandidate> {
    let mut found = studies();
    found.extend(folders::files(typed, |name| name.ends_with(".toml")));
    found
}

/// The pages of the documentation; a lever has its family's.
pub(super) fn page(typed: &str) -> Vec<CompletionCandidate> {
    if typed.contains('.') {
        return levers::lever(typed);
    }
    pages::all().map(|page| candidate(page.name, page.title())).collect()
}

/// `WORKLOAD[:METRIC]`.
pub(super) fn workload_metric(typed: &str) -> Vec<CompletionCandidate> {
    match typed.split_once(':') {
        None => workloads(),
        Some((workload, _)) => after(&format!("{workload}:"), metrics(workload)),
    }
}

/// A row of the nightly grid, or `ROW.METRIC`.
pub(super) fn row_metric(typed: &str) -> Vec<CompletionCandidate> {
    match typed.split_once('.') {
        None => workloads(),
        Some((row, _)) => after(&format!("{row}."), metrics(row)),
    }
}

/// The metrics of a workload with its default options.
fn metrics(workload: &str) -> Vec<CompletionCandidate> {
    let Some(found) = registry::find(workload) else { return Vec::new() };
    let Ok((_, configured)) = workload::configure(found, [], RunsOn::Here) else { return Vec::new() };
    configured.metrics().iter().map(|metric| candidate(&metric.name, "")).collect()
}

pub(super) fn margins() -> Vec<CompletionCandidate> {
    margins::KINDS
        .iter()
        .map(|(name, _, margin)| candidate(format!("{name}="), format!("default {} %", margin * 100.0)))
        .collect()
}

pub(super) fn storage() -> Vec<CompletionCandidate> {
    let profiles = storage::PROFILES.iter().filter(|profile| profile.medium != storage::Medium::Folder);
    profiles.map(|profile| candidate(profile.name, profile.summary)).collect()
}

pub(super) fn filesystems() -> Vec<CompletionCandidate> {
    image::filesystems().map(|name| candidate(name, "")).collect()
}
