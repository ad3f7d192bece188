//! The machine's pool of huge pages, and its extension for one run.
//!
//! Invariant: exactly the added pages are removed again: when the run is over, however it ends; if this process is killed, by a
//! process that only waits for that.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use rustix::fs::FlockOperation;
use thiserror::Error;

use bigiron_sys::memory::PageSize;

use super::guard::Guard;

/// Whether the machine's settings may be changed for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Yes, and they are restored: this is a bigiron guest, or the user has agreed.
    MayChange,
    /// No: the pages that the job requires must exist.
    MustExist,
}

impl Permission {
    /// Yes on a machine whose first process is this executable (a bigiron guest), and if the user has set
    /// `BIGIRON_RESERVE_HUGE_PAGES`.
    pub fn of_this_machine() -> Self {
        if std::env::var_os("BIGIRON_RESERVE_HUGE_PAGES").is_some() {
            return Permission::MayChange;
        }
        let executable = |process: &str| fs::read_link(format!("/proc/{process}/exe")).ok();
        match (executable("1"), executable("self")) {
            (Some(first), Some(own)) if first == own => Permission::MayChange,
            _ => Permission::MustExist,
        }
    }
}

/// The kind of memory that the job requires is not available.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refused {
    #[error("This kernel has no huge pages of {}; {sizes}", PageSize(*page))]
    NoSuchSize { page: u64, sizes: String },
    #[error(
        "Huge pages of {}: {needed} needed, {free} free; reserve them with {how}, or set BIGIRON_RESERVE_HUGE_PAGES to have it \
         done for the run",
        PageSize(*page)
    )]
    TooFew { page: u64, needed: u64, free: u64, how: String },
    #[error(
        "Only {given} of {needed} huge pages of {} could be reserved, memory is short or fragmented; reserve them with {how}",
        PageSize(*page)
    )]
    Short { page: u64, needed: u64, given: u64, how: String },
    #[error("No hugetlbfs of {0} pages is mounted; mount one with `mount -t hugetlbfs -o pagesize={0} none DIRECTORY`", PageSize(*page))]
    NotMounted { page: u64 },
    #[error("Shared memory gets no transparent huge pages: `{path}` says `{found}`; it must say `advise` or `always`")]
    NoThp { path: String, found: String },
    #[error("The cache should be in {} pages, but {found}", PageSize(*page))]
    NotAsAsked { page: u64, found: String },
}

const POOLS: &str = "/sys/kernel/mm/hugepages";

/// The pool of huge pages of one size.
#[derive(Clone, Debug)]
struct Pool {
    dir: PathBuf,
    page: u64,
}

impl Pool {
    /// The pool of pages of this many bytes under `pools`, which is /sys/kernel/mm/hugepages.
    fn find(pools: &Path, page: u64) -> Result<Self, Refused> {
        let name = |page: u64| format!("hugepages-{}kB", page >> 10);
        let dir = pools.join(name(page));
        if dir.is_dir() {
            return Ok(Self { dir, page });
        }
        let entries = fs::read_dir(pools).into_iter().flatten().flatten();
        let size = |name: String| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
        let mut kib: Vec<_> = entries.filter_map(|e| size(e.file_name().into_string().ok()?)).collect();
        kib.sort_unstable();
        let sizes = match &kib[..] {
            [] => "it has none".to_owned(),
            _ => format!("it has {}", kib.iter().map(|k| PageSize(k << 10).to_string()).collect::<Vec<_>>().join(", ")),
        };
        Err(Refused::NoSuchSize { page, sizes })
    }

    fn read(&self, file: &str) -> Result<u64> {
        let path = self.dir.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))?;
        text.trim().parse().with_context(|| format!("{} is not a number: `{}`", path.display(), text.trim()))
    }

    /// Pages that are neither in use nor reserved for a mapping.
    fn free(&self) -> Result<u64> {
        Ok(self.read("free_hugepages")?.saturating_sub(self.read("resv_hugepages")?))
    }

    /// Permanent pages. `nr_hugepages` also counts surplus pages, which stay only until they are no longer used, because the pool
    /// was lowered meanwhile.
    fn persistent(&self) -> Result<u64> {
        Ok(self.read("nr_hugepages")?.saturating_sub(self.read("surplus_hugepages")?))
    }

    fn set(&self, pages: u64) -> Result<()> {
        let path = self.dir.join("nr_hugepages");
        fs::write(&path, format!("{pages}\n")).with_context(|| format!("Cannot write {}", path.display()))
    }

    /// Removes `added` pages again, relative to the present number: another run may have added pages meanwhile. Must be called
    /// with the lock held.
    fn lower(&self, added: u64) -> Result<()> {
        self.set(self.persistent()?.saturating_sub(added))
    }

    /// Keeps other runs from changing the pool, and from taking free pages that this run has found.
    fn lock(&self) -> Result<Lock> {
        let file = File::open(self.dir.join("nr_hugepages")).context("Cannot open nr_hugepages")?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).context("Cannot lock nr_hugepages")?;
        Ok(Lock(file))
    }

    /// How a user would reserve `pages` in total.
    fn how(&self, pages: u64) -> String {
        let default = fs::read_to_string("/proc/meminfo").is_ok_and(|text| {
            let line = text.lines().find_map(|l| l.strip_prefix("Hugepagesize:"));
            line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<u64>().ok()) == Some(self.page >> 10)
        });
        if default {
            format!("`sysctl vm.nr_hugepages={pages}`, or boot with `boot.hugepages={pages}`")
        } else {
            let (dir, size) = (self.dir.display(), PageSize(self.page));
            format!("`echo {pages} > {dir}/nr_hugepages`, or boot with `hugepagesz={size} hugepages={pages}`")
        }
    }
}

