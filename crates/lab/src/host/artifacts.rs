//! The files that workloads leave for keeping, in a trial on this machine.
//!
//! Invariant: a file is moved, so its bytes are written once.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::guest::block::Mounts;
use crate::protocol::WorkloadJob;
use bigiron_workload::ARTIFACTS;

/// Moves them out of the trial's folder, which is removed with the trial, to `WORKLOAD.NAME`.
pub(super) fn keep(workloads: &[WorkloadJob], mounts: &[Mounts], artifacts: &Path) -> anyhow::Result<()> {
    for (workload, mounts) in workloads.iter().zip(mounts) {
        let Ok(left) = fs::read_dir(mounts.dir.join("work").join(ARTIFACTS)) else { continue };
        for entry in left {
            let entry = entry?;
            let name = format!("{}.{}", workload.name, entry.file_name().to_string_lossy());
            fs::rename(entry.path(), artifacts.join(&name)).with_context(|| format!("Cannot keep {name}"))?;
        }
    }
    Ok(())
}
