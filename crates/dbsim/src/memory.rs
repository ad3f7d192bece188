//! The memory of the buffer cache: of the kind that the job requires, confirmed by the kernel.
//!
//! Invariant: pages of another size than requested are an error, never an unexplained slower or faster run.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, UnmountFlags};

use bigiron_sys::memory::{Memory, PageSize};
use bigiron_sys::segment::Segment;
use bigiron_sys::shared_memory::SharedMemory;

use super::guard::Guard;
use super::huge_pages::{Permission, Refused, Reserved};

const SHMEM_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// A segment of the requested kind, and the huge pages behind it.
pub struct CacheMemory {
    // In this order: the pages are returned when nothing uses them any more.
    segment: Segment,
    memory: Memory,
    reserved: Option<Reserved>,
    _advised: Option<Advised>,
}

/// What the kernel shows of the mapping to this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Page size of the mapping, in bytes.
    pub page: u64,
    /// Bytes touched by this process.
    pub resident: u64,
    /// Bytes of these that are mapped by huge pages.
    pub huge: u64,
}

impl CacheMemory {
    /// At least `bytes` bytes of `memory`.
    ///
    /// # Errors
    /// [`Refused`] if the machine has no such memory; the message says what would be right.
    pub fn new(memory: Memory, bytes: usize, permission: Permission) -> Result<Self> {
        let mut reserved = match memory.reserved_page() {
            Some(page) => Some(Reserved::new(page, bytes as u64, permission)?),
            None => None,
        };
        let advised = match memory {
            Memory::Thp => Advised::new(Path::new(SHMEM_ENABLED), permission)?,
            _ => None,
        };
        let file = match memory {
            Memory::Hugetlbfs(page) => Some(hugetlbfs_file(page, permission)?),
            _ => None,
        };
        let shared = SharedMemory::of(memory, bytes, file.as_ref().map(File::as_fd)).map_err(|e| explain(e, memory))?;
        if let Some(reserved) = &mut reserved {
            reserved.taken();
        }
        let made = Self { segment: Segment::of(shared), memory, reserved, _advised: advised };
        made.mapped()?;
        Ok(made)
    }

    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// What the kernel shows now, which must match the request. Transparent huge pages show only once pages have been touched.
    pub fn mapped(&self) -> Result<Mapped> {
        let smaps = fs::read_to_string("/proc/self/smaps").context("Cannot read /proc/self/smaps")?;
        let mapped = Mapped::read(&smaps, &self.segment.memory().addresses())?;
        let page = self.memory.page();
        let found = match self.memory {
            Memory::Mmap | Memory::Sysv if mapped.huge > 0 => format!("{} bytes of it are in huge pages", mapped.huge),
            Memory::Thp if mapped.resident > 0 && mapped.huge == 0 => {
                "the kernel gave only base pages; memory may be fragmented (`echo 1 > /proc/sys/vm/compact_memory`)"
                    .to_owned()
            }
            Memory::Huge(_) | Memory::SysvHuge(_) | Memory::Hugetlbfs(_) if mapped.page != page => {
                format!("the kernel shows {} pages", PageSize(mapped.page))
            }
            _ => return Ok(mapped),
        };
        Err(Refused::NotAsAsked { page, found }.into())
    }

    /// Bytes mapped by one page-table entry, provided that the kernel satisfied the request.
    pub fn entry_bytes(&self) -> Result<u64> {
        let mapped = self.mapped()?;
        Ok(if mapped.huge > 0 { self.memory.page() } else { mapped.page })
    }

