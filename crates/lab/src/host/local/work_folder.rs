//! The folder that a trial on this machine works in.
//!
//! Invariant: a folder whose process lives is locked, and nobody removes it; one whose process was killed goes when the next is made in the
//! same place.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use tempfile::TempDir;

const PREFIX: &str = "bigiron-work-";

/// A folder that is removed when dropped.
pub(super) struct WorkFolder {
    dir: TempDir,
    /// The folder itself, locked.
    _lock: File,
}

impl WorkFolder {
    /// A younger folder may belong to a process that is about to lock it.
    pub(super) const SETTLED: Duration = Duration::from_secs(60);

    pub(super) fn make(below: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(below)?;
        let lock = open(dir.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes this user's folders of that `age` whose processes are gone. What cannot be removed stays.
    pub(super) fn clear(below: &Path, age: Duration) {
        let user = rustix::process::geteuid().as_raw();
        for entry in fs::read_dir(below).into_iter().flatten().flatten() {
            let path = entry.path();
            if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            let Ok(folder) = open(&path) else { continue };
            let settled = folder.metadata().is_ok_and(|meta| {
                let old = meta.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|old| old >= age);
                meta.uid() == user && old
            });
            if settled && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

fn open(folder: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    File::options().read(true).custom_flags(flags.bits() as i32).open(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_trial_left_goes_and_nothing_else() {
        let below = tempfile::tempdir().unwrap();
        let folders = ["bigiron-work-dead", "work-of-the-users", "bigiron-server-x"];
        for folder in folders {
            fs::create_dir_all(below.path().join(folder).join("data")).unwrap();
        }
        let living = WorkFolder::make(below.path()).unwrap();
        WorkFolder::clear(below.path(), WorkFolder::SETTLED);
        assert!(below.path().join(folders[0]).exists(), "too young");
        WorkFolder::clear(below.path(), Duration::ZERO);
        let left = folders.map(|folder| below.path().join(folder).exists());
        assert_eq!((left, living.path().exists()), ([false, true, true], true));
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }
}
