//! Block devices and file systems for the workloads; each workload has its own.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, bail};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use serde::{Deserialize, Serialize};

use super::{Finding, disks, journal, rotational};
use crate::lever::fs as fs_lever;
use crate::protocol::{Copy, Device, GuestJob, PmemFileSystem, Storage, WorkloadJob};
use bigiron_image as image;
use bigiron_image::Extents;
use bigiron_model::record::Failure;
use bigiron_sys::process::Child;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// Alignment of direct I/O.
const BLOCK: usize = 4096;

/// Mount points of a workload's file systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    pub dir: PathBuf,
    /// Its images, by their names.
    pub images: BTreeMap<String, PathBuf>,
    /// Disks without a file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PathBuf>,
    /// Facts about them for the record.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// The disk of the file system's journal, if that is a separate disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<PathBuf>,
}

/// Creates and mounts what the job's workloads need, in the order of the job.
///
/// The children serve the disks; they are killed when dropped.
pub(super) fn mount_all(job: &GuestJob) -> anyhow::Result<(Vec<Mounts>, Vec<Child>)> {
    let mut servers = Vec::new();
    let raw = job.raw_disks.as_ref().map(disks::make).transpose()?.unwrap_or_default();
    let mut mounts: Vec<Mounts> =
        job.workloads.iter().map(|w| mount_for(w, job, &mut servers)).collect::<anyhow::Result<_>>()?;
    for mounts in &mut mounts {
        mounts.devices.clone_from(&raw.devices);
        mounts.facts.clone_from(&raw.facts);
    }
    Ok((mounts, servers))
}

fn mount_for(w: &WorkloadJob, job: &GuestJob, servers: &mut Vec<Child>) -> anyhow::Result<Mounts> {
    let dir = Path::new("/data").join(&w.name);
    fs::create_dir_all(&dir)?;
    let (mut images, mut journal) = (BTreeMap::new(), None);
    for tree in &w.trees {
        let at = Path::new("/data").join(format!("{}.{}", w.name, tree.name));
        fs::create_dir_all(&at)?;
        mount_at(&pmem(tree.pmem)?, &at, &tree.filesystem, MountFlags::RDONLY, "")?;
        images.insert(tree.name.clone(), at);
    }
    if let Some(storage) = &w.storage {
        let block_bytes = job.shape.block_bytes;
        let none = || format!("No disk for `{}`", w.name);
        let device = device(&w.name, &storage.device, block_bytes, servers)
            .and_then(|device| begin(storage, &device).map(|()| device))
            .with_context(none)?;
        journal = match &storage.journal {
            Some(disk) => Some(journal::disk(&w.name, disk, block_bytes, servers).with_context(none)?),
            None => None,
        };
        mount_asked(&device, &dir, storage, &job.mount, journal.as_deref())?;
        if let (Some(disk), Some(at)) = (&storage.journal, &journal) {
            journal::verify(disk, at, &dir, &storage.filesystem)?;
        }
        if let Some(files) = &storage.files {
            lay_files(files, &dir).with_context(|| format!("No files on the disk for `{}`", w.name))?;
        }
        images.extend(w.loaded.iter().map(|name| (name.clone(), dir.clone())));
    }
    Ok(Mounts { dir, images, journal, ..Mounts::default() })
}

/// Creates a device, or finds it.
pub(super) fn device(
    name: &str,
    device: &Device,
    block_bytes: u32,
    servers: &mut Vec<Child>,
) -> anyhow::Result<PathBuf> {
    Ok(match device {
        Device::NullBlk { size_mib, completion_ns, queues } => {
            null_blk(name, *size_mib, (*completion_ns, *queues), block_bytes)?
        }
        Device::Rotational { index, size_mib, spindle } => {
            let (node, server) = rotational::disk(*index, *size_mib, spindle)?;
            servers.push(server);
            node
        }
        Device::Ram { index } => PathBuf::from(format!("/dev/ram{index}")),
        Device::Virtio { serial } => virtio(serial)?,
        Device::Pmem { index } => pmem(*index)?,
    })
}

