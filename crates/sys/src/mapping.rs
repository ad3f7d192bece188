//! Memory mappings for measuring page faults.
//!
//! Invariant: bytes are only read and written one at a time through volatile accesses, so there is never a reference to memory that the kernel may
//! take away or protect.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Bytes of a page on x86-64.
pub const PAGE: usize = 4096;

/// What backs an anonymous mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Zeroed pages private to this process.
    Private,
    /// Pages of a nameless shared-memory file.
    Shared,
}

/// A mapping without populated pages at first. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

impl Mapping {
    /// `len` bytes of zeroes, readable and writable.
    pub fn anonymous(len: usize, sharing: Sharing) -> io::Result<Self> {
        let sharing = match sharing {
            Sharing::Private => libc::MAP_PRIVATE,
            Sharing::Shared => libc::MAP_SHARED,
        };
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS, -1)
    }

    /// The first `len` bytes of a file, shared, for reading. Reading beyond the file's end is a bus error.
    pub fn file(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::map(len, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd())
    }

    fn map(len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice, no existing memory is touched.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned page 0"))?;
        Ok(Self { base, len, writable: protection & libc::PROT_WRITE != 0 })
    }

    /// Disables huge pages, so that each touched page is a separate fault. A kernel without huge pages cannot refuse.
    pub fn no_huge_pages(&self) -> io::Result<()> {
        // SAFETY: advice on this value's own mapping; changes no content.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_NOHUGEPAGE) } {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                e => Err(e),
            },
        }
    }

    /// Makes all pages read-only. The next write to each is a protection fault; see [`WriteFaults`](super::signal::WriteFaults).
    pub fn protect(&self) -> io::Result<()> {
        // SAFETY: this value's own mapping, to which no reference exists.
        match unsafe { libc::mprotect(self.base.as_ptr().cast(), self.len, libc::PROT_READ) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes the byte at `offset`.
    pub fn write(&self, offset: usize, value: u8) {
        assert!(offset < self.len && self.writable, "byte {offset} of {}", self.len);
        // SAFETY: within the mapping, which is writable (asserted) or made so by the handler of the fault; no reference exists.
        unsafe { self.base.as_ptr().add(offset).write_volatile(value) };
    }

    /// Reads the byte at `offset`.
    pub fn read(&self, offset: usize) -> u8 {
        assert!(offset < self.len, "byte {offset} of {}", self.len);
        // SAFETY: within the mapping (asserted), which is readable.
        unsafe { self.base.as_ptr().add(offset).read_volatile() }
    }

    pub(super) fn start(&self) -> usize {
        self.base.as_ptr() as usize
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, to which no reference exists.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn anonymous_memory_is_zero_and_writable() {
        for sharing in [Sharing::Private, Sharing::Shared] {
            let m = Mapping::anonymous(2 * PAGE, sharing).unwrap();
            m.no_huge_pages().unwrap();
            assert_eq!(m.read(PAGE), 0);
            m.write(PAGE, 3);
            assert_eq!(m.read(PAGE), 3);
        }
    }

    #[test]
    fn a_file_is_read_through_its_mapping() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; PAGE]).unwrap();
        let m = Mapping::file(file.as_fd(), PAGE).unwrap();
        assert_eq!(m.read(PAGE - 1), 7);
    }
}
