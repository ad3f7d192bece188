//! Places that a job names for its files: directories, or devices that nothing else uses.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use bigiron_model::refusal::Refusal;
use bigiron_model::size::print_bytes;

/// The kind of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    Device,
}

/// Checks a place for a file of this many bytes.
///
/// # Errors
/// If it is neither a directory nor a free block device named by its path under /dev (a job must name a device this way to
/// consent to its loss).
pub(super) fn look_at(place: &Path, file_bytes: u64) -> Result<Kind, Refusal> {
    let shown = place.display();
    let meta = fs::metadata(place).map_err(|e| Refusal::new(format!("`{shown}` is not a place for files: {e}")))?;
    if meta.is_dir() {
        return Ok(Kind::Directory);
    }
    if !meta.file_type().is_block_device() {
        return Err(Refusal::new(format!("`{shown}` is neither a directory nor a block device")));
    }
    if !place.starts_with("/dev") {
        return Err(Refusal::new(format!("`{shown}` is a device; name it by its path under /dev")));
    }
    // The kernel refuses exclusive access to a device that is mounted, used as swap or part of another device.
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(place);
    let mut device = opened.map_err(|e| match e.kind() {
        ErrorKind::ResourceBusy => {
            Refusal::new(format!("`{shown}` is in use: mounted, used as swap, or part of another device"))
                .hint("A job overwrites its device, so nothing else may use it")
        }
        _ => Refusal::new(format!("`{shown}` cannot be opened: {e}")),
    })?;
    let has = device.seek(SeekFrom::End(0)).map_err(|e| Refusal::new(format!("`{shown}` has no size: {e}")))?;
    if has < file_bytes {
        let (has, needs) = (print_bytes(has), print_bytes(file_bytes));
        return Err(Refusal::new(format!("`{shown}` has {has}; a data file takes {needs}")));
    }
    Ok(Kind::Device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_or_a_device() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(look_at(dir.path(), 1), Ok(Kind::Directory));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(look_at(&file, 1).unwrap_err().message.contains("neither a directory nor a block device"));
        assert!(look_at(Path::new("/nothing/here"), 1).unwrap_err().message.contains("is not a place for files"));
        assert!(look_at(Path::new("/dev/null"), 1).unwrap_err().message.contains("neither a directory"));
    }
}
