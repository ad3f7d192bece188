//! The inverse of a change of the machine.
//!
//! Invariant: undoing is idempotent. Done twice, or repeated after a kill half-way, it leaves the same machine, and it touches
//! nothing that is already undone.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use bigiron_sys::kernel_file::{below, read, write};
use serde::{Deserialize, Serialize};

use bigiron_sys as sys;

/// Time limit for waiting until processes that are about to end release something.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// The inverse of one change. Paths are the machine's own, without the root that a ledger may have been opened with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Inverse {
    /// Write `value` into a file of the kernel, which then shows `shown` again (as read before the change, including the line
    /// end).
    Write { path: PathBuf, value: String, shown: String },
    /// Kill all processes in a cgroup (v2) and below it, then remove it.
    RemoveCgroup { path: PathBuf },
    /// Stop swapping on a device.
    SwapOff { path: PathBuf },
    /// Reset `/dev/zramN`, which existed before and was unused.
    ResetZram { index: u32 },
    /// Remove `/dev/zramN`, which was added.
    RemoveZram { index: u32 },
    /// Remove a zram device that was added but never given a size: any that is not in `before`.
    RemoveNewZram { before: Vec<u32> },
}

/// The result of undoing a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoResult {
    /// It has been undone now.
    Restored,
    /// There was nothing (left) to do.
    Already,
    /// The changed thing no longer exists: a device that was unplugged, a module that was removed.
    Gone,
}

impl Inverse {
    /// Whether this touches nothing but the kernel's own files: settings below /sys and /proc/sys, cgroups, devices that are swapped on.
    /// A ledger that asks for anything else is not bigiron's.
    ///
    /// # Errors
    /// What else it would touch.
    pub fn check(&self, root: &Path) -> Result<(), String> {
        let (path, folders): (&Path, &[&str]) = match self {
            Inverse::Write { path, .. } => (path, &["/sys", "/proc/sys"]),
            Inverse::RemoveCgroup { path } => (path, &["/sys/fs/cgroup"]),
            Inverse::SwapOff { path } => (path, &["/dev"]),
            Inverse::ResetZram { .. } | Inverse::RemoveZram { .. } | Inverse::RemoveNewZram { .. } => return Ok(()),
        };
        let within = |path: &Path, root: &Path| {
            folders.iter().any(|folder| path.starts_with(below(root, Path::new(folder))) && path != Path::new(folder))
        };
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // By links too: those of the kernel lead from /sys to /sys.
        let real = fs::canonicalize(root).and_then(|root| Ok((fs::canonicalize(below(&root, path))?, root)));
        let leads_there = match real {
            Ok((real, root)) => within(&real, &root),
            // What is not there is not touched.
            Err(_) => true,
        };
        if plain && within(path, Path::new("/")) && leads_there {
            return Ok(());
        }
        Err(format!(
            "`{}` is not below {}, where alone bigiron makes such changes",
            path.display(),
            folders.join(" or ")
        ))
    }

    /// Undoes the change on the machine below `root`.
    ///
    /// # Errors
    /// What could not be undone, and why.
    pub fn run(&self, root: &Path) -> Result<UndoResult, String> {
        self.check(root)?;
        match self {
            Inverse::Write { path, value, shown } => write_back(&below(root, path), path, value, shown),
            Inverse::RemoveCgroup { path } => remove_cgroup(&below(root, path)),
            Inverse::SwapOff { path } => match sys::swap::off(&below(root, path)) {
                Ok(()) => Ok(UndoResult::Restored),
                Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => Ok(UndoResult::Already),
                Err(e) => Err(format!("{} is still swapped on: {e}", path.display())),
            },
            Inverse::ResetZram { index } => reset_zram(root, *index),
            Inverse::RemoveZram { index } => remove_zram(root, *index),
            Inverse::RemoveNewZram { before } => {
                let new: Vec<u32> = zrams(root).into_iter().filter(|n| !before.contains(n)).collect();
                let unused = |n: &u32| {
                    let size = read(&below(root, Path::new(&format!("/sys/block/zram{n}/disksize"))));
                    size.is_ok_and(|size| size.trim() == "0")
                };
                let mut done = UndoResult::Already;
                for n in new.iter().filter(|n| unused(n)) {
                    done = remove_zram(root, *n)?;
                }
                Ok(done)
            }
        }
    }
}

