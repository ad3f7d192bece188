//! The directory of one run: made below the one that was asked for, removed at the end.
//!
//! Invariant: a run's directory is locked as long as the run lives; one that is not locked belongs to nobody and is named, never
//! removed, by the next run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::refusal::Refusal;
use crate::size;
use crate::workload::Needs;

const PREFIX: &str = "bigiron-dbsim-";
/// The file in a run's directory that the run holds a lock on.
const LOCK: &str = "lock";
/// Where data files and journals lie.
const WORK: &str = "work";
/// The job of a run, with everything decided, and its seed.
pub(super) const JOB: &str = "job.toml";

/// Part of a file system's free space that a run leaves alone.
const SPARE: u64 = 16 << 20;

/// The directory of a run that is under way.
pub(super) struct Place {
    dir: TempDir,
    _lock: File,
}

impl Place {
    /// Makes a directory below `parent` for a run that `needs` so much.
    ///
    /// # Errors
    /// If `parent` is no directory to write to, or there is too little room.
    pub(super) fn make(parent: &Path, needs: &Needs) -> anyhow::Result<Self> {
        check_space(parent, needs)?;
        let refuse = |e: std::io::Error| {
            Refusal::new(format!("A directory cannot be made in `{}`: {e}", parent.display()))
                .hint("`--dir` names a directory on the file system to be tested")
        };
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(refuse)?;
        let lock = File::create(dir.path().join(LOCK)).context("Cannot make the lock of the run")?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("Cannot lock the run's directory")?;
        fs::create_dir(dir.path().join(WORK)).context("Cannot make the run's directory")?;
        Ok(Place { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn work(&self) -> PathBuf {
        work(self.dir.path())
    }

    /// Removes everything; what cannot be removed is an error.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        let path = self.dir.path().to_owned();
        self.dir.close().with_context(|| format!("Cannot remove `{}`", path.display()))
    }

    /// Leaves everything where it is.
    pub(super) fn keep(self) -> PathBuf {
        self.dir.keep()
    }
}

/// Where data files and journals lie in a run's directory.
pub(super) fn work(dir: &Path) -> PathBuf {
    dir.join(WORK)
}

/// Directories below `parent` that runs which were killed have left, with their bytes.
pub(super) fn left_over(parent: &Path) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let ours = |path: &Path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(PREFIX));
    let mut found: Vec<(PathBuf, u64)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        // A run that was asked to keep its directory has left its job there.
        .filter(|path| ours(path) && !path.join(JOB).exists() && is_free(&path.join(LOCK)))
        .map(|path| {
            let bytes = bytes(&path);
            (path, bytes)
        })
        .collect();
    found.sort();
    found
}

fn is_free(lock: &Path) -> bool {
    File::open(lock).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(size).sum()
}

fn check_space(parent: &Path, needs: &Needs) -> Result<(), Refusal> {
    let Ok(stat) = rustix::fs::statvfs(parent) else {
        return Err(Refusal::new(format!("`{}` is no directory", parent.display()))
            .hint("`--dir` names a directory on the file system to be tested"));
    };
    let (free, wanted) = (stat.f_bavail * stat.f_frsize, needs.storage_bytes.unwrap_or(0) + SPARE);
    if free >= wanted {
        return Ok(());
    }
    let mib = |bytes: u64| size::print_bytes(bytes.next_multiple_of(1 << 20));
    Err(Refusal::new(format!("The job needs {} in `{}`, where {} are free", mib(wanted), parent.display(), mib(free)))
        .hint("Name another directory with `--dir`, or make the data smaller: `--set data.size=SIZE`"))
}

/// Refuses a job that needs more memory than this machine has to give.
pub(super) fn check_memory(needs: &Needs) -> Result<(), Refusal> {
    let Ok(info) = fs::read_to_string("/proc/meminfo") else { return Ok(()) };
    let Some(free) = available(&info) else { return Ok(()) };
    if needs.memory_bytes <= free {
        return Ok(());
    }
    let mib = |bytes: u64| size::print_bytes(bytes.next_multiple_of(1 << 20));
    Err(Refusal::new(format!(
        "The job needs {} of memory, and this machine has {} to give",
        mib(needs.memory_bytes),
        mib(free)
    ))
    .hint("Make the cache smaller (`--set cache.size=SIZE`) or start fewer processes"))
}

/// `MemAvailable` of /proc/meminfo, in bytes.
fn available(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_named_only_when_its_run_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::make(parent.path(), &Needs::default()).unwrap();
        assert_eq!(left_over(parent.path()), []);
        fs::write(place.work().join("data"), [0; 1000]).unwrap();
        let path = place.keep();
        assert_eq!(left_over(parent.path()), [(path.clone(), 1000)]);
        fs::write(path.join(JOB), "").unwrap();
        assert_eq!(left_over(parent.path()), []);
    }

    #[test]
    fn nothing_is_left_of_a_run_that_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::make(parent.path(), &Needs::default()).unwrap();
        fs::write(place.work().join("data"), [0; 1000]).unwrap();
        place.remove().unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_room_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let needs = Needs { storage_bytes: Some(1 << 60), memory_bytes: 1 << 60, modules: Vec::new() };
        let error = Place::make(parent.path(), &needs).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("The job needs"), "{error}");
        assert!(check_memory(&needs).unwrap_err().message.contains("of memory"));
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 << 10));
    }
}
