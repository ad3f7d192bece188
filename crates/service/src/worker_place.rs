//! The place of a worker on another machine: its folder, and the connection over which it was started.
//!
//! Invariant: the folder does not outlive the worker, except by a failure of the whole machine; the next worker there removes such a folder.

use std::fs::{self, File, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Where workers have their folders, and how the names of the folders begin. A database's files should be on a disk, and `/tmp` may be in memory.
pub const BASE: &str = "/var/tmp";
pub const FOLDER: &str = "bigiron-worker-";
/// The executable in a folder, until the worker has begun.
const EXECUTABLE: &str = "bigiron";
/// Identifies a boot of a machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How a worker's machine and the machine that started the worker reach each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    /// The address of the worker's machine.
    pub here: Ipv4Addr,
    /// The address of the machine that started the worker.
    pub client: Ipv4Addr,
    /// The boot id of the worker's machine, which tells machines apart.
    pub boot_id: String,
}

impl Meeting {
    /// The SSH connection over which this process was started.
    ///
    /// # Errors
    /// This process was not started over SSH, or not over IPv4.
    pub fn of_this_process() -> Result<Self, String> {
        let text = std::env::var("SSH_CONNECTION").unwrap_or_default();
        Self::parse(&text).ok_or_else(|| format!("bigiron needs a connection over IPv4; SSH_CONNECTION is `{text}`"))
    }

    /// ssh(1): the client's address and port, then the server's.
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [client, _, here, _] = words[..] else { return None };
        Some(Self { here: here.parse().ok()?, client: client.parse().ok()?, boot_id: boot_id() })
    }
}

/// The boot id of this machine.
pub fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// What a worker has on its machine.
pub struct WorkerPlace {
    pub meeting: Meeting,
    /// A folder for its files; the script that started the worker removes it.
    pub folder: PathBuf,
    /// Shows that the folder's owner lives.
    _lock: File,
}

impl WorkerPlace {
    /// The place of this process, whose executable's file is removed: a running program needs none. Removes the folders of workers that a failure of
    /// this machine ended.
    ///
    /// # Errors
    /// This process was not started by the script.
    pub(crate) fn take() -> Result<Self> {
        let executable = fs::read_link("/proc/self/exe")?;
        let folder = executable.parent().context("This executable has no folder")?;
        let is_ours = folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(FOLDER.as_bytes()));
        ensure!(is_ours, "This subcommand is for internal use");
        let lock = File::open(folder)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::remove_file(&executable)?;
        // The user of a server must be able to enter.
        fs::set_permissions(folder, Permissions::from_mode(0o711))?;
        clear(Path::new(BASE));
        let meeting = Meeting { here: Ipv4Addr::UNSPECIFIED, client: Ipv4Addr::UNSPECIFIED, boot_id: boot_id() };
        Ok(Self { meeting, folder: folder.to_owned(), _lock: lock })
    }
}

/// Removes the folders in `base` whose workers have begun and are dead.
fn clear(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_workers = entry.file_name().as_encoded_bytes().starts_with(FOLDER.as_bytes());
        if !is_workers || path.join(EXECUTABLE).exists() {
            continue;
        }
        // Only its owner and root can open it. An empty one may be new.
        let is_dead = File::open(&path).is_ok_and(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok());
        let is_empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        if is_dead && !is_empty {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_are_those_of_the_connection() {
        let meeting = Meeting::parse("10.0.0.1 50022 10.0.0.2 22").unwrap();
        assert_eq!(meeting.client, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(meeting.here, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(meeting.boot_id.len(), 36);
        for text in ["", "10.0.0.1 50022 10.0.0.2", "fe80::1 50022 fe80::2 22"] {
            assert_eq!(Meeting::parse(text), None, "{text}");
        }
    }

    #[test]
    fn folders_of_dead_workers_go_and_others_stay() {
        let base = tempfile::tempdir().unwrap();
        let [dead, alive, copied, others] =
            ["bigiron-worker-1", "bigiron-worker-2", "bigiron-worker-3", "other"].map(|name| base.path().join(name));
        for folder in [&dead, &alive, &copied, &others] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(dead.join("data"), "x").unwrap();
        fs::write(copied.join(EXECUTABLE), "a part of").unwrap();
        let lock = File::open(&alive).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        clear(base.path());
        assert_eq!([&dead, &alive, &copied, &others].map(|folder| folder.exists()), [false, true, true, true]);
    }
}
