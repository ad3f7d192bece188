//! A temporary folder that goes even if its owner is killed.
//!
//! Invariant: a folder is locked while its owner lives, and nobody else removes it; the folder of a killed owner goes when the next one is made in
//! the same place.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tempfile::TempDir;

/// A folder of bigiron's own, which is removed when dropped.
#[derive(Debug)]
pub struct OwnedFolder {
    dir: TempDir,
    /// The folder itself, locked; the kernel unlocks it when the process ends, however it ends.
    _lock: File,
}

impl OwnedFolder {
    /// A new folder in `base` whose name begins with `prefix`, after removing those of killed owners.
    ///
    /// # Errors
    /// It cannot be made or locked.
    pub fn make(base: &Path, prefix: &str) -> io::Result<Self> {
        clear(base, prefix);
        loop {
            let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(base)?;
            if let Some(lock) = locked(dir.path())? {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes this user's folders, for root everybody's, whose owners are dead. What cannot be removed stays.
///
/// No folder's age counts: this machine's clock may have been set.
fn clear(base: &Path, prefix: &str) {
    let user = rustix::process::geteuid();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        let Ok(folder) = open(&path) else { continue };
        let ours = user.is_root() || folder.metadata().is_ok_and(|meta| meta.uid() == user.as_raw());
        if ours && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&path);
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

    const PREFIX: &str = "bigiron-work-";

    #[test]
    fn what_a_killed_owner_left_goes_and_nothing_else() {
        let below = tempfile::tempdir().unwrap();
        let folders = ["bigiron-work-dead", "work-of-the-users", "bigiron-server-x"];
        for folder in folders {
            fs::create_dir_all(below.path().join(folder).join("data")).unwrap();
        }
        fs::write(below.path().join("bigiron-work-file"), "").unwrap();
        // Left before the clock was set back.
        let future = std::time::SystemTime::now() + std::time::Duration::from_secs(1_000_000);
        File::open(below.path().join(folders[0])).unwrap().set_modified(future).unwrap();
        let living = OwnedFolder::make(below.path(), PREFIX).unwrap();
        clear(below.path(), PREFIX);
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
                        let folder = OwnedFolder::make(below.path(), PREFIX).unwrap();
                        fs::write(folder.path().join("data"), "data").unwrap();
                        assert!(folder.path().join("data").exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(below.path()).unwrap().count(), 0);
    }
}
