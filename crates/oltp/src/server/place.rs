//! A folder for a cluster that is gone when it is no longer wanted, even if bigiron is killed.
//!
//! Invariant: a folder whose owner lives is locked, and nobody else removes it; one whose owner was killed is removed when the next is made.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cluster::fits_socket;
use bigiron_service::error::{ServerError, doing};

const PREFIX: &str = "bigiron-pg-";
/// A folder younger than this may belong to somebody who is about to lock it.
const SETTLED: Duration = Duration::from_secs(60);

/// A folder of our own. Dropping it removes it with all that is in it.
#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    /// Held locked; the kernel unlocks it when the process ends, however it does.
    _lock: File,
}

impl Place {
    /// A new folder in the folder for temporary files (`TMPDIR`).
    ///
    /// # Errors
    /// It cannot be made.
    pub fn temporary() -> Result<Self, ServerError> {
        Self::below(&std::env::temp_dir())
    }

    /// A new folder in `base`, after removing those that killed owners left there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn below(base: &Path) -> Result<Self, ServerError> {
        clear(base, SETTLED);
        let dir =
            tempfile::Builder::new().prefix(PREFIX).tempdir_in(base).map_err(doing("Cannot make a folder in", base))?;
        let path = dir.path().join("lock");
        let lock = File::create(&path).and_then(|f| {
            f.lock()?;
            Ok(f)
        });
        let lock = lock.map_err(doing("Cannot lock", &path))?;
        Ok(Self { dir: dir.keep(), _lock: lock })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A way to `folder` that is short enough for the path of a server's socket there: itself, or a link in a folder for temporary files, which
/// goes with its [`Place`].
///
/// # Errors
/// The link cannot be made.
pub fn short_way(folder: &Path) -> Result<(Option<Place>, PathBuf), ServerError> {
    // Only where it must be: it is outside of the folder, and outlives us if we are killed.
    if fits_socket(folder) {
        return Ok((None, folder.to_owned()));
    }
    let place = Place::temporary()?;
    let short = place.dir().join("c");
    // The server's user must get there.
    fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o711))
        .and_then(|()| symlink(folder, &short))
        .map_err(doing("Cannot make", &short))?;
    Ok((Some(place), short))
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Removes folders whose owners are dead. What cannot be removed (it is another user's) stays.
fn clear(base: &Path, age: Duration) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.filter_map(Result::ok) {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let dir = entry.path();
        let settled = || Some(fs::symlink_metadata(dir.join("lock")).ok()?.modified().ok()?.elapsed().ok()? >= age);
        if ours
            && settled() == Some(true)
            && let Ok(lock) = File::open(dir.join("lock"))
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
        let left = base.path().join("bigiron-pg-left");
        fs::create_dir_all(left.join("data")).unwrap();
        fs::write(left.join("lock"), "").unwrap();
        let other = base.path().join("bigiron-pg-without-lock");
        fs::create_dir(&other).unwrap();
        let place = Place::below(base.path()).unwrap();
        assert!(left.exists(), "too young to be removed");
        clear(base.path(), Duration::ZERO);
        assert!(!left.exists() && other.exists() && place.dir().exists());
        let dir = place.dir().to_owned();
        drop(place);
        assert!(!dir.exists());
    }
}
