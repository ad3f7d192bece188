//! Folders for servers, and paths of their sockets, which may be only so long.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bigiron_sys::owned_folder::OwnedFolder;

use super::error::{ServerError, doing};

/// The length of `sun_path` in a socket's address, without the zero at its end.
const LONGEST_SOCKET: usize = 107;

/// A new folder for a server in `base`, after removing those of killed owners.
///
/// # Errors
/// It cannot be made.
pub fn server_folder(base: &Path) -> Result<OwnedFolder, ServerError> {
    OwnedFolder::make(base, "bigiron-server-").map_err(doing("Cannot make a folder in", base))
}

/// A path of the folder `target` that is short enough for a Unix socket named `socket` below it: the folder's own path, or a link in a temporary
/// folder, which is removed with its [`OwnedFolder`].
///
/// # Errors
/// The link cannot be made.
pub fn short_path(target: &Path, socket: &str) -> Result<(Option<OwnedFolder>, PathBuf), ServerError> {
    // A link only if necessary: it lies outside the folder and outlives a killed process.
    if check_socket(&target.join(socket)).is_ok() {
        return Ok((None, target.to_owned()));
    }
    let folder = server_folder(&std::env::temp_dir())?;
    let short = folder.path().join("c");
    // The server's user must be able to enter.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))
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
