//! A control group (version 2) for each run, if this machine allows it: it also counts processes that no parent waits for.
//!
//! Invariant: a run's group is removed with the run; a machine without version 2, or without permission, is not an error.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::measured::Counted;

/// How often and how long removing a group is tried: its last process may still be ending.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// The group below which groups can be created.
pub struct CgroupParent {
    dir: OwnedFd,
}

/// The group of one run. Dropping it removes it.
pub struct RunCgroup<'p> {
    place: &'p CgroupParent,
    name: String,
    dir: OwnedFd,
}

impl CgroupParent {
    /// The nearest group above this process whose children have the controllers for memory and I/O, or otherwise this process's own group.
    pub fn find() -> Option<Self> {
        let (mount, own) = own_group()?;
        // A limit on this process also applies to the programs that it starts; a group beside it would escape the limit.
        let limit = fs::read_to_string(own.join("memory.max")).unwrap_or_default();
        let is_limited = !matches!(limit.trim(), "" | "max");
        let above = own.ancestors().take_while(|p| p.starts_with(&mount) && !is_limited);
        let full = above.map(Path::to_owned).find(|dir| {
            let passed_on = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
            ["memory", "io"].iter().all(|c| passed_on.split_whitespace().any(|p| p == *c))
        });
        full.into_iter().chain([own]).find_map(|dir| {
            let place =
                CgroupParent { dir: rustix::fs::open(&dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()? };
            // Only creating one shows whether it is allowed.
            place.group("probe")?;
            Some(place)
        })
    }

    /// A new group; `None` if it cannot be created.
    pub fn group(&self, what: &str) -> Option<RunCgroup<'_>> {
        let name = format!("bigiron-{}-{what}", std::process::id());
        rustix::fs::mkdirat(&self.dir, &name, Mode::from_raw_mode(0o755)).ok()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.dir, &name, flags, Mode::empty()) {
            Ok(dir) => Some(RunCgroup { place: self, name, dir }),
            Err(_) => {
                let _ = rustix::fs::unlinkat(&self.dir, &name, AtFlags::REMOVEDIR);
                None
            }
        }
    }
}

/// The mount point of version 2, and this process's group there.
fn own_group() -> Option<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup2 ").then(|| left.split(' ').nth(4)).flatten()
    })?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = PathBuf::from(mount);
    let own = mount.join(own);
    // Outside the namespace a group is `/..`.
    own.is_dir().then_some((mount, own))
}

impl RunCgroup<'_> {
    /// The descriptor for cloning a process into the group.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Kills the whole group at once, if the kernel supports it (5.14).
    pub fn kill(&self) {
        let file = rustix::fs::openat(&self.dir, "cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        if let Ok(file) = file {
            let _ = fs::File::from(file).write_all(b"1");
        }
    }

    /// What the group has counted so far.
    pub fn counted(&self) -> Counted {
        Counted {
            cpu_ns: self.read("cpu.stat").and_then(|text| cpu(&text)),
            io_bytes: self.read("io.stat").map(|text| io(&text)),
            peak_bytes: self.read("memory.peak").and_then(|text| text.trim().parse().ok()),
        }
    }

    fn read(&self, name: &str) -> Option<String> {
        let file = rustix::fs::openat(&self.dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = String::new();
        fs::File::from(file).read_to_string(&mut text).ok()?;
        Some(text)
    }
}

impl Drop for RunCgroup<'_> {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            match rustix::fs::unlinkat(&self.place.dir, &self.name, AtFlags::REMOVEDIR) {
                Err(rustix::io::Errno::BUSY) => std::thread::sleep(PAUSE),
                _ => break,
            }
        }
    }
}

/// `cpu.stat`, in nanoseconds.
fn cpu(text: &str) -> Option<(u64, u64)> {
    let usec = |name: &str| {
        let of = |line: &str| line.strip_prefix(name)?.trim().parse::<u64>().ok();
        text.lines().find_map(of)
    };
    Some((usec("user_usec ")? * 1000, usec("system_usec ")? * 1000))
}

/// `io.stat`: bytes read and written, summed over devices.
fn io(text: &str) -> (u64, u64) {
    let sum = |name: &str| text.split_whitespace().filter_map(|w| w.strip_prefix(name)?.parse::<u64>().ok()).sum();
    (sum("rbytes="), sum("wbytes="))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(cpu("usage_usec 30\nuser_usec 10\nsystem_usec 20\n"), Some((10_000, 20_000)));
        assert_eq!(cpu("usage_usec 30\n"), None);
        let text =
            "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n8:0 rbytes=100 wbytes=3 rios=1\n";
        assert_eq!(io(text), (1_459_300, 314_773_507));
    }

    #[test]
    fn a_group_is_gone_when_it_is_dropped() {
        // A machine where no group can be created has nothing to leave behind.
        let Some(place) = CgroupParent::find() else {
            // Not by `eprintln!`, whose output the harness shows only for failed tests.
            return drop(writeln!(std::io::stderr(), "SKIPPED control groups: none can be made here"));
        };
        let group = place.group("test").unwrap();
        assert!(group.counted().cpu_ns.is_some());
        let name = group.name.clone();
        drop(group);
        let gone = rustix::fs::statat(&place.dir, &name, AtFlags::empty());
        assert_eq!(gone.map(drop), Err(rustix::io::Errno::NOENT));
    }
}
