//! The possible disks of a guest.
//!
//! Invariant: a disk of the host never exists under the exact clock, and no name promises a device that the clock cannot have.

use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// The fact in which a record says how the host opened the disks of its guest.
pub const DISK_CACHE_FACT: &str = "host.disk-cache";

/// The storage of a study on this machine itself, and of no other study.
pub const LOCAL: &str = "folder";

/// The medium behind the guest's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Guest memory whose requests complete after a fixed time, whatever their number (null_blk).
    Modelled { completion_ns: u64 },
    /// Guest memory behind the mechanics of a spinning disk.
    Rotational(Spindle),
    /// Guest memory without a device (brd).
    Ram,
    /// A file in the study's folder (virtio-blk).
    HostFile,
    /// The study's folder itself: there is no guest.
    Folder,
}

/// The mechanics of a spinning disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spindle {
    pub revolution_ns: u64,
    pub track_bytes: u64,
    /// Seek time from one track to the next, and from the first to the last.
    pub seek_track_ns: u64,
    pub seek_full_ns: u64,
    /// Time that the electronics need for each request.
    pub overhead_ns: u64,
    /// Requests that the disk accepts at once.
    pub queue_depth: u32,
}

/// 7,200 rpm: 7.9 ms to seek on average, 188 MB/s.
const SATA_7200: Spindle = Spindle {
    revolution_ns: 8_333_333,
    track_bytes: 3 << 19,
    seek_track_ns: 1_000_000,
    seek_full_ns: 14_000_000,
    overhead_ns: 50_000,
    queue_depth: 32,
};

/// 15,000 rpm, as in servers of 2004: 3.4 ms to seek on average, 92 MB/s.
const SCSI_15000: Spindle = Spindle {
    revolution_ns: 4_000_000,
    track_bytes: 360 << 10,
    seek_track_ns: 400_000,
    seek_full_ns: 6_000_000,
    overhead_ns: 100_000,
    queue_depth: 32,
};

/// A storage device by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageProfile {
    pub name: &'static str,
    pub medium: Medium,
    pub summary: &'static str,
}

/// All possible values of `storage`. Completion times are typical of the device class for a 4 KiB read, not of one product.
pub const PROFILES: &[StorageProfile] = &[
    StorageProfile {
        name: "nvme",
        medium: Medium::Modelled { completion_ns: 10_000 },
        summary: "a model of NVMe flash with a write cache: 10 µs a request, in the guest's memory",
    },
    StorageProfile {
        name: "ssd",
        medium: Medium::Modelled { completion_ns: 80_000 },
        summary: "a model of SATA or networked flash: 80 µs a request, in the guest's memory",
    },
    StorageProfile {
        name: "hdd",
        medium: Medium::Rotational(SATA_7200),
        summary: "a model of a spinning disk of 7,200 rpm (seek, rotation, transfer, a queue of 32), in the guest's memory",
    },
    StorageProfile {
        name: "hdd-15k",
        medium: Medium::Rotational(SCSI_15000),
        summary: "a model of a SCSI disk of 15,000 rpm, as in servers of 2004, in the guest's memory",
    },
    StorageProfile { name: "ram", medium: Medium::Ram, summary: "a RAM disk in the guest's memory: no device at all" },
    StorageProfile {
        name: "host-file",
        medium: Medium::HostFile,
        summary: "a virtio disk on a file of the study's folder: as fast as the host's disk",
    },
    StorageProfile { name: LOCAL, medium: Medium::Folder, summary: "the study's folder, on this machine's own disk" },
];

/// The profile with that name.
pub fn find(name: &str) -> Option<&'static StorageProfile> {
    PROFILES.iter().find(|p| p.name == name)
}

/// The storage used by default.
pub fn default(clock: Clock) -> &'static StorageProfile {
    let name = if clock.is_exact() { "nvme" } else { "host-file" };
    find(name).expect("a default is one of the profiles")
}

/// The names of the storage that a guest can have with `clock`.
pub fn names(clock: Clock) -> impl Iterator<Item = &'static str> {
    PROFILES.iter().filter(move |p| p.medium != Medium::Folder && p.goes_with(clock).is_ok()).map(|p| p.name)
}

impl StorageProfile {
    /// Whether this storage exists under `clock`; if not, why not.
    pub fn goes_with(&self, clock: Clock) -> Result<(), String> {
        match (self.medium, clock) {
            (Medium::HostFile, Clock::Exact | Clock::ExactParallel | Clock::Exact1) => {
                Err(format!("Storage `{}` would make the clock `exact` depend on the host's time", self.name))
            }
            _ => Ok(()),
        }
    }

    /// Whether written data take guest memory.
    pub fn is_in_memory(&self) -> bool {
        !matches!(self.medium, Medium::HostFile | Medium::Folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clock_has_its_disks_and_a_default_among_them() {
        let of = |clock| names(clock).collect::<Vec<_>>();
        assert_eq!(of(Clock::Exact), ["nvme", "ssd", "hdd", "hdd-15k", "ram"]);
        assert_eq!(of(Clock::Wall), ["nvme", "ssd", "hdd", "hdd-15k", "ram", "host-file"]);
        assert_eq!(of(Clock::None), of(Clock::Wall));
        for clock in [Clock::Exact, Clock::Wall, Clock::None] {
            assert!(default(clock).goes_with(clock).is_ok());
        }
    }
}