/// A pool's lock. Processes forked meanwhile share it, so closing the file would not be enough.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    fn release(&self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.release();
    }
}

/// Huge pages available to a run. Those added for it are removed when this is dropped.
#[derive(Debug)]
pub struct Reserved {
    pool: Pool,
    added: u64,
    guard: Option<Guard>,
    /// Held until the pages are taken.
    lock: Option<Lock>,
}

impl Reserved {
    /// Ensures that `bytes` of huge pages of `page` bytes are free, extending the machine's pool if `permission` allows.
    ///
    /// # Errors
    /// [`Refused`], which says how the user can reserve them.
    pub fn new(page: u64, bytes: u64, permission: Permission) -> Result<Self> {
        Self::of(Path::new(POOLS), page, bytes, permission)
    }

    fn of(pools: &Path, page: u64, bytes: u64, permission: Permission) -> Result<Self> {
        let pool = Pool::find(pools, page)?;
        let lock = pool.lock()?;
        let (needed, free, before) = (bytes.div_ceil(page), pool.free()?, pool.persistent()?);
        // Surplus pages in use become permanent first, before any new page is added.
        let added = if needed > free { needed - free + pool.read("surplus_hugepages")? } else { 0 };
        let how = pool.how(before + added);
        if added == 0 {
            return Ok(Self { pool, added, guard: None, lock: Some(lock) });
        }
        if permission == Permission::MustExist {
            return Err(Refused::TooFew { page, needed, free, how }.into());
        }
        let undo = |raised: bool| {
            // The lock of a killed process survives in this one.
            lock.release();
            let _held = pool.lock()?;
            // Killed before it could report: then the pool itself shows whether it was raised.
            if raised || pool.persistent()? >= before + added { pool.lower(added) } else { Ok(()) }
        };
        let guard = Guard::start(undo).context("Cannot start the guard of the huge pages")?;
        // From here on, dropping it removes the added pages, even if they are fewer than requested.
        let mut reserved = Self { pool, added: 0, guard: Some(guard), lock: Some(lock) };
        let raised = reserved.pool.set(before + added);
        reserved.added = reserved.pool.persistent()?.saturating_sub(before);
        if raised.is_err() || reserved.added < added {
            let given = free + reserved.added;
            return Err(Refused::Short { page, needed, given, how }).context(match raised {
                Err(e) => format!("{e:#}"),
                Ok(()) => "The kernel was asked for huge pages".to_owned(),
            });
        }
        if let Some(guard) = &reserved.guard {
            guard.changed()?;
        }
        Ok(reserved)
    }

    /// The pages are mapped: from now on nobody else can take them.
    pub fn taken(&mut self) {
        self.lock = None;
    }

