//! A request as an entry of io_uring's submission queue.
//!
//! Invariant: a buffer or file is named by its index in the kernel's table only if it was registered.

use std::hint::cold_path;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};

use super::Request;

/// A read or write in the kernel's layout (struct io_uring_sqe of include/uapi/linux/io_uring.h), in words of 8 bytes: each is stored into the queue
/// once. Building entries elsewhere and copying them made cached reads 1 to 2 % slower, and the crate's builder cost even more. Fewer stores also
/// mean that the kernel's first atomic operation waits less for them.
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

/// What was registered with the kernel.
pub(super) struct Registered {
    /// Opcodes for reading and for writing.
    opcodes: [u8; 2],
    /// Buffers in each registered piece.
    each: usize,
    /// By file descriptor: the file's representation in an entry's first word.
    files: Vec<u64>,
}

impl Default for Registered {
    fn default() -> Self {
        Self { opcodes: [opcode::Read::CODE, opcode::Write::CODE], each: usize::MAX, files: Vec::new() }
    }
}

/// A file's representation in an entry's first word.
fn named(fd: u32, flags: Flags) -> u64 {
    u64::from(fd) << 32 | u64::from(flags.bits()) << 8
}

impl Registered {
    /// Notes that all buffers are registered, in pieces of `each` buffers.
    pub(super) fn know_buffers(&mut self, each: usize) {
        *self = Self { opcodes: [opcode::ReadFixed::CODE, opcode::WriteFixed::CODE], each, ..std::mem::take(self) };
    }

    pub(super) fn knows_buffers(&self) -> bool {
        self.opcodes[0] == opcode::ReadFixed::CODE
    }

    /// Notes that these files are registered, under their indices here.
    pub(super) fn know_files(&mut self, descriptors: &[RawFd]) {
        let last = descriptors.iter().copied().max().unwrap_or(0);
        self.files = (0..=last as u32).map(|fd| named(fd, Flags::empty())).collect();
        for (index, fd) in descriptors.iter().enumerate() {
            self.files[*fd as usize] = named(index as u32, Flags::FIXED_FILE);
        }
    }

    pub(super) fn knows_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// The representation of a file in an entry's first word.
    #[inline]
    fn file(&self, fd: RawFd) -> u64 {
        self.files.get(fd as usize).copied().unwrap_or_else(|| named(fd as u32, Flags::empty()))
    }

    /// The piece that contains a slot's buffer. Nearly always there is only one, and a division is slow.
    #[inline]
    fn piece(&self, slot: usize) -> u64 {
        if slot < self.each {
            return 0;
        }
        cold_path();
        (slot / self.each) as u64
    }

    /// The request as an entry of the submission queue.
    #[inline(always)]
    pub(super) fn entry(&self, r: &Request<'_>, buf: *mut u8) -> Entry {
        Entry::from(Sqe {
            what: self.file(r.fd.as_raw_fd()) | u64::from(self.opcodes[usize::from(r.write)]),
            off: r.offset,
            addr: buf as u64,
            how: u64::from(r.len as u32) | (r.flags() as u64) << 32,
            user_data: r.slot as u64,
            buffer: self.piece(r.slot),
            reserved: [0; 2],
        })
    }

    /// A sync of the file's data as an entry.
    pub(super) fn sync(&self, fd: RawFd, user_data: u64) -> Entry {
        // The fsync_flags take the place of a read's rw_flags.
        let datasync = u64::from(types::FsyncFlags::DATASYNC.bits());
        Entry::from(Sqe {
            what: self.file(fd) | u64::from(opcode::Fsync::CODE),
            off: 0,
            addr: 0,
            how: datasync << 32,
            user_data,
            buffer: 0,
            reserved: [0; 2],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_in_the_piece_that_holds_its_buffer() {
        let mut known = Registered::default();
        let mut of = |each: Option<usize>| {
            each.into_iter().for_each(|each| known.know_buffers(each));
            [0, 2, 3, 5, 6].map(|slot| known.piece(slot))
        };
        assert_eq!(of(None), [0; 5]);
        assert_eq!(of(Some(3)), [0, 0, 1, 1, 2]);
        assert_eq!(of(Some(7)), [0; 5]);
    }
}
