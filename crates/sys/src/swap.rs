//! Switching swap on and off.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Starts swapping to `path`, which has a swap header.
///
/// # Errors
/// Those of swapon(2).
pub fn on(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the string is NUL-terminated and lives through the call.
    match unsafe { libc::swapon(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Stops swapping to `path`; its content is first moved back to memory.
///
/// # Errors
/// Those of swapoff(2); `InvalidInput` if it is not in use as swap.
pub fn off(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the string is NUL-terminated and lives through the call.
    match unsafe { libc::swapoff(path.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
