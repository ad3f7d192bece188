//! Levers of the running kernel, in a guest.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use rustix::mount::{MountFlags, mount};

use super::block::Mounts;
use super::channel;
use crate::lever::apply::{self, Placement};
use crate::lever::disks::Disks;
use crate::lever::runtime::{self, LeverTarget};
use crate::lever::site::Site;
use crate::protocol::{GuestEvent, GuestJob};
use crate::undo::NoLedger;
use bigiron_sys::network::TrialLink;

const DEBUGFS: &str = "/sys/kernel/debug";
const CGROUP: &str = "/sys/fs/cgroup";

/// Mounts debugfs if a lever is set or read back there.
pub(super) fn debugfs(job: &GuestJob) -> anyhow::Result<()> {
    let asked = job.levers.iter().any(|(lever, _)| is_below(lever, DEBUGFS))
        || job.cmdline.iter().any(|word| word.starts_with("preempt="));
    if asked && !Path::new(DEBUGFS).join("sched").exists() {
        mounted("debugfs", DEBUGFS)?;
    }
    Ok(())
}

/// Mounts debugfs for the environment of a trial whose windows are over. A kernel without debugfs has fewer facts.
pub(super) fn mount_debugfs() {
    if !Path::new(DEBUGFS).join("sched").exists() {
        let _ = mounted("debugfs", DEBUGFS);
    }
}

/// Sets the job's levers and reads them back. Returns where the workloads' processes run.
///
/// # Errors
/// If a lever did not take; the message says what the kernel offers.
pub(super) fn set(job: &GuestJob, mounts: &[Mounts], link: &TrialLink) -> anyhow::Result<Placement> {
    if job.levers.is_empty() {
        return Ok(Placement::default());
    }
    super::load(&job.lever_modules)?;
    debugfs(job)?;
    if job.levers.iter().any(|(lever, _)| lever == "memory.limit" || is_below(lever, CGROUP)) {
        mounted("cgroup2", CGROUP)?;
    }
    let site = Site { root: Path::new("/"), disks: disks(job, mounts), link };
    let applied = apply::apply(&job.levers, &site, &mut NoLedger).map_err(|why| anyhow!(why))?;
    channel::send(&GuestEvent::Applied { changes: applied.changes });
    Ok(applied.placement)
}

fn is_below(lever: &str, folder: &str) -> bool {
    runtime::find(lever).is_some_and(|named| match named.lever.place {
        LeverTarget::Named(path) => path(named.rest).is_ok_and(|path| path.starts_with(folder)),
        LeverTarget::File(path) => path.starts_with(folder),
        _ => false,
    })
}

fn mounted(kind: &str, at: &str) -> anyhow::Result<()> {
    match mount(kind, at, kind, MountFlags::empty(), None) {
        Err(rustix::io::Errno::BUSY) | Ok(()) => Ok(()),
        Err(e) => Err(e).with_context(|| format!("Cannot mount {kind} on {at}")),
    }
}

/// The disks of all workloads that have a disk.
fn disks(job: &GuestJob, mounts: &[Mounts]) -> Result<Disks, String> {
    let mut all = Disks::default();
    for (workload, mounts) in job.workloads.iter().zip(mounts) {
        if workload.storage.is_some() {
            all.join(Disks::below(&mounts.dir)?);
        }
        for device in &mounts.devices {
            all.join(Disks::of(device)?);
        }
    }
    match all.disks.is_empty() {
        true => Err("no workload of this study has a disk".to_owned()),
        false => Ok(all),
    }
}
