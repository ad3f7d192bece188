//! Sets levers in a running kernel and reads them back.
//!
//! Invariant: a setting that returns successfully is in force; the undo of a change is logged before the change is made. When one
//! setting fails, those before it are in force: the caller undoes everything back to its own mark.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::accepted_values::AcceptedValues;
use super::policy::Policy;
use super::runtime::{self, Lever, SideEffects};
use super::site::{ResolvedSetting, Site};
use super::{cgroup, net, swap};
use crate::undo::{ChangeLog, UndoError};
use bigiron_model::record::FileChange;
use bigiron_model::setting::{Setting, TypedSetting};
use bigiron_sys::kernel_file::{below, read};
use bigiron_sys::network::Network;
use bigiron_sys::scheduling;

/// Where the workload's processes run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
    /// Empty: any CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// The trial's own network, if it has one, for the processes that need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Policy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<scheduling::Policy>,
    /// Nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<u64>,
}

/// The result of setting levers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub changes: Vec<FileChange>,
    pub placement: Placement,
}

/// Sets `settings` in an order that works: a scheduler before its tunables, a switch of polling before its parameters, swap after
/// everything else.
///
/// # Errors
/// ``Lever `NAME=VALUE` did not take`` and the reason, with the kernel's choices.
pub fn apply(settings: &[Setting], site: &Site<'_>, notes: &mut dyn ChangeLog) -> Result<Applied, String> {
    let mut ordered: Vec<&Setting> = settings.iter().collect();
    ordered.sort_by_key(|(name, _)| match name.as_str() {
        "block.scheduler" | "net.gro" => 0,
        "mm.swap" => 2,
        _ => 1,
    });
    let mut applied = Applied::default();
    for setting in ordered {
        one(setting, site, notes, &mut applied)
            .map_err(|why| format!("Lever `{}` did not take: {why}", TypedSetting(setting)))?;
    }
    Ok(applied)
}

fn one(setting: &Setting, site: &Site<'_>, notes: &mut dyn ChangeLog, applied: &mut Applied) -> Result<(), String> {
    let action = site.resolve(setting)?;
    let what = TypedSetting(setting).to_string();
    match action {
        ResolvedSetting::Write { paths, text } => {
            let named = runtime::find(&setting.0).ok_or("it is not a lever")?;
            for path in paths {
                applied.changes.push(write(named.lever, &what, &path, &text, notes)?);
                if let Some(pair) = site.link.made().filter(|_| path.starts_with("/proc/sys/net")) {
                    applied.changes.extend(net::sysctl(pair, &path, &text, named.lever.takes)?);
                }
            }
        }
        ResolvedSetting::Swap(wanted) => applied.changes.extend(swap::apply(&what, &wanted, notes)?),
        ResolvedSetting::Limit(bytes) => {
            let (group, changes) = cgroup::limit(&what, bytes, notes)?;
            applied.changes.extend(changes);
            applied.placement.cgroup = Some(group);
        }
        ResolvedSetting::Pin(cpus) => applied.placement.cpus = cpus,
        ResolvedSetting::Link { attribute, text } => {
            let named = runtime::find(&setting.0).ok_or("it is not a lever")?;
            applied.changes.extend(net::apply(site.link.get()?, named.lever, attribute, &text)?);
        }
        ResolvedSetting::Policy(policy) => applied.placement.memory = Some(policy),
        ResolvedSetting::Scheduling(policy) => applied.placement.scheduling = Some(policy),
        ResolvedSetting::Slice(ns) => applied.placement.slice = Some(ns),
    }
    Ok(())
}

fn write(lever: &Lever, what: &str, path: &Path, text: &str, notes: &mut dyn ChangeLog) -> Result<FileChange, String> {
    // The last change logged is the first undone: the files that a change affects are restored after it.
    for other in touched(lever, path, notes.root()) {
        notes.keep(what, &other).map_err(|e| e.to_string())?;
    }
    let change = notes.write(what, path, text).map_err(|e| match e {
        UndoError::Refused { cause, .. } => refused(lever, path, text, &cause, notes.root()),
        UndoError::Unreadable { .. } => format!("`{}` cannot be read back", path.display()),
        other => other.to_string(),
    })?;
    if lever.takes.is_taken(text, &change.after) {
        return Ok(change);
    }
    Err(match lever.takes {
        AcceptedValues::Pages => {
            format!("only {} of {text} pages could be allocated (`{}`)", change.after, path.display())
        }
        _ => format!("`{}` says `{}` after `{text}` was written", path.display(), change.after),
    })
}

