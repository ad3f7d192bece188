//! Files of a folder that somebody else may have filled: the cache, the ledger's folder, a study that was received.
//!
//! Invariant: nothing here follows a symbolic link within the folder, opens anything but a regular file, or waits for a FIFO. The folder
//! itself is the user's choice, and may be reached by links.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read what is there.
    Read,
    /// Read and write; an empty file is made if there is none.
    Update,
    /// As [`Access::Update`], and everything is written at the end.
    Append,
    /// Make the file, which must not be there yet.
    New,
}

/// Whose folder is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The user of this process.
    User,
    /// The user of this process, or root. Their own groups may write: where the umask allows it, all that they make is so. A group is a user's
    /// own if it has the user's number, as useradd gives it.
    UserOrRoot,
}

/// Opens a regular file of `folder`; `mode` (without the umask) is that of a new file.
///
/// # Errors
/// A part of the path is a symbolic link, the file is not a regular one, or it cannot be opened.
pub fn open(folder: &Path, relative: impl AsRef<Path>, access: Access, mode: u32) -> io::Result<File> {
    let (parent, name) = parent_of(folder, relative.as_ref())?;
    let flags = match access {
        Access::Read => OFlags::RDONLY,
        Access::Update => OFlags::RDWR | OFlags::CREATE,
        Access::Append => OFlags::RDWR | OFlags::CREATE | OFlags::APPEND,
        Access::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
    };
    // Not blocking: the open of a FIFO would wait for its other end.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(mode));
    let file = File::from(opened.map_err(|e| refused(&parent, name, e))?);
    if !file.metadata()?.is_file() {
        return Err(not("a regular file"));
    }
    Ok(file)
}

/// Reads a regular file of `folder`.
///
/// # Errors
/// As [`open`].
pub fn read(folder: &Path, relative: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(folder, relative, Access::Read, 0)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file of `folder` under a temporary name, syncs it, and gives it its name: readers see the old file or the new one, whole.
///
/// # Errors
/// It cannot be written; then the old file is still there.
pub fn write_whole(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    plain_name(name).map_err(|why| io::Error::new(ErrorKind::InvalidInput, why))?;
    let parent = open_folder(folder)?;
    let temporary = format!(".{name}.{}.tmp", std::process::id());
    // What a killed process of the same number left, or somebody planted.
    let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
    let write = || -> io::Result<()> {
        let mut file = open(folder, &temporary, Access::New, mode)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        rustix::fs::renameat(&parent, &temporary, &parent, name)?;
        Ok(rustix::fs::fsync(File::open(folder)?)?)
    };
    write().inspect_err(|_| {
        let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
    })
}

/// Makes the folders `relative` in `folder` that are not there yet.
///
/// # Errors
/// One of them is a symbolic link or no folder, or cannot be made.
pub fn make_folders(folder: &Path, relative: impl AsRef<Path>) -> io::Result<PathBuf> {
    let mut at = open_folder(folder)?;
    for part in parts(relative.as_ref())? {
        match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => at = enter(&at, part)?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(folder.join(relative))
}

/// Removes the folder or file `relative` of `folder` with all that is in it; links are removed, not followed.
///
/// # Errors
/// A folder above it is a symbolic link, or something cannot be removed. That nothing is there is no error.
pub fn remove_all(folder: &Path, relative: impl AsRef<Path>) -> io::Result<()> {
    let gone = |removed: io::Result<()>| match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    };
    match parent_of(folder, relative.as_ref()) {
        Ok(_) => {}
        Err(e) => return gone(Err(e)),
    }
    let path = folder.join(relative);
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_dir() => gone(fs::remove_dir_all(&path)),
        Ok(_) => gone(fs::remove_file(&path)),
        Err(e) => gone(Err(e)),
    }
}

/// Whether none of these parts of `folder` is a symbolic link, for those who go on to use their paths.
///
/// # Errors
/// One is, and which.
pub fn refuse_links(folder: &Path, names: &[&str]) -> io::Result<()> {
    let at = open_folder(folder)?;
    for name in names.iter().map(Path::new) {
        // What is none, or is not there, has another errno.
        if rustix::fs::readlinkat(&at, name, Vec::new()).is_ok() {
            return Err(refused(&at, name, Errno::LOOP));
        }
    }
    Ok(())
}

/// Whether nobody but its owner, who is trusted, can have filled a folder or file.
///
/// # Errors
/// Somebody else owns it, or others may write to it; the message says what would be right.
pub fn check_owner(path: &Path, owner: Owner) -> io::Result<()> {
    let meta = fs::metadata(path)?;
    let user = rustix::process::geteuid().as_raw();
    let deny = |why: String| Err(io::Error::new(ErrorKind::PermissionDenied, why));
    if meta.uid() != user && !(owner == Owner::UserOrRoot && meta.uid() == 0) {
        return deny(format!(
            "it belongs to user {}, and this is user {user}: what is in it is not trusted; use a folder of your own",
            meta.uid()
        ));
    }
    let mode = meta.permissions().mode() & 0o7777;
    let others = if owner == Owner::UserOrRoot && meta.gid() == meta.uid() { 0o002 } else { 0o022 };
    if mode & others != 0 {
        return deny(format!(
            "other users may write to it (mode {mode:04o}): what is in it is not trusted; look at what is in it, then `chmod go-w` it"
        ));
    }
    Ok(())
}

