//! Closing a file with its result, which rustix and the standard library ignore.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes a file. It is closed in any case.
///
/// # Errors
/// A write that failed after its call had returned: a network file system tells of it here.
pub fn close(file: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is ours, and nobody else closes it.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            e => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_closed_once() {
        let (reader, writer) = io::pipe().unwrap();
        close(writer.into()).unwrap();
        assert_eq!(io::read_to_string(reader).unwrap(), "");
    }
}
