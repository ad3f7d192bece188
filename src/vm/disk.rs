//! Device profiles: what the modelled disk of a study is.

use crate::clock::Clock;
use crate::guest::protocol::Device;

/// A modelled storage device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    /// Time from submission to completion of one request; `None` for a RAM disk, which completes at once.
    pub completion_ns: Option<u64>,
    pub summary: &'static str,
}

/// The profiles. Completion times are typical of the class of device for a 4 KiB read, not of one product.
pub const PROFILES: &[Profile] = &[
    Profile { name: "nvme", completion_ns: Some(10_000), summary: "NVMe flash with a write cache, 10 us a request" },
    Profile { name: "ssd", completion_ns: Some(80_000), summary: "SATA or networked flash, 80 us a request" },
    Profile { name: "hdd", completion_ns: Some(4_000_000), summary: "spinning disk, 4 ms a request" },
    Profile { name: "ram", completion_ns: None, summary: "RAM disk (brd): no device at all, path length only" },
];

/// The profile of that name.
pub fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|p| p.name == name)
}

impl Profile {
    /// The guest's device of `size_mib` for its workload number `index` under `clock`: modelled in the guest's memory under the exact clock (a disk of the host would leak
    /// the host's time into it), a real virtio disk with serial number `serial` otherwise.
    pub fn device(&self, clock: Clock, size_mib: u64, cpus: u32, index: usize, serial: &str) -> Device {
        match (clock, self.completion_ns) {
            (_, None) => Device::Ram { index },
            (Clock::Exact, Some(completion_ns)) => Device::NullBlk { size_mib, completion_ns, queues: cpus },
            (Clock::Wall | Clock::None, Some(_)) => Device::Virtio { serial: serial.to_owned() },
        }
    }
}