/// Writes a disk's initial contents.
fn begin(storage: &Storage, device: &Path) -> anyhow::Result<()> {
    if let Some(copy) = &storage.copy {
        copy_extents(copy, device)?;
    }
    storage.image.as_ref().map_or(Ok(()), |image| lay_image(image, device))
}

/// Writes a packed image of the initramfs onto an empty disk.
pub(super) fn lay_image(image: &str, device: &Path) -> anyhow::Result<()> {
    let packed = fs::read(image).with_context(|| format!("No {image} in the initramfs"))?;
    let disk = OpenOptions::new().write(true).open(device)?;
    for (offset, data) in Extents::new(&packed) {
        disk.write_all_at(data, offset).with_context(|| format!("Writing {}", device.display()))?;
    }
    disk.sync_all()?;
    Ok(())
}

/// Copies the contents of a pmem device to another disk.
fn copy_extents(copy: &Copy, onto: &Path) -> anyhow::Result<()> {
    let source = pmem(copy.pmem)?;
    let from = opened(&source)?;
    // Past the page cache on both sides: otherwise the pages would take the guest's memory twice.
    let to = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(onto)?;
    let mut room = vec![0; COPY_BYTES + BLOCK];
    let aligned = room.as_ptr().align_offset(BLOCK);
    let buffer = &mut room[aligned..][..COPY_BYTES];
    for &(offset, length) in &copy.extents {
        let mut done = 0;
        while done < length {
            let piece = &mut buffer[..(length - done).min(COPY_BYTES as u64) as usize];
            from.read_exact_at(piece, offset + done).with_context(|| format!("Reading {}", source.display()))?;
            to.write_all_at(piece, offset + done).with_context(|| format!("Writing {}", onto.display()))?;
            done += piece.len() as u64;
        }
    }
    to.sync_all()?;
    Ok(())
}

/// Copies the files of a file system on persistent memory into `onto`; afterwards all of it is on the disk and none in memory.
fn lay_files(tree: &PmemFileSystem, onto: &Path) -> anyhow::Result<()> {
    let at = onto.with_extension("files");
    fs::create_dir_all(&at)?;
    mount_at(&pmem(tree.pmem)?, &at, &tree.filesystem, MountFlags::RDONLY, "")?;
    copy_folder(&at, onto)?;
    // The owner of the top folder owns all the rest.
    let top = fs::metadata(&at)?;
    lchown(onto, Some(top.uid()), Some(top.gid()))?;
    fs::set_permissions(onto, top.permissions())?;
    rustix::mount::unmount(&at, rustix::mount::UnmountFlags::empty())?;
    rustix::fs::sync();
    // As after a copy of blocks, which bypasses the page cache.
    fs::write("/proc/sys/vm/drop_caches", "3").context("The kernel does not drop its caches")
}

/// Files and folders, with their owners and modes.
fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target, meta) = (entry.path(), to.join(entry.file_name()), entry.metadata()?);
        let doing = || format!("Copying {}", source.display());
        if meta.is_symlink() {
            symlink(fs::read_link(&source)?, &target).with_context(doing)?;
        } else if meta.is_dir() {
            fs::create_dir_all(&target).with_context(doing)?;
            copy_folder(&source, &target)?;
        } else {
            fs::copy(&source, &target).with_context(doing)?;
        }
        lchown(&target, Some(meta.uid()), Some(meta.gid())).with_context(doing)?;
        if !meta.is_symlink() {
            fs::set_permissions(&target, meta.permissions()).with_context(doing)?;
        }
    }
    Ok(())
}

/// A pmem device appears once libnvdimm has found it, and can be opened a little later.
fn pmem(index: usize) -> anyhow::Result<PathBuf> {
    let mut tries = 0;
    let device = loop {
        match pmem_of_slot(Path::new("/sys/block"), index) {
            Some(device) => break device,
            None if tries < 500 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            None => bail!("No device of persistent memory in slot {index} within 5 s"),
        }
    };
    opened(&device)?;
    Ok(device)
}

