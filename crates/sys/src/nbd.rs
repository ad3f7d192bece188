//! A network block device (nbd) whose server is a process on the same machine.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IO(0xab, n)` of `linux/nbd.h`.
const fn request(n: u32) -> u32 {
    0xab00 | n
}
const SET_SOCK: u32 = request(0);
const SET_BLKSIZE: u32 = request(1);
const DO_IT: u32 = request(3);
const SET_SIZE_BLOCKS: u32 = request(7);

fn ioctl(device: BorrowedFd<'_>, request: u32, value: u64) -> io::Result<()> {
    // SAFETY: the requests above take a number or the number of a descriptor, and touch no memory of ours.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), request as _, value) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes `device` (a `/dev/nbdN`) a device of `blocks` blocks of `block_bytes`, whose requests go over the stream `socket`.
///
/// # Errors
/// Those of the ioctls, e.g. `EBUSY` for a device in use.
pub fn connect(device: BorrowedFd<'_>, socket: BorrowedFd<'_>, block_bytes: u64, blocks: u64) -> io::Result<()> {
    ioctl(device, SET_BLKSIZE, block_bytes)?;
    ioctl(device, SET_SIZE_BLOCKS, blocks)?;
    ioctl(device, SET_SOCK, socket.as_raw_fd() as u64)
}

/// Serves the device until its socket is shut down.
///
/// # Errors
/// Those of the ioctl.
pub fn serve(device: BorrowedFd<'_>) -> io::Result<()> {
    ioctl(device, DO_IT, 0)
}
