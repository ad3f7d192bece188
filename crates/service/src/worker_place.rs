//! The place of a worker on another machine: its folder, and the connection over which it was started.
//!
//! The script that starts a worker removes its folder. The next worker removes what a failure of the machine, or an end of all processes of the
//! login, has left of one that had begun.

use std::fs::{self, File, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bigiron_sys::this_machine;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

/// Where workers have their folders, and how the names of the folders begin. A database's files should be on a disk, and `/tmp` may be in memory.
pub const BASE: &str = "/var/tmp";
pub const FOLDER: &str = "bigiron-worker-";
/// The executable in a folder, until the worker has begun.
const EXECUTABLE: &str = "bigiron";

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
        Some(Self { here: here.parse().ok()?, client: client.parse().ok()?, boot_id: this_machine::boot_id() })
    }
}

/// What a worker has on its machine.
pub struct WorkerPlace {
    pub meeting: Meeting,
    pub folder: WorkerFolder,
}

/// A folder for a worker's files; the script that started the worker removes it.
pub struct WorkerFolder {
    pub path: PathBuf,
    /// Shows that the folder's owner lives.
    _lock: File,
}

impl WorkerFolder {
    /// The folder of this process, whose executable's file is removed: a running program needs none. Removes the folders of workers that a failure of
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
        Ok(Self { path: folder.to_owned(), _lock: lock })
    }

    /// Whether another worker lives on this machine.
    pub(crate) fn has_neighbour(&self) -> bool {
        workers(Path::new(BASE)).iter().any(|(path, lock)| lock.is_none() && *path != self.path)
    }
}

/// The folders in `base` of workers, this user's or, for root, everybody's; with a lock if the worker is dead.
fn workers(base: &Path) -> Vec<(PathBuf, Option<File>)> {
    let user = rustix::process::geteuid();
    let mut found = Vec::new();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(FOLDER.as_bytes()) {
            continue;
        }
        // No link, and nothing that makes the opener wait.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let Ok(folder) = File::options().read(true).custom_flags(flags.bits() as i32).open(entry.path()) else {
            continue;
        };
        if user.is_root() || folder.metadata().is_ok_and(|meta| meta.uid() == user.as_raw()) {
            let is_dead = flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
            found.push((entry.path(), is_dead.then_some(folder)));
        }
    }
    found
}

/// Removes the folders in `base` whose workers have begun and are dead.
fn clear(base: &Path) {
    for (path, lock) in workers(base) {
        let mut entries = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.file_name()).peekable();
        // An empty one may be new, and one with an executable is not yet locked.
        let has_begun = entries.peek().is_some() && entries.all(|name| name != EXECUTABLE);
        if lock.is_some() && has_begun {
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
