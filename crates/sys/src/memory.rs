//! Kinds of memory that processes can share, and how each is obtained from the kernel.
//!
//! Invariant: nothing outlives the processes that have it mapped, however they end: no name, no key and no file is left behind, except a file that
//! the caller provides and keeps.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Bytes of a base page on x86-64.
pub const BASE_PAGE: u64 = 4096;
/// Bytes of a transparent huge page on x86-64: the memory mapped by one entry of the second level of the page table.
pub const PMD_PAGE: u64 = 2 << 20;

/// The kind of memory of a shared segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Anonymous shared mapping of base pages.
    Mmap,
    /// An anonymous shared mapping with `MADV_HUGEPAGE`.
    Thp,
    /// System V shared memory of base pages.
    Sysv,
    /// Reserved huge pages of this many bytes, by `mmap(MAP_HUGETLB)`.
    Huge(u64),
    /// Reserved huge pages by `shmget(SHM_HUGETLB)`.
    SysvHuge(u64),
    /// A file on a mounted hugetlbfs with pages of this many bytes.
    Hugetlbfs(u64),
}

impl Memory {
    /// The size of the pages that the kernel must reserve in advance, if any.
    pub fn reserved_page(self) -> Option<u64> {
        match self {
            Memory::Mmap | Memory::Thp | Memory::Sysv => None,
            Memory::Huge(page) | Memory::SysvHuge(page) | Memory::Hugetlbfs(page) => Some(page),
        }
    }

    /// The bytes that one page table entry is meant to map.
    pub fn page(self) -> u64 {
        match self {
            Memory::Mmap | Memory::Sysv => BASE_PAGE,
            Memory::Thp => PMD_PAGE,
            Memory::Huge(page) | Memory::SysvHuge(page) | Memory::Hugetlbfs(page) => page,
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Mmap => f.write_str("anonymous shared mapping of 4K pages"),
            Memory::Thp => f.write_str("anonymous shared mapping with transparent huge pages"),
            Memory::Sysv => f.write_str("System V shared memory of 4K pages"),
            Memory::Huge(page) => write!(f, "anonymous shared mapping of {} huge pages", PageSize(*page)),
            Memory::SysvHuge(page) => write!(f, "System V shared memory of {} huge pages", PageSize(*page)),
            Memory::Hugetlbfs(page) => write!(f, "file on a hugetlbfs of {} pages", PageSize(*page)),
        }
    }
}

/// A page size as people write it, such as `2M`.
pub struct PageSize(pub u64);

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b if b >= 1 << 30 && b.is_multiple_of(1 << 30) => write!(f, "{}G", b >> 30),
            b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => write!(f, "{}M", b >> 20),
            b => write!(f, "{}K", b >> 10),
        }
    }
}

/// A mapping obtained from the kernel.
#[derive(Debug)]
pub(super) struct Mapped {
    pub base: NonNull<u8>,
    pub len: usize,
    /// Attached by `shmat`, so it must be detached by `shmdt`.
    attached: bool,
}

impl Mapped {
    /// At least `len` zeroed bytes of `memory`, readable and writable, rounded up to whole pages. `file` is the file on a hugetlbfs, whose length is
    /// set; the other kinds need none.
    ///
    /// # Errors
    /// The kernel's error: `ENOMEM` (for `shmget` also `ENOSPC`) if not enough huge pages are free, `EINVAL` if there are none of that size.
    pub fn new(memory: Memory, len: usize, file: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let len = len.next_multiple_of(memory.page() as usize);
        let mapped = match memory {
            Memory::Mmap => Self::anonymous(len, 0)?,
            Memory::Thp => Self::aligned(len)?,
            Memory::Sysv => Self::attach(len, 0)?,
            Memory::Huge(page) => Self::anonymous(len, libc::MAP_HUGETLB | size_flag(page, libc::MAP_HUGE_SHIFT))?,
            Memory::SysvHuge(page) => Self::attach(len, libc::SHM_HUGETLB | size_flag(page, libc::MAP_HUGE_SHIFT))?,
            Memory::Hugetlbfs(_) => Self::file(len, file.ok_or(io::ErrorKind::InvalidInput)?)?,
        };
        match memory {
            // A machine may be configured to use huge pages wherever possible, which was not requested here.
            Memory::Mmap | Memory::Sysv => match mapped.advise(libc::MADV_NOHUGEPAGE) {
                // A kernel without transparent huge pages cannot refuse.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                other => other?,
            },
            Memory::Thp => mapped.advise(libc::MADV_HUGEPAGE)?,
            _ => {}
        }
        Ok(mapped)
    }

