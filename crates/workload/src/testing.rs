//! The environment of workloads' tests.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bigiron_model::clock::Clock;
use bigiron_model::workload::Options;

use crate::{Context, Progress, Workload, complete};

static NO_IMAGES: BTreeMap<String, PathBuf> = BTreeMap::new();
static NO_FOUNDATION: BTreeMap<String, String> = BTreeMap::new();

/// A trial in `dir`: seed 7, the exact clock, a machine with 2 CPUs and 1 GiB, and nothing else.
pub fn context<'a>(dir: &Path) -> Context<'a> {
    fn nobody_listens(_: Progress<'_>) {}
    Context {
        seed: 7,
        clock: Clock::Exact,
        dir: dir.to_owned(),
        images: &NO_IMAGES,
        devices: &[],
        foundation: &NO_FOUNDATION,
        cpus: 2,
        memory_bytes: 1 << 30,
        executable: PathBuf::new(),
        network: None,
        ack_sink: None,
        progress: &nobody_listens,
    }
}

/// Says that the test that runs now shows nothing of this on this machine. Not by `eprintln!`, which the harness shows of failed tests alone;
/// `scripts/test` repeats it at its end.
pub fn skipped(what: impl Display, why: impl Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
}

/// A file system of a given size, unmounted when dropped.
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    /// Mounts one of `size`, such as `900m`, on the new folder `disk` of `dir`; `None`, after [`skipped`], where only root could.
    pub fn mount(dir: &Path, size: &str) -> Option<Self> {
        let disk = dir.join("disk");
        std::fs::create_dir(&disk).expect("a new folder");
        let size = format!("size={size}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&disk).output();
        let mount = mount.expect("there is a program `mount`");
        if mount.status.success() {
            return Some(Self(disk));
        }
        skipped(
            "a full disk",
            format_args!("mounting a file system takes root ({})", String::from_utf8_lossy(&mount.stderr).trim()),
        );
        None
    }

    /// Leaves no byte free but `free` of them.
    pub fn fill(&self, free: usize) {
        let mut file = std::fs::File::create(self.0.join("filler")).expect("a new file");
        for piece in [vec![0; 1 << 20], vec![0; 4096], vec![0]] {
            while file.write_all(&piece).is_ok() {}
        }
        let used = file.metadata().expect("a file").len();
        file.set_len(used.saturating_sub(free as u64)).expect("a shorter file");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The complete options of `workload` with `settings` as they were typed, which [`Workload::parse`] accepts.
///
/// # Errors
/// As [`complete`], or [`Workload::parse`] refuses them.
pub fn options<'a>(
    workload: &dyn Workload,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Options, String> {
    let options = complete(workload, settings)?;
    workload.parse(&options)?;
    Ok(options)
}
