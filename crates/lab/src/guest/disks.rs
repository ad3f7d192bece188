//! The raw disks of `vm.disks`: the requested number of SCSI disks behind one adapter, created by the kernel's `scsi_debug`.
//!
//! Invariant: no two disks share a byte. The module keeps one store behind all of its disks, so each disk has a partition over
//! its own part of the store, and only the partitions are used.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::protocol::RawDisks;
use bigiron_sys::partition;

/// Time limit for each disk; the kernel takes some milliseconds.
const PATIENCE: Duration = Duration::from_millis(200);

/// The raw disks once all of them can be opened.
#[derive(Default)]
pub(super) struct ReadyDisks {
    /// In the order of their addresses on the bus.
    pub devices: Vec<PathBuf>,
    pub facts: BTreeMap<String, String>,
}

/// Makes the kernel create the disks and waits for all of them.
pub(super) fn make(raw: &RawDisks) -> anyhow::Result<ReadyDisks> {
    let (begun, before) = (Instant::now(), free()?);
    super::load(&raw.modules)?;
    let disks = loop {
        let disks = on_the_bus()?;
        if disks.len() == raw.count as usize && disks.iter().all(|disk| File::open(node(disk)).is_ok()) {
            break disks;
        }
        if begun.elapsed() > Duration::from_secs(5) + PATIENCE * raw.count {
            bail!("Lever `vm.disks={}` did not take: the kernel shows {} disks of scsi_debug", raw.count, disks.len());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let took = begun.elapsed();
    // Every process that works on the disks opens all of them.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("The limit of open files")?;
    let devices =
        disks.iter().enumerate().map(|(n, disk)| share(raw, n as u64, disk)).collect::<anyhow::Result<_>>()?;
    let store = u64::from(raw.count) * raw.bytes();
    let taken = before.saturating_sub(free()?).saturating_sub(store);
    let facts = [
        ("disks", raw.count.to_string()),
        ("disks-block-bytes", raw.block_bytes.to_string()),
        ("disks-found-ns", took.as_nanos().to_string()),
        ("disks-kernel-bytes", taken.to_string()),
    ];
    Ok(ReadyDisks { devices, facts: facts.map(|(name, value)| (name.to_owned(), value)).into() })
}

/// The disk's own part of the store, as a partition.
fn share(raw: &RawDisks, n: u64, disk: &str) -> anyhow::Result<PathBuf> {
    let queue = Path::new("/sys/block").join(disk).join("queue");
    let shown = fs::read_to_string(queue.join("logical_block_size")).unwrap_or_default();
    ensure!(
        shown.trim() == raw.block_bytes.to_string(),
        "Lever `vm.block-size={}` did not take: {disk} has blocks of {} bytes",
        raw.block_bytes,
        shown.trim()
    );
    write_through(disk)?;
    let whole = OpenOptions::new().read(true).write(true).open(node(disk))?;
    partition::add(whole.as_fd(), 1, n * raw.bytes(), raw.bytes())
        .with_context(|| format!("The kernel gives {disk} no partition"))?;
    let part = node(&format!("{disk}1"));
    ensure!(part.exists(), "{} is missing although the kernel has the partition", part.display());
    Ok(part)
}

/// Makes a disk complete writes only once they are on it, like the other models: scsi_debug takes 50 ms to flush even a cache
/// that it does not have.
fn write_through(disk: &str) -> anyhow::Result<()> {
    let folder = Path::new("/sys/block").join(disk).join("device/scsi_disk");
    let entry = fs::read_dir(&folder)?.next().with_context(|| format!("Nothing in {}", folder.display()))??;
    let file = entry.path().join("cache_type");
    fs::write(&file, "temporary write through").with_context(|| format!("{} is not writable", file.display()))?;
    let shown = fs::read_to_string(&file)?;
    ensure!(shown.trim() == "write through", "{} says `{}`", file.display(), shown.trim());
    Ok(())
}

fn node(disk: &str) -> PathBuf {
    Path::new("/dev").join(disk)
}

/// The SCSI disks, in the order of their addresses.
fn on_the_bus() -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if !name.starts_with("sd") {
            continue;
        }
        let Ok(device) = fs::canonicalize(Path::new("/sys/block").join(&name).join("device")) else { continue };
        let address = device.file_name().and_then(|n| address(n.to_str()?));
        found.extend(address.map(|address| (address, name)));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, name)| name).collect())
}

/// Host, channel, target and unit of `0:0:12:0`.
fn address(text: &str) -> Option<Vec<u32>> {
    let parts: Vec<u32> = text.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    (parts.len() == 4).then_some(parts)
}

/// Bytes of free memory, including the CPUs' own reserves: after large frees (the initramfs) these are considerable.
fn free() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/zoneinfo").context("No /proc/zoneinfo")?;
    Ok(free_pages(&text) * 4096)
}

fn free_pages(zoneinfo: &str) -> u64 {
    let number = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("pages free").or(line.strip_prefix("count:"))?.trim().parse::<u64>().ok()
    };
    zoneinfo.lines().filter_map(number).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_sort_by_number() {
        let mut all: Vec<_> =
            ["0:0:10:0", "0:0:2:0", "1:0:0:0"].into_iter().map(|text| address(text).unwrap()).collect();
        all.sort();
        assert_eq!(all, [vec![0, 0, 2, 0], vec![0, 0, 10, 0], vec![1, 0, 0, 0]]);
        assert_eq!(address("vda"), None);
        assert_eq!(address("0:0:1"), None);
    }

    #[test]
    fn pages_that_cpus_keep_are_free_too() {
        let zones = "Node 0, zone  DMA\n  pages free     2816\n        min      44\n      nr_free_pages 2816\n  pagesets\n    cpu: 0\n\
                     \x20             count:    3\n              high:     9\nNode 0, zone  Normal\n  pages free     100\n  pagesets\n    \
                     cpu: 0\n              count: 20\n    cpu: 1\n              count: 1\n";
        assert_eq!(free_pages(zones), 2816 + 3 + 100 + 20 + 1);
        assert!(free().unwrap() > 1 << 20);
    }
}
