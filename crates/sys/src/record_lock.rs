//! Locks on a part of a file (`fcntl`), which rustix does not offer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Locks this many bytes for writing, waiting until no other process has locked any of them; or unlocks them. The locks belong to the process.
///
/// # Errors
/// Those of `fcntl`.
pub fn set(file: BorrowedFd<'_>, offset: u64, bytes: u64, locked: bool) -> io::Result<()> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let lock = libc::flock {
        l_type: if locked { libc::F_WRLCK } else { libc::F_UNLCK } as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset.try_into().map_err(out_of_range)?,
        l_len: bytes.try_into().map_err(out_of_range)?,
        l_pid: 0,
    };
    // SAFETY: the kernel reads one flock, which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, fork_child};
    use std::os::fd::AsFd;

    /// Whether another process may lock the byte.
    fn is_free(file: BorrowedFd<'_>, offset: u64) -> bool {
        let child = fork_child(|| {
            let mut lock = libc::flock {
                l_type: libc::F_WRLCK as libc::c_short,
                l_whence: libc::SEEK_SET as libc::c_short,
                l_start: offset as i64,
                l_len: 1,
                l_pid: 0,
            };
            // SAFETY: the kernel writes one flock, which outlives the call.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
            i32::from(lock.l_type != libc::F_UNLCK as libc::c_short)
        });
        child.unwrap().wait().unwrap() == Exit::Status(0)
    }

    #[test]
    fn a_part_is_locked_and_unlocked() {
        let file = tempfile::tempfile().unwrap();
        set(file.as_fd(), 2_147_483_538, 1, true).unwrap();
        assert!(!is_free(file.as_fd(), 2_147_483_538) && is_free(file.as_fd(), 2_147_483_539));
        set(file.as_fd(), 2_147_483_538, 1, false).unwrap();
        assert!(is_free(file.as_fd(), 2_147_483_538));
        assert!(set(file.as_fd(), u64::MAX, 1, true).is_err());
    }
}