/// As [`check_owner`], of a folder and of what lies directly in it: somebody may have filled it before it was closed to others.
///
/// # Errors
/// As [`check_owner`].
pub fn check_entries(folder: &Path, owner: Owner) -> io::Result<()> {
    check_owner(folder, owner)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match check_owner(&path, owner) {
            // Removed meanwhile, or a link that leads nowhere.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(io::Error::new(e.kind(), format!("of `{}` in it: {e}", path.display()))),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Whether `name` names a file in a folder and nothing else: no path, and nothing that a terminal obeys.
///
/// # Errors
/// Why it is no such name.
pub fn plain_name(name: &str) -> Result<(), String> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name == "." || name == ".." || name.contains('/') {
        "it is a path"
    } else if name.len() > 255 {
        "it is longer than 255 bytes"
    } else if name.contains(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(format!("`{}` is not the name of a file: {why}; name one file or folder, without `/`", name.escape_default()))
}

/// The folder that holds `relative`, open, and the last part.
fn parent_of<'a>(folder: &Path, relative: &'a Path) -> io::Result<(OwnedFd, &'a Path)> {
    let mut parts = parts(relative)?;
    let Some(name) = parts.pop() else { return Err(not("the name of a file")) };
    let mut at = open_folder(folder)?;
    for part in parts {
        at = enter(&at, part)?;
    }
    Ok((at, name))
}

fn parts(relative: &Path) -> io::Result<Vec<&Path>> {
    let part = |part| match part {
        Component::Normal(name) => Ok(Path::new(name)),
        _ => Err(not("a path within the folder")),
    };
    relative.components().map(part).collect()
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    Ok(rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn enter(at: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty()).map_err(|e| refused(at, name, e))
}

/// What the kernel says of a link, or of a FIFO without a reader, does not name the cause.
fn refused(at: &OwnedFd, name: &Path, error: Errno) -> io::Error {
    match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW).map(|s| FileType::from_raw_mode(s.st_mode)) {
        Ok(FileType::Symlink) if error != Errno::EXIST => io::Error::new(
            ErrorKind::InvalidInput,
            format!(
                "`{}` is a symbolic link, which is not followed here; remove it, or put the file itself there",
                name.display()
            ),
        ),
        Ok(kind) if error == Errno::NXIO && kind != FileType::RegularFile => not("a regular file"),
        _ => error.into(),
    }
}

fn not(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("it is not {what}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder, and a file outside it that nothing may touch.
    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (folder, outside) = (dir.path().join("folder"), dir.path().join("outside"));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "precious").unwrap();
        (dir, folder, outside)
    }

    #[test]
    fn links_within_the_folder_are_refused_and_the_folder_may_be_one() {
        let (dir, folder, outside) = place();
        symlink(outside.join("file"), folder.join("link")).unwrap();
        symlink(&outside, folder.join("sub")).unwrap();
        for access in [Access::Read, Access::Update, Access::Append, Access::New] {
            open(&folder, "link", access, 0o600).unwrap_err();
        }
        for path in ["link", "sub/file"] {
            let said = read(&folder, path).unwrap_err().to_string();
            assert!(said.contains("is a symbolic link"), "{said}");
        }
        make_folders(&folder, "sub/new").unwrap_err();
        remove_all(&folder, "sub/file").unwrap_err();
        remove_all(&folder, "sub").unwrap();
        write_whole(&folder, "link", b"new", 0o600).unwrap();
        assert_eq!(read(&folder, "link").unwrap(), b"new");
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        symlink(&folder, dir.path().join("alias")).unwrap();
        assert_eq!(read(&dir.path().join("alias"), "link").unwrap(), b"new");
    }

    #[test]
    fn a_planted_temporary_file_is_replaced() {
        let (_dir, folder, outside) = place();
        symlink(outside.join("file"), folder.join(format!(".report.{}.tmp", std::process::id()))).unwrap();
        write_whole(&folder, "report", b"new", 0o644).unwrap();
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn nothing_waits_for_a_fifo_and_no_path_leaves_the_folder() {
        let (_dir, folder, _) = place();
        rustix::fs::mknodat(rustix::fs::CWD, folder.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        for access in [Access::Read, Access::Update, Access::Append] {
            let said = open(&folder, "fifo", access, 0o600).unwrap_err().to_string();
            assert!(said.contains("not a regular file"), "{said}");
        }
        for path in ["../outside/file", "/etc/passwd", ""] {
            read(&folder, path).unwrap_err();
        }
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let (_dir, folder, _) = place();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        check_owner(&folder, Owner::User).unwrap();
        let refused = |mode: u32, owner: Owner| {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let said = check_owner(&folder, owner).unwrap_err().to_string();
            assert!(said.contains("`chmod go-w`"), "{said}");
        };
        for mode in [0o720, 0o702, 0o777] {
            refused(mode, Owner::User);
        }
        refused(0o702, Owner::UserOrRoot);
        let user = rustix::process::geteuid();
        // As a umask of 002 leaves it.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o775)).unwrap();
        let own = fs::metadata(&folder).unwrap().gid() == user.as_raw();
        assert_eq!(check_owner(&folder, Owner::UserOrRoot).is_ok(), own);
        if user.is_root() {
            std::os::unix::fs::chown(&folder, None, Some(65534)).unwrap();
            refused(0o775, Owner::UserOrRoot);
        }
    }

    #[test]
    fn a_name_is_one_part_of_a_path() {
        for good in ["2026-01-01", "a b", ".hidden", "ümlaut"] {
            plain_name(good).unwrap();
        }
        for bad in ["", ".", "..", "a/b", "/etc", "a\nb", "\u{1b}[2J"] {
            plain_name(bad).unwrap_err();
        }
    }
}