impl fmt::Display for Inverse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inverse::Write { path, value, .. } => write!(f, "{} = {value}", path.display()),
            Inverse::RemoveCgroup { path } => write!(f, "remove the cgroup {}", path.display()),
            Inverse::SwapOff { path } => write!(f, "stop swapping on {}", path.display()),
            Inverse::ResetZram { index } => write!(f, "empty /dev/zram{index}"),
            Inverse::RemoveZram { index } => write!(f, "remove /dev/zram{index}"),
            Inverse::RemoveNewZram { .. } => write!(f, "remove a zram device that was added"),
        }
    }
}

/// The existing devices /dev/zramN.
pub(crate) fn zrams(root: &Path) -> Vec<u32> {
    let entries = fs::read_dir(below(root, Path::new("/sys/block"))).into_iter().flatten().flatten();
    let mut found: Vec<u32> =
        entries.filter_map(|e| e.file_name().to_str()?.strip_prefix("zram")?.parse().ok()).collect();
    found.sort_unstable();
    found
}

fn write_back(at: &Path, path: &Path, value: &str, shown: &str) -> Result<UndoResult, String> {
    match read(at) {
        Ok(now) if now == shown => return Ok(UndoResult::Already),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(UndoResult::Gone),
        _ => {}
    }
    write(at, value).map_err(|e| format!("{} cannot be restored to `{value}`: {e}", path.display()))?;
    match read(at) {
        Ok(now) if now == shown => Ok(UndoResult::Restored),
        Ok(now) => Err(format!(
            "{} was restored to `{value}`, but shows `{}` instead of `{}`",
            path.display(),
            now.trim(),
            shown.trim()
        )),
        Err(e) => Err(format!("{} cannot be read: {e}", path.display())),
    }
}

/// Tries until it works, fails for good, or patience is over; a failure says whether to try again.
fn patiently(attempt: impl Fn() -> Result<UndoResult, (bool, String)>) -> Result<UndoResult, String> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err((true, _)) if begun.elapsed() < PATIENCE => std::thread::sleep(POLL),
            Err((_, why)) => return Err(why),
        }
    }
}

fn remove_cgroup(at: &Path) -> Result<UndoResult, String> {
    if !at.exists() {
        return Ok(UndoResult::Already);
    }
    // From Linux 5.14 on; before, the processes are killed one by one.
    if fs::write(at.join("cgroup.kill"), "1").is_err() {
        kill_all(at);
    }
    // Innermost first.
    let below = fs::read_dir(at).into_iter().flatten().flatten();
    for folder in below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        remove_cgroup(&folder.path())?;
    }
    patiently(|| match fs::remove_dir(at) {
        Ok(()) => Ok(UndoResult::Restored),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(UndoResult::Already),
        Err(e) => Err((e.kind() == ErrorKind::ResourceBusy, format!("{} is not removed: {e}", at.display()))),
    })
}

fn kill_all(cgroup: &Path) {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|l| rustix::process::Pid::from_raw(l.trim().parse().ok()?)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn reset_zram(root: &Path, index: u32) -> Result<UndoResult, String> {
    let folder = below(root, Path::new(&format!("/sys/block/zram{index}")));
    match read(&folder.join("disksize")) {
        Ok(size) if size.trim() == "0" => Ok(UndoResult::Already),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(UndoResult::Gone),
        _ => patiently(|| match write(&folder.join("reset"), "1") {
            Ok(()) => Ok(UndoResult::Restored),
            Err(e) => Err((e.kind() == ErrorKind::ResourceBusy, format!("/dev/zram{index} is not emptied: {e}"))),
        }),
    }
}

fn remove_zram(root: &Path, index: u32) -> Result<UndoResult, String> {
    if !zrams(root).contains(&index) {
        return Ok(UndoResult::Already);
    }
    reset_zram(root, index)?;
    let remove = below(root, Path::new("/sys/class/zram-control/hot_remove"));
    patiently(|| match write(&remove, &index.to_string()) {
        Ok(()) => Ok(UndoResult::Restored),
        Err(e) => Err((e.kind() == ErrorKind::ResourceBusy, format!("/dev/zram{index} is not removed: {e}"))),
    })
}
