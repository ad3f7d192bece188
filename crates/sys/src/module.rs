//! Loading kernel modules without kmod.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Loads the (uncompressed) module in `file` with `parameters`. A module that is already loaded is not an error.
///
/// # Errors
/// Those of finit_module(2).
pub fn load(file: &File, parameters: &CStr) -> io::Result<()> {
    // SAFETY: the descriptor is open for the call and the string is NUL-terminated.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        e if e.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        e => Err(e),
    }
}
