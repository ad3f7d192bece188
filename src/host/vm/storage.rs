//! The file systems that a plan's workloads are given: which disk, which size, under which name in the initramfs.
//!
//! Invariant: a size depends on plan and arm alone, so that every boot of an arm gets the same file system.

use anyhow::Context as _;

use crate::lever;
use crate::study::plan::{Arm, Machine, Plan};
use crate::study::storage::{self, Profile};
use crate::workload;

pub(super) fn image_path(machine: &Machine, size_mib: u64) -> String {
    format!("/images/{}-{size_mib}", machine.filesystem)
}

pub(super) fn of(plan: &Plan) -> anyhow::Result<&'static Profile> {
    let name = &plan.machine.storage;
    let profile = storage::find(name).with_context(|| format!("No storage `{name}`"))?;
    profile.goes_with(plan.clock).map_err(anyhow::Error::msg)?;
    Ok(profile)
}

/// The sizes of the file systems that the arm's workloads ask for, each once.
pub(super) fn sizes_mib(plan: &Plan, arm: &Arm) -> Vec<u64> {
    let mut sizes: Vec<u64> = plan
        .workloads
        .iter()
        .filter_map(|w| size_mib(plan, &w.name, &lever::workload_options(plan, arm, &w.name)))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// MiB of file system for a workload: what it asks for, and what the file system itself needs (journal, metadata; xfs refuses less
/// than 300 MiB).
pub(super) fn size_mib(plan: &Plan, name: &str, options: &workload::Options) -> Option<u64> {
    let bytes = workload::find(name)?.needs(options).storage_bytes?;
    let least = if plan.machine.filesystem == "xfs" { 320 } else { 64 };
    Some((bytes.div_ceil(1 << 20) * 5 / 4 + 64).max(least).next_multiple_of(64))
}