    /// Facts for the record; must be called when the cache has been filled.
    pub fn facts(&self) -> Result<Vec<(String, String)>> {
        let mapped = self.mapped()?;
        let added = self.reserved.as_ref().map_or(0, Reserved::added);
        Ok([
            ("cache-memory", self.memory.to_string()),
            ("cache-page-bytes", self.entry_bytes()?.to_string()),
            ("cache-resident-bytes", mapped.resident.to_string()),
            ("cache-huge-bytes", mapped.huge.to_string()),
            ("huge-pages-added-for-the-run", added.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }
}

impl Mapped {
    /// The mappings within `addresses`, from /proc/PID/smaps (Documentation/filesystems/proc.rst).
    fn read(smaps: &str, addresses: &Range<u64>) -> Result<Self> {
        let (mut all, mut inside, mut found) = (Self::default(), false, false);
        for line in smaps.lines() {
            if let Some(range) = mapping(line) {
                inside = range.start < addresses.end && addresses.start < range.end;
                found |= inside;
            } else if let (true, Some((name, value))) = (inside, line.split_once(':')) {
                let bytes = || value.trim().strip_suffix(" kB").and_then(|n| n.parse::<u64>().ok()).map(|n| n << 10);
                match name {
                    "KernelPageSize" => all.page = bytes().context("KernelPageSize is not a size")?,
                    "Rss" => all.resident += bytes().context("Rss is not a size")?,
                    "ShmemPmdMapped" => all.huge += bytes().context("ShmemPmdMapped is not a size")?,
                    // Rss does not include hugetlb pages.
                    "Shared_Hugetlb" | "Private_Hugetlb" => {
                        let bytes = bytes().with_context(|| format!("{name} is not a size"))?;
                        all.huge += bytes;
                        all.resident += bytes;
                    }
                    _ => {}
                }
            }
        }
        anyhow::ensure!(found, "The cache is not in /proc/self/smaps");
        Ok(all)
    }
}

/// The addresses on a line that begins a mapping.
fn mapping(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(hex(start)?..hex(end)?)
}

/// The machine's setting whether `MADV_HUGEPAGE` affects shared memory, changed for the run.
struct Advised {
    path: PathBuf,
    before: String,
    guard: Option<Guard>,
}

impl Advised {
    /// Makes it effective, if `permission` allows; `None` if it already is.
    fn new(path: &Path, permission: Permission) -> Result<Option<Self>> {
        let text = fs::read_to_string(path).unwrap_or_else(|_| "[nothing]".to_owned());
        let chosen =
            text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("nothing", |(word, _)| word);
        if matches!(chosen, "advise" | "always" | "within_size" | "force") {
            return Ok(None);
        }
        let refused = Refused::NoThp { path: path.display().to_string(), found: chosen.to_owned() };
        if permission == Permission::MustExist || chosen == "nothing" {
            return Err(refused.into());
        }
        let before = chosen.to_owned();
        let undo = |_| fs::write(path, &before).context("Cannot restore the setting of transparent huge pages");
        let guard = Guard::start(undo).context("Cannot start the guard of the machine's settings")?;
        fs::write(path, "advise").context(refused)?;
        guard.changed()?;
        Ok(Some(Self { path: path.to_owned(), before, guard: Some(guard) }))
    }
}

impl Drop for Advised {
    fn drop(&mut self) {
        if let Err(e) = fs::write(&self.path, &self.before) {
            eprintln!("{} was `{}` and stays `advise`: {e}", self.path.display(), self.before);
        }
        if let Some(Err(e)) = self.guard.take().map(Guard::dismiss) {
            eprintln!("{e:#}");
        }
    }
}

/// An unnamed file on a hugetlbfs with such pages: one that is mounted, or one mounted temporarily.
fn hugetlbfs_file(page: u64, permission: Permission) -> Result<File> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("Cannot read /proc/self/mounts")?;
    // The page size is the file system's block size.
    let fits = |dir: &PathBuf| rustix::fs::statfs(dir).is_ok_and(|s| s.f_bsize as u64 == page);
    let nameless =
        |dir: &Path| tempfile::tempfile_in(dir).with_context(|| format!("Cannot create a file in {}", dir.display()));
    if let Some(dir) = hugetlbfs_mounts(&mounts).find(fits) {
        return nameless(&dir);
    }
    if permission == Permission::MustExist {
        return Err(Refused::NotMounted { page }.into());
    }
    let dir = tempfile::tempdir().context("Cannot create a directory to mount a hugetlbfs on")?;
    let options = std::ffi::CString::new(format!("pagesize={}", PageSize(page)))?;
    rustix::mount::mount("none", dir.path(), "hugetlbfs", MountFlags::empty(), Some(options.as_c_str()))
        .with_context(|| format!("Cannot mount a hugetlbfs of {} pages", PageSize(page)))?;
    let file = nameless(dir.path());
    // The open file keeps the file system; the mount point is released at once, so that nothing is left to clean up.
    rustix::mount::unmount(dir.path(), UnmountFlags::DETACH).context("Cannot unmount the hugetlbfs")?;
    file
}

fn hugetlbfs_mounts(mounts: &str) -> impl Iterator<Item = PathBuf> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let dir = fields.nth(1)?;
        // Blanks and similar characters in a directory's name are written in octal (getmntent(3)).
        (fields.next()? == "hugetlbfs").then(|| PathBuf::from(dir.replace("\\040", " ").replace("\\011", "\t")))
    })
}