/// The device of QEMU's slot `slot`: the kernel numbers devices in the order of the firmware's table, which differs from that of
/// the slots. A device's folder is `…/ndbus0/regionR/namespaceN/block/pmemN`; its region names the module, and the module's
/// handle is its slot plus 1 (`nvdimm_slot_to_handle` in QEMU's hw/acpi/nvdimm.c).
fn pmem_of_slot(blocks: &Path, slot: usize) -> Option<PathBuf> {
    let handle = format!("{:#x}", slot + 1);
    let mut names = fs::read_dir(blocks).ok()?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.find_map(|name| {
        let folder = name.starts_with("pmem").then(|| fs::canonicalize(blocks.join(&name)).ok())??;
        let region = folder.ancestors().nth(3)?;
        let mapping = fs::read_to_string(region.join("mapping0")).ok()?;
        let module = region.parent()?.join(mapping.split(',').next()?);
        let is = fs::read_to_string(module.join("nfit/handle")).ok()?.trim() == handle;
        is.then(|| Path::new("/dev").join(name))
    })
}

fn opened(device: &Path) -> anyhow::Result<File> {
    let mut tries = 0;
    loop {
        match OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(device) {
            Ok(file) => return Ok(file),
            Err(_) if tries < 500 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(e).with_context(|| format!("{} does not open within 5 s", device.display())),
        }
    }
}

