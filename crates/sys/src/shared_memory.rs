//! Memory that a process shares with the children that it forks.
//!
//! Invariant: only types with interior mutability that other processes may change at any time (atomics) are borrowed from it; plain bytes are copied
//! in and out, or read and written by the kernel.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::memory::{Mapped, Memory};

/// A type that may live in memory which other processes read and write.
///
/// # Safety
/// Every bit pattern is a value, it has no padding, and all access through `&Self` is atomic.
pub unsafe trait Shared: Sync {}

// SAFETY: an atomic integer is its integer, without padding; each access is atomic.
unsafe impl Shared for AtomicU8 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU16 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU64 {}
// SAFETY: as above.
unsafe impl Shared for AtomicI32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicI64 {}
// SAFETY: an array has no padding between its elements.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}

/// A mapping, zero-filled and page-aligned, that children made by [`fork_child`](super::process::fork_child) share.
#[derive(Debug)]
pub struct SharedMemory {
    mapped: Mapped,
    len: usize,
}

// SAFETY: the mapping belongs to this value and everything reachable through `&self` is atomic or copied atomically.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `len` zeroed bytes in an anonymous mapping of base pages. Pages are populated when first touched; see [`SharedMemory::touch`].
    pub fn new(len: usize) -> io::Result<Self> {
        Self::of(Memory::Mmap, len, None)
    }

    /// `len` zeroed bytes of another kind; `file` is the open file on a hugetlbfs that [`Memory::Hugetlbfs`] needs.
    ///
    /// # Errors
    /// The kernel's error: `ENOMEM` (System V: also `ENOSPC`) if not enough huge pages are free, `EINVAL` if there are none of that size.
    pub fn of(memory: Memory, len: usize, file: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        Ok(Self { mapped: Mapped::new(memory, len, file)?, len })
    }

    /// The first `len` bytes of a file, which is extended to that length. Its content outlives every process that has mapped it.
    pub fn of_file(len: usize, file: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { mapped: Mapped::of_file(len, file)?, len })
    }

    /// The mapped addresses up to the end of the last page, as in the kernel's files about this process.
    pub fn addresses(&self) -> Range<u64> {
        let start = self.mapped.base.as_ptr() as u64;
        start..start + self.mapped.len as u64
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at byte `offset`, which must be aligned for it.
    pub fn at<T: Shared>(&self, offset: usize) -> &T {
        &self.slice(offset, 1)[0]
    }

    /// `count` values from byte `offset` on, which must be aligned for them.
    pub fn slice<T: Shared>(&self, offset: usize, count: usize) -> &[T] {
        let bytes = count.checked_mul(size_of::<T>()).expect("length overflows");
        let start = self.range(offset, bytes);
        assert!(start.cast::<T>().is_aligned(), "offset {offset} is not aligned");
        // SAFETY: in range and aligned (asserted); `Shared` promises that any bytes are a value and that access is atomic.
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }

    /// Faults in every page by reading it in this process (a child has its own page table).
    pub fn touch(&self) {
        for offset in (0..self.len).step_by(4096) {
            self.at::<AtomicU8>(offset).load(Ordering::Relaxed);
        }
    }

    /// Copies `bytes` to `offset`; both are multiples of 8 bytes. Each 8-byte word is stored whole; a lock of the caller's must protect the rest.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(bytes.len().is_multiple_of(8), "{} bytes are not whole words", bytes.len());
        let words = self.slice::<AtomicU64>(offset, bytes.len() / 8);
        for (word, bytes) in words.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Copies from `offset` to `bytes`, the inverse of [`SharedMemory::copy_in`].
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        assert!(bytes.len().is_multiple_of(8), "{} bytes are not whole words", bytes.len());
        let words = self.slice::<AtomicU64>(offset, bytes.len() / 8);
        for (word, bytes) in words.iter().zip(bytes.as_chunks_mut::<8>().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    /// `pread` into `range` of this memory; page-aligned ranges are suitable for direct I/O. Returns the bytes read.
    pub fn pread(&self, fd: BorrowedFd<'_>, range: Range<usize>, offset: u64) -> io::Result<usize> {
        let start = self.range(range.start, range.len());
        // SAFETY: the kernel writes within the range (checked); nothing but atomics is ever borrowed from it.
        let n = unsafe { libc::pread(fd.as_raw_fd(), start.cast(), range.len(), offset as i64) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// `pwrite` of `range` of this memory. Returns the bytes written.
    pub fn pwrite(&self, fd: BorrowedFd<'_>, range: Range<usize>, offset: u64) -> io::Result<usize> {
        let start = self.range(range.start, range.len());
        // SAFETY: the kernel reads within the range (checked).
        let n = unsafe { libc::pwrite(fd.as_raw_fd(), start.cast(), range.len(), offset as i64) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    fn range(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.len),
            "{bytes} bytes at {offset} of {}",
            self.len
        );
        // SAFETY: the offset is within the mapping (asserted).
        unsafe { self.mapped.base.as_ptr().add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, fork_child};
    use std::os::fd::AsFd;

    #[test]
    fn a_child_writes_what_the_parent_reads() {
        let memory = SharedMemory::new(8192).unwrap();
        memory.touch();
        let child = fork_child(|| {
            memory.at::<AtomicU64>(8).store(9, Ordering::SeqCst);
            memory.copy_in(4096, b"12345678");
            0
        });
        assert_eq!(child.unwrap().wait().unwrap(), Exit::Status(0));
        assert_eq!(memory.at::<[AtomicU64; 2]>(0)[1].load(Ordering::SeqCst), 9);
        let mut bytes = [0; 8];
        memory.copy_out(4096, &mut bytes);
        assert_eq!(&bytes, b"12345678");
    }

    #[test]
    fn files_are_read_and_written() {
        let file = tempfile::tempfile().unwrap();
        let memory = SharedMemory::new(8192).unwrap();
        memory.copy_in(0, b"abcdefgh");
        assert_eq!(memory.pwrite(file.as_fd(), 0..8, 4).unwrap(), 8);
        assert_eq!(memory.pread(file.as_fd(), 4096..8192, 8).unwrap(), 4);
        assert_eq!(memory.at::<AtomicU8>(4096).load(Ordering::Relaxed), b'e');
    }

    #[test]
    fn what_is_stored_in_a_file_outlives_a_killed_process() {
        let file = tempfile::tempfile().unwrap();
        let memory = SharedMemory::of_file(8192, file.as_fd()).unwrap();
        let child = fork_child(|| {
            memory.at::<AtomicU64>(4096).store(u64::from_ne_bytes(*b"survives"), Ordering::SeqCst);
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
            0
        });
        assert_eq!(child.unwrap().wait().unwrap(), Exit::Signal(9));
        drop(memory);
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 4096).unwrap();
        assert_eq!(&bytes, b"survives");
    }

    #[test]
    #[should_panic(expected = "8 bytes at 4092 of 4096")]
    fn the_end_is_the_end() {
        SharedMemory::new(4096).unwrap().at::<AtomicU64>(4092);
    }

    #[test]
    #[should_panic(expected = "not aligned")]
    fn alignment_is_checked() {
        SharedMemory::new(4096).unwrap().at::<AtomicU64>(4);
    }
}