    /// Number of pages added to the machine's pool for this run.
    pub fn added(&self) -> u64 {
        self.added
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let held = self.lock.take().map_or_else(|| self.pool.lock(), Ok);
        if self.added > 0
            && let Err(e) = held.as_ref().map_err(|e| anyhow!("{e:#}")).and_then(|_| self.pool.lower(self.added))
        {
            eprintln!("{} additional huge pages stay reserved: {e:#}", self.added);
        }
        if let Some(Err(e)) = self.guard.take().map(Guard::dismiss) {
            eprintln!("{e:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_sys::process::{Exit, fork_child};
    use std::io::{Read, Write};

    use rustix::process::Signal;

    const MIB: u64 = 1 << 20;

    /// A pool of 2 MiB pages as the kernel shows it, in a directory of plain files.
    fn pools(total: u64, free: u64, promised: u64) -> tempfile::TempDir {
        let pools = tempfile::tempdir().unwrap();
        let dir = pools.path().join("hugepages-2048kB");
        fs::create_dir(&dir).unwrap();
        let files =
            [("nr_hugepages", total), ("free_hugepages", free), ("resv_hugepages", promised), ("surplus_hugepages", 0)];
        for (file, value) in files {
            fs::write(dir.join(file), format!("{value}\n")).unwrap();
        }
        pools
    }

    fn total(pools: &tempfile::TempDir) -> u64 {
        Pool::find(pools.path(), 2 * MIB).unwrap().read("nr_hugepages").unwrap()
    }

    fn refusal(pools: &tempfile::TempDir, page: u64, bytes: u64, permission: Permission) -> Refused {
        Reserved::of(pools.path(), page, bytes, permission).unwrap_err().downcast().unwrap()
    }

    #[test]
    fn what_is_free_is_not_added_to() {
        let pools = pools(20, 18, 2);
        for permission in [Permission::MustExist, Permission::MayChange] {
            let reserved = Reserved::of(pools.path(), 2 * MIB, 31 * MIB, permission).unwrap();
            assert_eq!((reserved.added(), total(&pools)), (0, 20));
            drop(reserved);
        }
        assert_eq!(total(&pools), 20);
    }

    #[test]
    fn pages_are_added_for_the_run_and_another_run_s_are_left() {
        let pools = pools(20, 18, 2);
        let reserved = Reserved::of(pools.path(), 2 * MIB, 50 * MIB, Permission::MayChange).unwrap();
        assert_eq!((reserved.added(), total(&pools)), (9, 29));
        reserved.pool.set(33).unwrap();
        drop(reserved);
        assert_eq!(total(&pools), 24);
    }

    #[test]
    fn pages_that_are_to_go_anyway_are_not_kept() {
        let pools = pools(20, 0, 0);
        fs::write(pools.path().join("hugepages-2048kB/surplus_hugepages"), "4").unwrap();
        // Of 20 pages 16 are permanent, 3 of which are removed now.
        Pool::find(pools.path(), 2 * MIB).unwrap().lower(3).unwrap();
        assert_eq!(total(&pools), 13);
    }

    #[test]
    fn what_one_run_has_found_free_no_other_takes_before_it_has() {
        let pools = pools(20, 20, 0);
        let mut reserved = Reserved::of(pools.path(), 2 * MIB, 10 * MIB, Permission::MustExist).unwrap();
        let (mut told, tell) = std::io::pipe().unwrap();
        let other = fork_child(|| {
            let _reserved = Reserved::of(pools.path(), 2 * MIB, 10 * MIB, Permission::MustExist);
            i32::from((&tell).write_all(b"2").is_err())
        })
        .unwrap();
        // However late the other comes, it cannot have reported before this.
        std::thread::sleep(std::time::Duration::from_millis(20));
        (&tell).write_all(b"1").unwrap();
        reserved.taken();
        let mut order = [0; 2];
        told.read_exact(&mut order).unwrap();
        assert_eq!((&order, other.wait().unwrap()), (b"12", Exit::Status(0)));
    }

    #[test]
    fn refusals_say_how_to_reserve() {
        let pools = pools(20, 18, 2);
        let error = refusal(&pools, 2 * MIB, 50 * MIB, Permission::MustExist);
        assert!(matches!(error, Refused::TooFew { needed: 25, free: 16, .. }), "{error}");
        assert!(error.to_string().contains("Huge pages of 2M: 25 needed, 16 free") && error.to_string().contains("29"));
        assert_eq!(
            refusal(&pools, 1 << 30, 1, Permission::MayChange).to_string(),
            "This kernel has no huge pages of 1G; it has 2M"
        );
        assert_eq!(total(&pools), 20);
    }

    #[test]
    fn a_killed_run_leaves_nothing_reserved() {
        let pools = pools(4, 4, 0);
        let (mut told, tell) = std::io::pipe().unwrap();
        let run = fork_child(|| {
            let reserved = Reserved::of(pools.path(), 2 * MIB, 40 * MIB, Permission::MayChange);
            let _ = (&tell).write_all(&[u8::from(reserved.is_ok())]);
            std::thread::sleep(std::time::Duration::from_secs(600));
            0
        })
        .unwrap();
        let mut ready = [0];
        told.read_exact(&mut ready).unwrap();
        assert_eq!((ready, total(&pools)), ([1], 20));
        run.signal(Signal::KILL).unwrap();
        assert_eq!(run.wait().unwrap(), Exit::Signal(9));
        let pool = Pool::find(pools.path(), 2 * MIB).unwrap();
        // A plain file is empty for a moment while it is written.
        while pool.read("nr_hugepages").ok() != Some(4) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
