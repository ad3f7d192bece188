//! The guest's disks: which device a storage profile becomes, and how QEMU opens a disk that is a file of the host.
//!
//! Invariant: a flush of the guest is a flush on the host in every cache mode, and where times matter, the host's page cache does
//! not stand in for its disk.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::protocol::Device;
use bigiron_model::clock::Clock;
use bigiron_model::storage::{Medium, StorageProfile};

/// A raw image that QEMU makes a virtio disk of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    pub path: PathBuf,
    /// By which the guest finds it.
    pub serial: String,
    pub cache: Cache,
    /// Where QEMU writes down what the guest writes and flushes ([`super::writes`]).
    pub log: Option<PathBuf>,
}

/// How QEMU opens an image. Both show the guest a disk with a volatile write cache, which its flushes empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// `O_DIRECT`: each request goes to the host's disk.
    None,
    /// Through the host's page cache: reads and unflushed writes may never reach the disk, so their times say nothing about it.
    WriteBack,
}

impl Cache {
    /// QEMU's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Cache::None => "none",
            Cache::WriteBack => "writeback",
        }
    }

    /// What it means, for the record.
    pub fn summary(self) -> &'static str {
        match self {
            Cache::None => "none (O_DIRECT); a flush in the guest is a flush on the host",
            Cache::WriteBack => {
                "writeback (the host's page cache, its folder has no O_DIRECT); a flush in the guest is a flush on the host"
            }
        }
    }
}

/// The guest's device of `size_mib` for its workload number `index`; a disk on a file of the host has the serial number `serial`.
pub fn device(profile: &StorageProfile, size_mib: u64, cpus: u32, index: usize, serial: &str) -> Device {
    match profile.medium {
        Medium::Ram => Device::Ram { index },
        Medium::Modelled { completion_ns } => Device::NullBlk { size_mib, completion_ns, queues: cpus },
        Medium::Rotational(spindle) => Device::Rotational { index, size_mib, spindle },
        Medium::HostFile => Device::Virtio { serial: serial.to_owned() },
        Medium::Folder => unreachable!("a study in VMs has a disk that a guest can have"),
    }
}

/// The cache mode for the image at `path`, which is on the host's disk afterwards.
///
/// # Errors
/// The clock is `wall`, and the image's file system has no `O_DIRECT`.
pub fn cache(clock: Clock, path: &Path) -> anyhow::Result<Cache> {
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    match (direct, clock) {
        (Ok(file), _) => {
            // What the page cache holds of it would otherwise be written back under the first requests of the guest.
            file.sync_all().with_context(|| format!("Cannot write {}", path.display()))?;
            Ok(Cache::None)
        }
        (Err(_), Clock::Wall) => bail!(
            "The file system of {} has no O_DIRECT, so the host's memory would answer in place of its disk; take a folder on a disk's file \
             system (`--out DIR`), or `--storage ram`",
            path.display()
        ),
        (Err(_), _) => Ok(Cache::WriteBack),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_o_direct_the_wall_clock_has_no_disk() {
        // procfs has no O_DIRECT on any kernel.
        let path = Path::new("/proc/self/comm");
        assert_eq!(cache(Clock::None, path).unwrap(), Cache::WriteBack);
        let error = cache(Clock::Wall, path).unwrap_err().to_string();
        assert!(error.contains("no O_DIRECT") && error.contains("--storage ram"), "{error}");
    }
}
