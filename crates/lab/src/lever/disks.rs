//! The block devices that hold a folder's data.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use bigiron_sys::mount;

/// The devices below a folder, as named in /sys/block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disks {
    /// The devices that hold the file systems.
    pub devices: Vec<String>,
    /// The underlying disks: the same, unless a device is built from others (LVM, dm-crypt, RAID).
    pub disks: Vec<String>,
}

impl Disks {
    /// The devices below `folder`.
    ///
    /// # Errors
    /// If there is none; the message gives the reason.
    pub fn below(folder: &Path) -> Result<Self, String> {
        let at = folder.display();
        let metadata = fs::metadata(folder).map_err(|e| format!("`{at}`: {e}"))?;
        let mut number = metadata.dev();
        let mount = mount::of(folder);
        // btrfs and others have their own device numbers; the mount table names the device that they were mounted from.
        if rustix::fs::major(number) == 0 {
            let source = mount.as_ref().map(|m| m.source.clone()).unwrap_or_default();
            let device = fs::metadata(&source).ok().filter(|m| m.file_type().is_block_device());
            let kind = mount.map_or_else(|| "a file system".to_owned(), |m| m.kind);
            number =
                device.map(|m| m.rdev()).ok_or_else(|| format!("`{at}` is on {kind}, which has no block device"))?;
        }
        Self::numbered(number, folder)
    }

    /// A device itself.
    ///
    /// # Errors
    /// If it is not a block device, or /sys does not show it.
    pub fn of(device: &Path) -> Result<Self, String> {
        let metadata = fs::metadata(device).map_err(|e| format!("`{}`: {e}", device.display()))?;
        Self::numbered(metadata.rdev(), device)
    }

    /// The device of that number, which holds `what`.
    fn numbered(number: u64, what: &Path) -> Result<Self, String> {
        let at = what.display();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let mut device = fs::canonicalize(&link)
            .map_err(|_| format!("`{at}` is on the device {major}:{minor}, which /sys does not show"))?;
        if device.join("partition").exists() {
            device.pop();
        }
        let mut found = Self::default();
        found.add(&device);
        Ok(found)
    }

    /// Merges the devices of several folders.
    pub fn join(&mut self, other: Self) {
        self.devices.extend(other.devices);
        self.disks.extend(other.disks);
        for list in [&mut self.devices, &mut self.disks] {
            list.sort();
            list.dedup();
        }
    }

    fn add(&mut self, device: &Path) {
        let Some(name) = device.file_name().and_then(|n| n.to_str()) else { return };
        self.devices.push(name.to_owned());
        bottom(device, &mut self.disks);
    }
}

/// The disks from which `device` is built.
fn bottom(device: &Path, disks: &mut Vec<String>) {
    let slaves: Vec<PathBuf> =
        fs::read_dir(device.join("slaves")).into_iter().flatten().flatten().map(|e| e.path()).collect();
    if slaves.is_empty() {
        let name = device.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if !disks.contains(&name) {
            disks.push(name);
        }
        return;
    }
    for slave in slaves {
        let Ok(mut slave) = fs::canonicalize(slave) else { continue };
        if slave.join("partition").exists() {
            slave.pop();
        }
        bottom(&slave, disks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_device_says_so() {
        let why = Disks::below(Path::new("/proc/self")).unwrap_err();
        assert_eq!(why, "`/proc/self` is on proc, which has no block device");
    }

    #[test]
    fn a_device_of_several_has_its_disks_at_the_bottom() {
        let dir = tempfile::tempdir().unwrap();
        let block = dir.path().join("block");
        for folder in ["md0/slaves", "sda/sda1", "sdb/sdb1"] {
            fs::create_dir_all(block.join(folder)).unwrap();
        }
        for disk in ["sda", "sdb"] {
            fs::write(block.join(disk).join(format!("{disk}1/partition")), "1\n").unwrap();
            let to = block.join(disk).join(format!("{disk}1"));
            std::os::unix::fs::symlink(to, block.join("md0/slaves").join(format!("{disk}1"))).unwrap();
        }
        let mut found = Disks::default();
        found.add(&block.join("md0"));
        found.disks.sort();
        assert_eq!(found, Disks { devices: vec!["md0".into()], disks: vec!["sda".into(), "sdb".into()] });
    }
}