/// Files that a change of `path` may change too.
fn touched(lever: &Lever, path: &Path, root: &Path) -> Vec<PathBuf> {
    let candidates: Vec<PathBuf> = match lever.touches {
        SideEffects::Nothing => Vec::new(),
        SideEffects::Files(files) => files.iter().map(PathBuf::from).collect(),
        SideEffects::Queue => {
            let queue = path.parent().unwrap_or(path);
            let tunables = fs::read_dir(below(root, &queue.join("iosched"))).into_iter().flatten().flatten();
            let mut files: Vec<PathBuf> = tunables.map(|e| queue.join("iosched").join(e.file_name())).collect();
            files.sort();
            files.extend(["nr_requests", "wbt_lat_usec"].map(|file| queue.join(file)));
            files
        }
    };
    let restorable = |path: &PathBuf| {
        let at = below(root, path);
        let writable = fs::metadata(&at).is_ok_and(|m| m.permissions().mode() & 0o200 != 0);
        writable && read(&at).is_ok_and(|text| text.lines().count() == 1)
    };
    candidates.into_iter().filter(restorable).collect()
}

/// Why the kernel refused the value.
fn refused(lever: &Lever, path: &Path, text: &str, cause: &std::io::Error, root: &Path) -> String {
    let now = read(&below(root, path)).unwrap_or_default();
    let path = path.display();
    match lever.takes {
        AcceptedValues::Offered(_) => format!("the kernel lists `{text}` in `{path}` but refuses it: {cause}"),
        _ => format!("the kernel refuses `{text}` for `{path}`, which says `{}`: {cause}", crate::undo::chosen(&now)),
    }
}

impl Placement {
    /// Whether nothing is restricted.
    pub fn is_anywhere(&self) -> bool {
        *self == Self::default()
    }

    /// Applies the placement to this process and all that it starts from now on. It must still be single-threaded.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn take(&self) -> Result<(), String> {
        if let Some(group) = &self.cgroup {
            let file = group.join("cgroup.procs");
            bigiron_sys::kernel_file::write(&file, "0")
                .map_err(|e| format!("`{}` does not accept this process: {e}", file.display()))?;
        }
        if let Some(policy) = &self.memory {
            policy.take()?;
        }
        self.take_turn()?;
        if self.cpus.is_empty() {
            return Ok(());
        }
        let mut wanted = CpuSet::new();
        for cpu in &self.cpus {
            let cpu = *cpu as usize;
            if cpu >= CpuSet::MAX_CPU {
                return Err(format!("CPU {cpu} is beyond the range that a process can be pinned to"));
            }
            wanted.set(cpu);
        }
        sched_setaffinity(None, &wanted).map_err(|e| format!("Lever `cpu.pin` did not take: {e}"))?;
        let got = sched_getaffinity(None).map_err(|e| format!("Lever `cpu.pin` cannot be read back: {e}"))?;
        if (0..CpuSet::MAX_CPU).all(|cpu| got.is_set(cpu) == wanted.is_set(cpu)) {
            return Ok(());
        }
        Err("Lever `cpu.pin` did not take: a cpuset leaves this process fewer CPUs".to_owned())
    }
}

impl Placement {
    /// Applies the scheduling policy and slice.
    fn take_turn(&self) -> Result<(), String> {
        let lever = if self.slice.is_some() { "cpu.slice" } else { "cpu.policy" };
        if self.scheduling.is_none() && self.slice.is_none() {
            return Ok(());
        }
        scheduling::set(self.scheduling, self.slice).map_err(|e| match e.kind() {
            ErrorKind::Unsupported => {
                format!("Lever `{lever}` did not take: this kernel does not store it (slices: from Linux 6.12 on)")
            }
            ErrorKind::PermissionDenied => {
                format!("Lever `{lever}` did not take: real-time policies need root or CAP_SYS_NICE")
            }
            _ => format!("Lever `{lever}` did not take: {e}"),
        })
    }
}

#[cfg(test)]
mod tests;