    fn anonymous(len: usize, flags: i32) -> io::Result<Self> {
        Self::map(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_ANONYMOUS, -1)
    }

    /// The first `len` bytes of a file that outlives its mappings; the file is extended to that length.
    pub fn of_file(len: usize, file: BorrowedFd<'_>) -> io::Result<Self> {
        rustix::fs::ftruncate(file, len as u64)?;
        Self::map(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, 0, file.as_raw_fd())
    }

    fn file(len: usize, file: BorrowedFd<'_>) -> io::Result<Self> {
        rustix::fs::ftruncate(file, len as u64)?;
        Self::map(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, 0, file.as_raw_fd())
    }

    fn map(at: *mut libc::c_void, len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice, or (`aligned`) over one of our own that nothing refers to.
        let base = unsafe { libc::mmap(at, len, protection, flags | libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned page 0"))?;
        Ok(Self { base, len, attached: false })
    }

    /// An anonymous mapping aligned to a huge page: otherwise the kernel could not use huge pages at its edges.
    fn aligned(len: usize) -> io::Result<Self> {
        let page = PMD_PAGE as usize;
        let mut room = Self::map(std::ptr::null_mut(), len + page, libc::PROT_NONE, libc::MAP_ANONYMOUS, -1)?;
        let start = room.base.as_ptr();
        let before = start.align_offset(page);
        // SAFETY: `before` is less than a page and the room is a page longer than `len`.
        let base = unsafe { start.add(before) };
        let flags = libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let mapped = Self::map(base.cast(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        // From here on `room` is the part before the new mapping, and the part behind it is unmapped.
        room.len = before;
        // SAFETY: within the room (see above).
        let behind = unsafe { base.add(len) };
        let rest = page - before;
        // SAFETY: our own mapping, to which nothing refers.
        unsafe { libc::munmap(behind.cast(), rest) };
        Ok(mapped)
    }

    fn attach(len: usize, flags: i32) -> io::Result<Self> {
        // SAFETY: makes a new segment, no existing memory is touched.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, len, flags | libc::IPC_CREAT | 0o600) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: attaches the new segment at an address of the kernel's choice.
        let base = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        let attached = if base as isize == -1 { Err(io::Error::last_os_error()) } else { Ok(base) };
        // Removed at once: it lives only while a process has it attached, even after SIGKILL.
        // SAFETY: the segment made above; IPC_RMID takes no buffer.
        if unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(attached?.cast()).ok_or_else(|| io::Error::other("shmat returned page 0"))?;
        Ok(Self { base, len, attached: true })
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: advice on this value's own mapping; changes no content.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        if self.attached {
            // SAFETY: attached in `attach`; every borrow of it has ended.
            unsafe { libc::shmdt(self.base.as_ptr().cast()) };
        } else {
            // SAFETY: mapped in `map`; every borrow of it has ended.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

/// The page's size in the format of mmap and shmget: its binary logarithm, shifted.
fn size_flag(page: u64, shift: i32) -> i32 {
    (page.trailing_zeros() as i32) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_described() {
        assert_eq!(Memory::Huge(2 << 20).to_string(), "anonymous shared mapping of 2M huge pages");
        assert_eq!(Memory::SysvHuge(1 << 30).to_string(), "System V shared memory of 1G huge pages");
        assert_eq!(PageSize(64 << 10).to_string(), "64K");
    }

    #[test]
    fn a_mapping_for_huge_pages_begins_at_one() {
        for _ in 0..3 {
            let mapped = Mapped::aligned(5 << 20).unwrap();
            assert_eq!(mapped.base.as_ptr() as usize % PMD_PAGE as usize, 0);
        }
    }

    #[test]
    fn a_system_v_segment_is_removed_when_it_is_attached() {
        let ours = || {
            let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
            let pid = std::process::id().to_string();
            // Columns: key, shmid, perms, size, cpid (the creator), …
            table.lines().filter(|l| l.split_whitespace().nth(4) == Some(&pid)).map(str::to_owned).collect::<Vec<_>>()
        };
        let mapped = Mapped::new(Memory::Sysv, 3 * 1234 * 4096, None).unwrap();
        let segment = ours().into_iter().find(|l| l.contains(" 15163392 ")).expect("is attached");
        // The third column: 1000 (SHM_DEST) shows that the segment disappears when the last process detaches.
        assert_eq!(segment.split_whitespace().nth(2), Some("1600"), "{segment}");
        drop(mapped);
        // A process that another test forks at this moment inherits the segment and keeps it until it ends.
        let start = std::time::Instant::now();
        while ours().iter().any(|l| l.contains(" 15163392 ")) {
            assert!(start.elapsed() < std::time::Duration::from_secs(300), "the segment is still there");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
