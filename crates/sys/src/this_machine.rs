//! The machine on which this process runs: its boot, its CPUs and its memory.

use std::fs;
use std::thread;

/// The kernel's id of this boot; empty where `/proc` does not have it.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// CPUs that this process may use, by its affinity and its cgroup's quota; 1 if that is unknown.
pub fn cpus() -> u32 {
    thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Memory that the kernel manages, in bytes, whatever a cgroup leaves of it.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}