fn explain(error: io::Error, memory: Memory) -> anyhow::Error {
    let hint = match (error.raw_os_error(), memory) {
        (Some(libc::ENOMEM | libc::ENOSPC), m) if m.reserved_page().is_some() => {
            "; another process took the free huge pages, or they belong to another NUMA node"
        }
        (Some(libc::EPERM), Memory::SysvHuge(_)) => "; this needs CAP_IPC_LOCK, or the group in `vm.hugetlb_shm_group`",
        (Some(libc::EINVAL | libc::ENOSPC), Memory::Sysv | Memory::SysvHuge(_)) => {
            "; `kernel.shmmax`, `kernel.shmall` or `kernel.shmmni` may be too small"
        }
        (Some(libc::EINVAL), Memory::Thp) => {
            "; this kernel has no transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)"
        }
        _ => "",
    };
    anyhow::Error::new(error).context(format!("Cannot get the cache's memory, {memory}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_workload::testing::skipped;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use bigiron_sys::process::{Exit, fork_child};

    const MIB: usize = 1 << 20;

    /// Memory of that kind, or `None` if this machine has none, which the job must report.
    fn try_new(memory: Memory, bytes: usize) -> Option<CacheMemory> {
        match CacheMemory::new(memory, bytes, Permission::of_this_machine()) {
            Ok(made) => Some(made),
            Err(e) => {
                let refused = e.downcast_ref::<Refused>().unwrap_or_else(|| panic!("{e:#}"));
                skipped(memory, refused);
                None
            }
        }
    }

    #[test]
    fn every_kind_is_zero_shared_and_what_it_says() {
        let huge = 2 * MIB as u64;
        let kinds = [Memory::Huge(huge), Memory::SysvHuge(huge), Memory::Hugetlbfs(huge), Memory::Thp];
        for memory in [Memory::Mmap, Memory::Sysv].into_iter().chain(kinds) {
            let Some(made) = try_new(memory, 5 * MIB) else { continue };
            let words = made.segment().many::<AtomicU64>(5 * MIB / 8 - 8);
            assert!(words.iter().step_by(64).all(|w| w.load(SeqCst) == 0));
            let child = fork_child(|| {
                words[MIB / 8].store(7, SeqCst);
                0
            });
            assert_eq!(child.unwrap().wait().unwrap(), Exit::Status(0));
            assert_eq!(words[MIB / 8].load(SeqCst), 7, "{memory:?}");
            let mapped = made.mapped().unwrap();
            assert!(mapped.resident >= 5 * MIB as u64, "{memory:?} {mapped:?}");
            if memory.reserved_page().is_some() {
                assert_eq!((mapped.page, mapped.huge), (huge, 6 * MIB as u64), "{memory:?}");
            } else {
                assert_eq!((mapped.page, mapped.huge > 0), (4096, memory == Memory::Thp), "{memory:?}");
            }
            assert_eq!(made.facts().unwrap()[0].1, memory.to_string());
        }
    }

    #[test]
    fn the_kernel_s_accounts_are_read() {
        let smaps = "\
7f00-7f20 rw-s 00000000 00:01 1  /dev/zero (deleted)
Size:                  8 kB
KernelPageSize:        4 kB
Rss:                   8 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr sh
8000-9000 rw-s 00000000 00:0f 12 /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Rss:                   0 kB
ShmemPmdMapped:        0 kB
Shared_Hugetlb:     4096 kB
Private_Hugetlb:    2048 kB
";
        let read = |range: Range<u64>| Mapped::read(smaps, &range);
        assert_eq!(read(0x7f00..0x7f20).unwrap(), Mapped { page: 4096, resident: 8192, huge: 0 });
        let six = 6 << 20;
        assert_eq!(read(0x8000..0x9000).unwrap(), Mapped { page: 2 << 20, resident: six, huge: six });
        assert!(read(0x1000..0x2000).is_err());
        let mounts = "none /a\\040b hugetlbfs rw,pagesize=2M 0 0\nproc /proc proc rw 0 0\n";
        assert_eq!(hugetlbfs_mounts(mounts).collect::<Vec<_>>(), [PathBuf::from("/a b")]);
    }

    #[test]
    fn transparent_huge_pages_have_to_be_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shmem_enabled");
        let with = |text: &str, permission| {
            fs::write(&path, text).unwrap();
            Advised::new(&path, permission)
        };
        assert!(with("always within_size [advise] never deny force\n", Permission::MustExist).unwrap().is_none());
        let error = with("always within_size advise [never] deny force\n", Permission::MustExist).err().unwrap();
        assert!(error.to_string().contains("says `never`; it must say `advise` or `always`"), "{error}");
        let changed = with("always within_size advise [never] deny force\n", Permission::MayChange).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "advise");
        drop(changed);
        assert_eq!(fs::read_to_string(&path).unwrap(), "never");
    }
}
