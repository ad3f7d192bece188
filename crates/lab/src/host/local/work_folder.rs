//! The folder that a trial on this machine works in.
//!
//! Invariant: a folder whose process lives is locked, and nobody removes it; one whose process was killed goes when the next is made in the
//! same place.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tempfile::TempDir;

const PREFIX: &str = "bigiron-work-";

/// A folder that is removed when dropped.
pub(super) struct WorkFolder {
    dir: TempDir,
    /// The folder itself, locked.
    _lock: File,
}

impl WorkFolder {
    pub(super) fn make(below: &Path) -> io::Result<Self> {
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(below)?;
            if let Some(lock) = locked(dir.path())? {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes this user's folders whose processes are gone. What cannot be removed stays.
    ///
    /// No folder's age counts: this machine's clock may have been set.
    pub(super) fn clear(below: &Path) {
        let user = rustix::process::geteuid().as_raw();
        for entry in fs::read_dir(below).into_iter().flatten().flatten() {
            let path = entry.path();
            if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            let Ok(folder) = open(&path) else { continue };
            let ours = folder.metadata().is_ok_and(|meta| meta.uid() == user);
            if ours && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// The new `folder`, locked; `None` if another process took it for a dead one's before it was locked.
fn locked(folder: &Path) -> io::Result<Option<File>> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let lock = match open(folder) {
        Err(error) if gone(&error) => return Ok(None),
        lock => lock?,
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        done => done?,
    }
    // The other process may have been done before.
    match fs::symlink_metadata(folder) {
        Err(error) if gone(&error) => Ok(None),
        found => found.map(|_| Some(lock)),
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
        // Left before the clock was set back.
        let future = std::time::SystemTime::now() + std::time::Duration::from_secs(1_000_000);
        File::open(below.path().join(folders[0])).unwrap().set_modified(future).unwrap();
        WorkFolder::clear(below.path());
        let left = folders.map(|folder| below.path().join(folder).exists());
        assert_eq!((left, living.path().exists()), ([false, true, true], true));
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }

    /// Nobody's new folder is mistaken for a dead one's.
    #[test]
    fn folders_are_made_while_others_clear() {
        let below = tempfile::tempdir().unwrap();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..500 {
                        WorkFolder::clear(below.path());
                        let folder = WorkFolder::make(below.path()).unwrap();
                        fs::write(folder.path().join("data"), "data").unwrap();
                        assert!(folder.path().join("data").exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(below.path()).unwrap().count(), 0);
    }
}
