//! Files that a user, a package or a received folder names.
//!
//! Invariant: what is read is a regular file. A FIFO would be waited for, and a device may have no end.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// What is wrong with everything else.
pub const NOT_REGULAR: &str = "it is not a regular file";

/// Opens the file to read; links are followed.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Not blocking: the open of a FIFO would wait for its other end. Regular files do not care.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, NOT_REGULAR));
    }
    Ok(file)
}
