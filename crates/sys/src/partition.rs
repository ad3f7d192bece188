//! Partitions announced to the kernel without a partition table on the disk.

use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IO(0x12, 105)` of `linux/blkpg.h`.
const BLKPG: u32 = 0x1269;
const ADD_PARTITION: c_int = 1;

#[repr(C)]
struct Arguments {
    op: c_int,
    flags: c_int,
    length: c_int,
    data: *mut c_void,
}

#[repr(C)]
struct Partition {
    start: c_longlong,
    length: c_longlong,
    number: c_int,
    device_name: [c_char; 64],
    volume_name: [c_char; 64],
}

/// Adds a partition with this number to `disk`, `length` bytes from `start` on; both must be multiples of the disk's block size.
///
/// # Errors
/// Those of the ioctl, e.g. `EBUSY` for one that overlaps another.
pub fn add(disk: BorrowedFd<'_>, number: i32, start: u64, length: u64) -> io::Result<()> {
    let mut partition = Partition {
        start: start as c_longlong,
        length: length as c_longlong,
        number,
        device_name: [0; 64],
        volume_name: [0; 64],
    };
    let mut arguments = Arguments {
        op: ADD_PARTITION,
        flags: 0,
        length: size_of::<Partition>() as c_int,
        data: (&raw mut partition).cast(),
    };
    // SAFETY: both structures are laid out as the kernel has them and live through the call, which only reads them.
    let result = unsafe { libc::ioctl(disk.as_raw_fd(), BLKPG as _, &raw mut arguments) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_file_has_no_partitions() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(add(file.as_fd(), 1, 0, 1 << 20).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
