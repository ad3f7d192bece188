//! The time limit of a hardware watchdog.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOWR('W', 6, int)` of `linux/watchdog.h`.
const WDIOC_SETTIMEOUT: u32 = 0xc004_5706;

/// Asks the watchdog `device` to reset the machine after `seconds` without a write; the seconds after which it does.
///
/// # Errors
/// Those of the ioctl, e.g. `EOPNOTSUPP` where the time is fixed.
pub fn set_timeout(device: BorrowedFd<'_>, seconds: i32) -> io::Result<i32> {
    let mut value: c_int = seconds;
    // SAFETY: the kernel reads and writes one `int`, which lives through the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), WDIOC_SETTIMEOUT as _, &raw mut value) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_file_has_no_time_limit() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(set_timeout(file.as_fd(), 60).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
