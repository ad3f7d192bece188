//! Block devices and file systems for the workloads, each workload its own.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::mount::{MountFlags, mount};

use super::protocol::{Device, Job, Storage};
use crate::vm::image::Extents;

/// Makes and mounts what the job's workloads asked for; their directories, in the order of the job.
pub(super) fn mount_all(job: &Job) -> anyhow::Result<Vec<PathBuf>> {
    job.workloads
        .iter()
        .map(|w| {
            let dir = Path::new("/data").join(&w.name);
            fs::create_dir_all(&dir)?;
            if let Some(storage) = &w.storage {
                let device = device(&w.name, storage).with_context(|| format!("No disk for `{}`", w.name))?;
                mount_at(&device, &dir, &storage.filesystem)?;
            }
            Ok(dir)
        })
        .collect()
}

fn device(name: &str, storage: &Storage) -> anyhow::Result<PathBuf> {
    let device = match &storage.device {
        Device::NullBlk { size_mib, completion_ns, queues } => null_blk(name, *size_mib, *completion_ns, *queues)?,
        Device::Ram { index } => PathBuf::from(format!("/dev/ram{index}")),
        Device::Virtio { serial } => virtio(serial)?,
    };
    if let Some(image) = &storage.image {
        let packed = fs::read(image).with_context(|| format!("No {image} in the initramfs"))?;
        let disk = OpenOptions::new().write(true).open(&device)?;
        for (offset, data) in Extents::new(&packed) {
            disk.write_all_at(data, offset).with_context(|| format!("Writing {}", device.display()))?;
        }
        disk.sync_all()?;
    }
    Ok(device)
}

/// configfs, never module parameters: on 5.10 the parameter `memory_backed` has no effect.
fn null_blk(name: &str, size_mib: u64, completion_ns: u64, queues: u32) -> anyhow::Result<PathBuf> {
    let config = Path::new("/sys/kernel/config");
    if !config.join("nullb").exists() {
        mount("configfs", config, "configfs", MountFlags::empty(), None).context("Cannot mount configfs")?;
    }
    let dir = config.join("nullb").join(name);
    fs::create_dir(&dir).context("null_blk has no configfs folder here")?;
    let before = disks("nullb")?;
    for (attribute, value) in [
        ("memory_backed", "1".to_owned()),
        ("size", size_mib.to_string()),
        ("blocksize", "512".to_owned()),
        // Completion by a timer: the one mode that models a device's time.
        ("irqmode", "2".to_owned()),
        ("completion_nsec", completion_ns.to_string()),
        ("submit_queues", queues.to_string()),
        ("power", "1".to_owned()),
    ] {
        fs::write(dir.join(attribute), &value).with_context(|| format!("null_blk refuses {attribute}={value}"))?;
        let got = fs::read_to_string(dir.join(attribute)).unwrap_or_default();
        if got.trim() != value {
            bail!("null_blk was told {attribute}={value} and says {}", got.trim());
        }
    }
    // The node is named after the folder, on older kernels after the device's index.
    let named = Path::new("/dev").join(name);
    if named.exists() {
        return Ok(named);
    }
    let new: Vec<String> = disks("nullb")?.into_iter().filter(|d| !before.contains(d)).collect();
    match new.as_slice() {
        [one] => Ok(Path::new("/dev").join(one)),
        other => bail!("null_blk made {} disks instead of one", other.len()),
    }
}

fn virtio(serial: &str) -> anyhow::Result<PathBuf> {
    for _ in 0..500 {
        for disk in disks("vd")? {
            let found = fs::read_to_string(format!("/sys/block/{disk}/serial")).unwrap_or_default();
            if found.trim() == serial {
                return Ok(Path::new("/dev").join(disk));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("No virtio disk with serial number `{serial}` turned up within 5 s")
}

fn disks(prefix: &str) -> anyhow::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir("/sys/block")?
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.starts_with(prefix))
        .collect();
    names.sort();
    Ok(names)
}

fn mount_at(device: &Path, dir: &Path, filesystem: &str) -> anyhow::Result<()> {
    // A node can appear before its disk opens.
    let mut tries = 0;
    loop {
        match mount(device, dir, filesystem, MountFlags::NOATIME, None) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::NXIO) if tries < 200 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => {
                return Err(e).with_context(|| format!("Cannot mount {} as {filesystem}", device.display()));
            }
        }
    }
}
