//! A request as an entry of io_uring's submission queue.
//!
//! Invariant: a buffer or file is named by its place in the kernel's table only if the kernel has been told of it.

use std::os::fd::{AsRawFd, RawFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};

use super::Request;

/// "No such file" in the table of registered files.
const UNREGISTERED: u32 = u32::MAX;

/// A read or write as the kernel has it (struct io_uring_sqe of include/uapi/linux/io_uring.h), in words of 8 bytes: each is stored into
/// the queue once. Entries that were prepared and copied there made cached reads 1 to 2 % dearer, those of the crate's builder more
/// than that; and the fewer stores, the sooner the kernel's first atomic operation has not to wait for them.
#[repr(C)]
struct Sqe {
    /// opcode: 8 bits, flags: 8, ioprio: 16, fd: 32.
    what: u64,
    off: u64,
    addr: u64,
    /// len: 32 bits, rw_flags: 32.
    how: u64,
    user_data: u64,
    /// buf_index: 16 bits, personality: 16, splice_fd_in: 32.
    buffer: u64,
    reserved: [u64; 2],
}

impl From<Sqe> for Entry {
    #[inline]
    fn from(sqe: Sqe) -> Self {
        // SAFETY: both are the same struct of the kernel's, of integers only (the crate's is `repr(C)` around its own binding of it).
        unsafe { std::mem::transmute(sqe) }
    }
}

/// What the kernel has been told of beforehand.
#[derive(Default)]
pub(super) struct Registered {
    /// Buffers in each piece that the kernel knows; `None`: it knows of none.
    pub(super) buffers: Option<usize>,
    /// By file descriptor: its index among the registered files.
    files: Vec<u32>,
}

impl Registered {
    /// The kernel knows these files, by their places here.
    pub(super) fn know(&mut self, descriptors: &[RawFd]) {
        let last = descriptors.iter().copied().max().unwrap_or(0);
        self.files = vec![UNREGISTERED; last as usize + 1];
        for (index, fd) in descriptors.iter().enumerate() {
            self.files[*fd as usize] = index as u32;
        }
    }

    pub(super) fn knows_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// What names a file in an entry.
    #[inline]
    pub(super) fn file(&self, fd: RawFd) -> Result<types::Fixed, types::Fd> {
        match self.files.get(fd as usize) {
            Some(index) if *index != UNREGISTERED => Ok(types::Fixed(*index)),
            _ => Err(types::Fd(fd)),
        }
    }

    /// Which piece a slot's buffer is in. Nearly always there is one, and a division is slow.
    #[inline]
    fn piece(&self, slot: usize) -> u16 {
        match self.buffers {
            Some(each) if slot >= each => (slot / each) as u16,
            _ => 0,
        }
    }

    /// The request as an entry of the submission queue.
    #[inline]
    pub(super) fn entry(&self, r: &Request<'_>, buf: *mut u8) -> Entry {
        let (fd, flags) = match self.file(r.fd.as_raw_fd()) {
            Ok(types::Fixed(index)) => (index as i32, Flags::FIXED_FILE),
            Err(types::Fd(fd)) => (fd, Flags::empty()),
        };
        let opcode = match (r.write, self.buffers.is_some()) {
            (false, false) => opcode::Read::CODE,
            (false, true) => opcode::ReadFixed::CODE,
            (true, false) => opcode::Write::CODE,
            (true, true) => opcode::WriteFixed::CODE,
        };
        let rw_flags = if r.write && r.dsync { libc::RWF_DSYNC } else { 0 };
        Entry::from(Sqe {
            what: u64::from(opcode) | u64::from(flags.bits()) << 8 | u64::from(fd as u32) << 32,
            off: r.offset,
            addr: buf as u64,
            how: r.len as u32 as u64 | u64::from(rw_flags as u32) << 32,
            user_data: r.slot as u64,
            buffer: self.piece(r.slot).into(),
            reserved: [0; 2],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_in_the_piece_that_holds_its_buffer() {
        let of = |buffers| [0, 2, 3, 5, 6].map(|slot| Registered { buffers, files: Vec::new() }.piece(slot));
        assert_eq!(of(Some(3)), [0, 0, 1, 1, 2]);
        assert_eq!(of(Some(7)), [0; 5]);
        assert_eq!(of(None), [0; 5]);
    }
}
