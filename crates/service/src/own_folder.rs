//! A temporary folder for a server, which is removed even if bigiron is killed.
//!
//! Invariant: a folder is locked while its owner lives, and nobody else removes it; the folder of a killed owner is removed when the next one is
//! made.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bigiron_model::folder_files::{self, Access};

use super::error::{ServerError, doing};

const PREFIX: &str = "bigiron-server-";
/// The length of `sun_path` in a socket's address, without the zero at its end.
const LONGEST_SOCKET: usize = 107;

/// A folder of bigiron's own. Dropping it removes it and its content.
#[derive(Debug)]
pub struct OwnFolder {
    dir: PathBuf,
    /// Held locked; the kernel unlocks it when the process ends, however it ends.
    _lock: File,
}

impl OwnFolder {
    /// A new folder in the folder for temporary files (`TMPDIR`).
    ///
    /// # Errors
    /// It cannot be made.
    pub fn temporary() -> Result<Self, ServerError> {
        Self::below(&std::env::temp_dir())
    }

    /// A new folder in `base`, after removing those of killed owners.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn below(base: &Path) -> Result<Self, ServerError> {
        clear(base);
        loop {
            let dir = tempfile::Builder::new()
                .prefix(PREFIX)
                .tempdir_in(base)
                .map_err(doing("Cannot make a folder in", base))?;
            let path = dir.path().join("lock");
            if let Some(lock) = locked(&path).map_err(doing("Cannot lock", &path))? {
                return Ok(Self { dir: dir.keep(), _lock: lock });
            }
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A path of the folder `target` that is short enough for a Unix socket named `socket` below it: the folder's own path, or a link in a temporary
/// folder, which is removed with its [`OwnFolder`].
///
/// # Errors
/// The link cannot be made.
pub fn short_path(target: &Path, socket: &str) -> Result<(Option<OwnFolder>, PathBuf), ServerError> {
    // A link only if necessary: it lies outside the folder and outlives a killed process.
    if check_socket(&target.join(socket)).is_ok() {
        return Ok((None, target.to_owned()));
    }
    let folder = OwnFolder::temporary()?;
    let short = folder.dir().join("c");
    // The server's user must be able to enter.
    fs::set_permissions(folder.dir(), fs::Permissions::from_mode(0o711))
        .and_then(|()| symlink(target, &short))
        .map_err(doing("Cannot make", &short))?;
    Ok((Some(folder), short))
}

/// Checks that a path is short enough for a Unix socket.
///
/// # Errors
/// It is too long; says what to do.
pub fn check_socket(path: &Path) -> Result<(), ServerError> {
    let length = path.as_os_str().len();
    if length <= LONGEST_SOCKET {
        return Ok(());
    }
    Err(ServerError::Failed(format!(
        "The path of the server's socket `{}` has {length} bytes; at most {LONGEST_SOCKET} are possible. Set TMPDIR to a folder with a \
         shorter path",
        path.display()
    )))
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The new file `lock`, locked; `None` if another process took its folder for a dead owner's before it was locked.
fn locked(lock: &Path) -> io::Result<Option<File>> {
    let file = File::create_new(lock)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // The other process may have been done before.
    Ok(Some(file).filter(|_| lock.exists()))
}

/// Removes folders whose owners are dead. Folders that cannot be removed (other users') stay. No folder's age counts: this machine's clock may
/// have been set.
fn clear(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.filter_map(Result::ok) {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let dir = entry.path();
        if ours
            && let Ok(lock) = folder_files::open(&dir, "lock", Access::Read, 0)
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner_and_a_dead_one_s_with_the_next() {
        let base = tempfile::tempdir().unwrap();
        let left = base.path().join("bigiron-server-left");
        fs::create_dir_all(left.join("data")).unwrap();
        fs::write(left.join("lock"), "").unwrap();
        let other = base.path().join("bigiron-server-without-lock");
        fs::create_dir(&other).unwrap();
        // Somebody else's, in a folder that all may write to.
        let trap = base.path().join("bigiron-server-trap");
        fs::create_dir(&trap).unwrap();
        let fifo = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, trap.join("lock"), rustix::fs::FileType::Fifo, fifo, 0).unwrap();
        // Left before the clock was set back.
        let future = std::time::SystemTime::now() + std::time::Duration::from_secs(1_000_000);
        File::options().write(true).open(left.join("lock")).unwrap().set_modified(future).unwrap();
        let folder = OwnFolder::below(base.path()).unwrap();
        clear(base.path());
        assert!(!left.exists() && other.exists() && folder.dir().exists());
        let dir = folder.dir().to_owned();
        drop(folder);
        assert!(!dir.exists());
    }

    /// Nobody's new folder is mistaken for a dead owner's.
    #[test]
    fn folders_are_made_while_others_clear() {
        let base = tempfile::tempdir().unwrap();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..500 {
                        let folder = OwnFolder::below(base.path()).unwrap();
                        fs::write(folder.dir().join("data"), "data").unwrap();
                        assert!(folder.dir().join("data").exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
