//! The right to change this machine: a lock that the death of its process releases.
//!
//! Invariant: what keeps root from changing the machine is root's alone.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bigiron_model::folder_files::{self, Access, Owner};
use bigiron_sys::kernel_file::below;
use rustix::fs::{FlockOperation, flock};

use super::ledger_file::LedgerFile;
use super::{UndoError, io_error};

/// As for a study's folder: a process that was killed lets go when the children that it was just starting are gone too.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Where root's lock of the machine is: gone with a reboot, as what it protects.
const ROOT_LOCK: (&str, &str) = ("/run/bigiron", "undo.lock");

/// Who holds the lock, as far as /proc says.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder(Option<u32>);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("of another user or container"),
        }
    }
}

/// The file, and the right to change the machine.
pub(super) struct Lock {
    pub(super) ledger_file: LedgerFile,
    pub(super) machine: Option<File>,
}

impl Lock {
    /// Takes both locks: of the ledger's file, and of the machine, whatever ledgers others may have.
    pub(super) fn take(folder: &Path, root: &Path) -> Result<Self, UndoError> {
        Self::of_ledger(folder)?.and_machine(root)
    }

    /// Takes the ledger's lock alone: enough to see that there is nothing to take back.
    pub(super) fn of_ledger(folder: &Path) -> Result<Self, UndoError> {
        let io = |cause: io::Error| {
            let path = folder.join("undo.jsonl");
            match cause.kind() {
                // Somebody else's, a symbolic link, or no file.
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput => UndoError::Untrusted { path, cause },
                _ => UndoError::Io { path, cause },
            }
        };
        let ledger_file = LedgerFile::open(folder).map_err(io)?;
        lock(ledger_file.file()).map_err(io)?.map_err(UndoError::Held)?;
        Ok(Self { ledger_file, machine: None })
    }

    pub(super) fn and_machine(mut self, root: &Path) -> Result<Self, UndoError> {
        let machine = match rustix::process::geteuid().is_root() {
            true => Some(
                root_lock(root)
                    .map_err(|cause| UndoError::Untrusted { path: below(root, Path::new(ROOT_LOCK.0)), cause })?,
            ),
            // A folder that every process sees and no lock leaves a trace in. Anybody may lock it, so root does not rely on it.
            false => File::open(below(root, Path::new("/sys/kernel"))).ok(),
        };
        if let Some(machine) = &machine {
            lock(machine).map_err(|cause| io_error(&self.ledger_file, cause))?.map_err(UndoError::Held)?;
        }
        self.machine = machine;
        Ok(self)
    }
}

/// The file of root's lock, in a folder that nobody else may enter.
fn root_lock(root: &Path) -> io::Result<File> {
    let folder = below(root, Path::new(ROOT_LOCK.0));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    folder_files::check_owner(&folder, Owner::User)?;
    folder_files::open(&folder, ROOT_LOCK.1, Access::Update, 0o600)
}

/// Closing the files would not be enough: a process that was forked meanwhile holds them too until it executes its program.
impl Drop for Lock {
    fn drop(&mut self) {
        for file in std::iter::once(self.ledger_file.file()).chain(self.machine.as_ref()) {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// Locks `file` for this process, or says who has.
fn lock(file: &File) -> io::Result<Result<(), Holder>> {
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Ok(())),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < patience => thread::sleep(Duration::from_millis(20)),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Err(Holder(holder(file)))),
            Err(e) => return Err(e.into()),
        }
    }
}

/// The process that locks `file`, by /proc/locks.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.st_ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|w| *w == "FLOCK")?;
        let same = words.get(at + 4)?.rsplit(':').next() == Some(inode.as_str());
        same.then(|| words[at + 3].parse().ok()).flatten()
    })
}
