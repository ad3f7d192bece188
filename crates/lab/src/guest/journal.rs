//! The journal of a file system on a separate disk.
//!
//! Invariant: a workload starts only if the kernel names that disk as the journal's, and a commit was observed to be written to
//! it (if the disk counts its writes).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::fs::{Timestamps, futimens};
use rustix::time::Timespec;

use super::block;
use crate::lever::fs::JOURNAL;
use crate::protocol::{Device, JournalDisk};
use bigiron_sys::process::Child;

/// Creates the disk for the journal of `workload`'s file system, with an empty journal on it.
pub(super) fn disk(
    workload: &str,
    disk: &JournalDisk,
    block_bytes: u32,
    servers: &mut Vec<Child>,
) -> anyhow::Result<PathBuf> {
    let device = block::device(&format!("{workload}-journal"), &disk.device, block_bytes, servers)?;
    if let Some(image) = &disk.image {
        block::lay_image(image, &device)?;
    }
    Ok(device)
}

/// Checks that the file system mounted on `dir` has its journal on `device`: the kernel names it, and a flushed change is written
/// there.
///
/// # Errors
/// ``Lever `fs.journal=…` did not take``, and what was found instead.
pub(super) fn verify(disk: &JournalDisk, device: &Path, dir: &Path, filesystem: &str) -> anyhow::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found = match filesystem {
        "xfs" => names_log(&mounts, dir, device),
        _ => Path::new("/proc/fs/jbd2").join(name(device)).is_dir(),
    };
    let lever = format!("Lever `{JOURNAL}={}` did not take", disk.storage);
    if !found {
        bail!("{lever}: the kernel does not show that {filesystem} has its journal on {}", device.display());
    }
    // The kernel's RAM disk has no counters.
    if matches!(disk.device, Device::Ram { .. }) {
        return Ok(());
    }
    let before = written(device)?;
    touch(dir).context("The file system's top folder")?;
    let after = written(device)?;
    if after.0 <= before.0 {
        bail!("{lever}: a change was flushed, and nothing was written to {}", device.display());
    }
    Ok(())
}

/// The amount written to a journal's disk since the guest's boot, for the record.
pub(super) fn facts(device: &Path) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([("journal-disk".to_owned(), name(device))]);
    if let Some((requests, bytes)) = written(device).ok().filter(|(requests, _)| *requests > 0) {
        facts.insert("journal-disk-writes".to_owned(), requests.to_string());
        facts.insert("journal-disk-written-bytes".to_owned(), bytes.to_string());
    }
    facts
}

fn name(device: &Path) -> String {
    device.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether the line of `mounts` for `dir` names `device` as the log.
fn names_log(mounts: &str, dir: &Path, device: &Path) -> bool {
    let line = mounts.lines().rev().find(|line| line.split(' ').nth(1) == dir.to_str());
    let options = line.and_then(|line| line.split(' ').nth(3)).unwrap_or_default();
    options.split(',').any(|option| option.strip_prefix("logdev=") == device.to_str())
}

/// Flushes a change without an effect: sets the folder's modification time to its present value.
fn touch(dir: &Path) -> anyhow::Result<()> {
    let folder = File::open(dir)?;
    let metadata = rustix::fs::fstat(&folder)?;
    let time = |seconds: i64, ns: u64| Timespec { tv_sec: seconds, tv_nsec: ns as i64 };
    let last_access = time(metadata.st_atime, metadata.st_atime_nsec);
    let last_modification = time(metadata.st_mtime, metadata.st_mtime_nsec);
    futimens(&folder, &Timestamps { last_access, last_modification })?;
    folder.sync_all()?;
    Ok(())
}

/// Requests and bytes written to a disk.
fn written(device: &Path) -> anyhow::Result<(u64, u64)> {
    let path = Path::new("/sys/block").join(name(device)).join("stat");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    parse(&text).with_context(|| format!("{} says `{}`", path.display(), text.trim()))
}

/// `Documentation/block/stat.rst`: the fifth and the seventh number, the latter in sectors of 512 bytes.
fn parse(stat: &str) -> Option<(u64, u64)> {
    let number = |n| stat.split_whitespace().nth(n)?.parse::<u64>().ok();
    Some((number(4)?, number(6)? * 512))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_told_from_reads() {
        let stat = "     446    11   15426       12       93      7      1648     60   0    84     72  0 0 0 0 5 1\n";
        assert_eq!(parse(stat), Some((93, 1648 * 512)));
        assert_eq!(parse("1 2 3"), None);
    }

    #[test]
    fn the_log_of_the_last_mount_counts() {
        let mounts = "/dev/a /data/micro xfs rw,noatime,logdev=/dev/old,noquota 0 0\n\
                      /dev/nbd0 /data/micro xfs rw,noatime,logbufs=8,logdev=/dev/nbd1,noquota 0 0\n";
        let names = |device: &str| names_log(mounts, Path::new("/data/micro"), Path::new(device));
        assert!(names("/dev/nbd1") && !names("/dev/old") && !names("/dev/nbd"));
    }
}
