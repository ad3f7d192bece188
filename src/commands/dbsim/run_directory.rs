//! The directory of one run: created below `--dir`, removed at the end.
//!
//! Invariant: a run's directory is locked as long as the run lives; the next run reports a directory that is not locked as left
//! over, and never removes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use bigiron_dbsim::job::{Draft, Job};
use bigiron_model::folder_files::{self, Access};
use bigiron_model::refusal::Refusal;
use bigiron_model::size;
use bigiron_workload::Needs;

const PREFIX: &str = "bigiron-dbsim-";
/// The file in a run's directory that the run locks.
const LOCK: &str = "lock";
/// The subdirectory for data files and journals.
const WORK: &str = "work";
/// The complete job of a run.
const JOB: &str = "job.toml";
/// Marks a directory that was kept on purpose.
const KEPT: &str = "kept";

/// Free space on a file system that a run leaves unused.
const SPARE: u64 = 16 << 20;

/// The directory of a run in progress.
pub(super) struct RunDirectory {
    dir: TempDir,
    _lock: File,
}

impl RunDirectory {
    /// Creates a directory below `parent` for a run with these `needs`.
    ///
    /// # Errors
    /// If `parent` is not a writable directory, or there is too little room.
    pub(super) fn make(parent: &Path, needs: &Needs) -> anyhow::Result<Self> {
        check_space(parent, needs)?;
        let refuse = |e: std::io::Error| {
            Refusal::new(format!("A directory cannot be created in `{}`: {e}", parent.display()))
                .hint("`--dir` names a directory on the file system to test")
        };
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(refuse)?;
        let lock = File::create(dir.path().join(LOCK)).context("Cannot create the lock of the run")?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("Cannot lock the run's directory")?;
        fs::create_dir(dir.path().join(WORK)).context("Cannot create the run's directory")?;
        Ok(RunDirectory { dir, _lock: lock })
    }

    /// Writes the job to the directory, for people who find it.
    pub(super) fn describe(&self, job: &str, seed: u64) -> anyhow::Result<()> {
        let path = self.dir.path().join(JOB);
        fs::write(&path, format!("# Run with seed {seed}.\n{job}"))
            .with_context(|| format!("Cannot write `{}`", path.display()))
    }

    pub(super) fn work(&self) -> PathBuf {
        work(self.dir.path())
    }

    /// Removes everything; returns an error if something cannot be removed.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        let path = self.dir.path().to_owned();
        self.dir.close().with_context(|| format!("Cannot remove `{}`", path.display()))
    }

    /// Keeps everything, on purpose.
    pub(super) fn keep(self) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join(KEPT);
        File::create(&path).with_context(|| format!("Cannot write `{}`", path.display()))?;
        Ok(self.dir.keep())
    }
}

/// The job of the run whose directory is `dir`.
///
/// # Errors
/// If there is none, or the run is still in progress.
pub(super) fn job_of(dir: &Path) -> Result<Job, Refusal> {
    let path = dir.join(JOB);
    let name = path.display().to_string();
    let text = fs::read_to_string(&path).map_err(|e| {
        Refusal::new(format!("`{}` is not a directory of a dbsim run: {name}: {e}", dir.display()))
            .hint("`bigiron dbsim run JOB --keep` leaves one")
    })?;
    if !is_free(&dir.join(LOCK)) {
        return Err(Refusal::new(format!("The run in `{}` is still in progress", dir.display())));
    }
    Draft::parse(&name, &text)?.job()
}

/// The subdirectory of data files and journals in a run's directory.
pub(super) fn work(dir: &Path) -> PathBuf {
    dir.join(WORK)
}

/// Directories below `parent` left over from killed runs, with their bytes.
pub(super) fn left_over(parent: &Path) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let ours = |path: &Path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(PREFIX));
    let mut found: Vec<(PathBuf, u64)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| ours(path) && !path.join(KEPT).exists() && is_free(&path.join(LOCK)))
        .map(|path| {
            let bytes = bytes(&path);
            (path, bytes)
        })
        .collect();
    found.sort();
    found
}

fn is_free(lock: &Path) -> bool {
    let (Some(dir), Some(name)) = (lock.parent(), lock.file_name()) else { return false };
    folder_files::open(dir, name, Access::Read, 0)
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
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
        return Err(Refusal::new(format!("`{}` is not a directory", parent.display()))
            .hint("`--dir` names a directory on the file system to test"));
    };
    let (free, wanted) = (stat.f_bavail * stat.f_frsize, needs.storage_bytes.unwrap_or(0) + SPARE);
    if free >= wanted {
        return Ok(());
    }
    let mib = |bytes: u64| size::print_bytes(bytes.next_multiple_of(1 << 20));
    Err(Refusal::new(format!("The job needs {} in `{}`, which has {} free", mib(wanted), parent.display(), mib(free)))
        .hint("Name another directory with `--dir`, or make the data smaller: `--set data.size=SIZE`"))
}

/// Refuses a job that needs more memory than is available.
pub(super) fn check_memory(needs: &Needs) -> Result<(), Refusal> {
    let Ok(info) = fs::read_to_string("/proc/meminfo") else { return Ok(()) };
    let Some(free) = available(&info) else { return Ok(()) };
    if needs.memory_bytes <= free {
        return Ok(());
    }
    let mib = |bytes: u64| size::print_bytes(bytes.next_multiple_of(1 << 20));
    Err(Refusal::new(format!(
        "The job needs {} of memory, but only {} is available",
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
        let place = RunDirectory::make(parent.path(), &Needs::default()).unwrap();
        assert_eq!(left_over(parent.path()), []);
        fs::write(place.work().join("data"), [0; 1000]).unwrap();
        let path = place.dir.keep();
        assert_eq!(left_over(parent.path()), []);
        drop(place._lock);
        // A child that another test starts holds the lock, too, until it executes its program.
        let named = || left_over(parent.path()) == [(path.clone(), 1000)];
        assert!((0..1000).any(|_| named() || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            false
        }));
        let kept = RunDirectory::make(parent.path(), &Needs::default()).unwrap().keep().unwrap();
        assert_eq!(left_over(parent.path()).len(), 1);
        assert!(job_of(&kept).unwrap_err().message.contains("is not a directory of a dbsim run"));
    }

    #[test]
    fn nothing_is_left_of_a_run_that_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let place = RunDirectory::make(parent.path(), &Needs::default()).unwrap();
        fs::write(place.work().join("data"), [0; 1000]).unwrap();
        place.remove().unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_room_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let needs = Needs { storage_bytes: Some(1 << 60), memory_bytes: 1 << 60, modules: Vec::new() };
        let error = RunDirectory::make(parent.path(), &needs).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("The job needs"), "{error}");
        assert!(check_memory(&needs).unwrap_err().message.contains("of memory"));
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 << 10));
    }
}