/// configfs, never module parameters: on 5.10 the parameter `memory_backed` has no effect.
fn null_blk(
    name: &str,
    size_mib: u64,
    (completion_ns, queues): (u64, u32),
    block_bytes: u32,
) -> anyhow::Result<PathBuf> {
    let config = Path::new("/sys/kernel/config");
    if !config.join("nullb").exists() {
        mount("configfs", config, "configfs", MountFlags::empty(), None).context("Cannot mount configfs")?;
    }
    let dir = config.join("nullb").join(name);
    fs::create_dir(&dir).context("null_blk has no configfs folder here")?;
    let before = disks_named("nullb")?;
    for (attribute, value) in [
        ("memory_backed", "1".to_owned()),
        ("size", size_mib.to_string()),
        ("blocksize", block_bytes.to_string()),
        // Completion by a timer: the only mode that models a device's time.
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
    let new: Vec<String> = disks_named("nullb")?.into_iter().filter(|d| !before.contains(d)).collect();
    match new.as_slice() {
        [one] => Ok(Path::new("/dev").join(one)),
        other => bail!("null_blk made {} disks instead of one", other.len()),
    }
}

fn virtio(serial: &str) -> anyhow::Result<PathBuf> {
    for _ in 0..500 {
        for disk in disks_named("vd")? {
            let found = fs::read_to_string(format!("/sys/block/{disk}/serial")).unwrap_or_default();
            if found.trim() == serial {
                return Ok(Path::new("/dev").join(disk));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("No virtio disk with serial number `{serial}` turned up within 5 s")
}

fn disks_named(prefix: &str) -> anyhow::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir("/sys/block")?
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.starts_with(prefix))
        .collect();
    names.sort();
    Ok(names)
}

/// Mounts a workload's disk with `options`; fails if the kernel ignores one, which it reports in its log.
fn mount_asked(
    device: &Path,
    dir: &Path,
    storage: &Storage,
    options: &str,
    journal: Option<&Path>,
) -> anyhow::Result<()> {
    let filesystem = &storage.filesystem;
    let (flags, mut data) = fs_lever::split(options);
    if options.is_empty() && journal.is_none() {
        return mount_at(device, dir, filesystem, flags, &data);
    }
    let mut levers = Vec::new();
    if !options.is_empty() {
        levers.push(format!("`fs.mount={options}`"));
    }
    if let (Some(disk), Some(at)) = (&storage.journal, journal) {
        levers.push(format!("`{}={}`", fs_lever::JOURNAL, disk.storage));
        let option = image::journal::mount_option(filesystem)
            .with_context(|| format!("{filesystem} cannot have its journal on a separate disk"))?;
        data += &format!("{}{option}={}", if data.is_empty() { "" } else { "," }, at.display());
    }
    let before = super::kernel_log()?.len();
    let mounted = mount_at(device, dir, filesystem, flags, &data);
    let log = super::kernel_log()?;
    let said = log.get(before..).unwrap_or_default().join("\n");
    if let Err(e) = mounted {
        let (levers, said) = (levers.join(" with "), said.trim());
        match e.downcast_ref::<Errno>() {
            Some(&(Errno::INVAL | Errno::OPNOTSUPP)) => {
                bail!("Lever {levers} did not take: {e:#}; the kernel logged `{said}`")
            }
            _ => return Err(e.context(format!("With {levers}; the kernel logged `{said}`"))),
        }
    }
    if options.is_empty() {
        return Ok(());
    }
    if let Some(line) = fs_lever::ignored(options, &said) {
        bail!("Lever `fs.mount={options}` did not take: the kernel logged `{line}`");
    }
    // Options that the generic mount code keeps are shown for every file system.
    let shown = mount_options(dir);
    let missing = |name: &&str| options.split(',').any(|o| o == *name) && !shown.iter().any(|o| o == *name);
    match ["noatime", "relatime", "nodiratime", "lazytime", "sync", "dirsync", "nodev", "nosuid", "noexec"]
        .iter()
        .find(|o| missing(o))
    {
        Some(name) => bail!("Lever `fs.mount={options}` did not take: /proc/mounts does not show `{name}`"),
        None => Ok(()),
    }
}

/// Options of what is mounted on `dir`.
fn mount_options(dir: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let line = mounts.lines().rev().find(|line| line.split(' ').nth(1) == dir.to_str());
    let options = line.and_then(|line| line.split(' ').nth(3)).unwrap_or_default();
    options.split(',').map(str::to_owned).collect()
}

fn mount_at(device: &Path, dir: &Path, filesystem: &str, flags: MountFlags, data: &str) -> anyhow::Result<()> {
    let data = CString::new(data).context("Mount options")?;
    // A node can appear before its disk opens.
    let mut tries = 0;
    loop {
        match mount(device, dir, filesystem, flags, (!data.is_empty()).then_some(data.as_c_str())) {
            Ok(()) => return Ok(()),
            Err(Errno::NXIO) if tries < 200 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => {
                let message = format!("Cannot mount {} as {filesystem}", device.display());
                // A file system that the kernel lacks is a fault of the question.
                return Err(match e {
                    Errno::NODEV => Error::new(e).context(message),
                    e => Error::new(e).context(Finding(Failure::MountFailed, message)),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::trouble;
    use crate::protocol::GuestEvent;

    #[test]
    fn a_file_system_that_does_not_mount_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("no-device");
        fs::write(&file, "").unwrap();
        let error = mount_at(&file, dir.path(), "ext4", MountFlags::empty(), "").unwrap_err();
        let GuestEvent::Failed { failure, message } = trouble(&error.context("For the workload")) else {
            panic!("unfit")
        };
        assert_eq!(failure, Failure::MountFailed);
        assert!(message.starts_with("For the workload: Cannot mount ") && message.contains(" as ext4: "), "{message}");
    }

    #[test]
    fn persistent_memory_is_found_by_its_slot() {
        let sys = tempfile::tempdir().unwrap();
        let blocks = sys.path().join("block");
        fs::create_dir(&blocks).unwrap();
        let bus = sys.path().join("ndbus0");
        // The second slot's module is the kernel's first device.
        for (n, module, handle) in [(0, "nmem1", "0x2\n"), (1, "nmem0", "0x1\n")] {
            let device = bus.join(format!("region{n}/namespace{n}.0/block/pmem{n}"));
            fs::create_dir_all(&device).unwrap();
            fs::write(bus.join(format!("region{n}/mapping0")), format!("{module},0,2097152,0\n")).unwrap();
            fs::create_dir_all(bus.join(module).join("nfit")).unwrap();
            fs::write(bus.join(module).join("nfit/handle"), handle).unwrap();
            symlink(device, blocks.join(format!("pmem{n}"))).unwrap();
        }
        fs::create_dir(blocks.join("vda")).unwrap();
        assert_eq!(pmem_of_slot(&blocks, 0).unwrap(), Path::new("/dev/pmem1"));
        assert_eq!(pmem_of_slot(&blocks, 1).unwrap(), Path::new("/dev/pmem0"));
        assert_eq!(pmem_of_slot(&blocks, 2), None);
    }
}
