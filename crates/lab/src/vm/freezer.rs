//! Frozen cgroups: of version 2, and of version 1 where the controller `freezer` is mounted; either may be mounted anywhere.

use std::fs;
use std::path::{Path, PathBuf};

/// A mounted hierarchy in which processes can be frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    is_v2: bool,
    /// Where it is mounted, and which of its groups is seen there.
    point: PathBuf,
    root: PathBuf,
}

/// Those in a text as of /proc/self/mountinfo.
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    // proc(5): … root, mount point (octal escapes), options, then ` - `, type, source and the file system's options.
    let parsed = mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut places = left.split(' ').skip(3).map(|place| PathBuf::from(place.replace("\\040", " ")));
        let (root, point) = (places.next()?, places.next()?);
        let mut right = right.split(' ');
        let is_v2 = match right.next()? {
            "cgroup2" => true,
            "cgroup" if right.nth(1)?.split(',').any(|option| option == "freezer") => false,
            _ => return None,
        };
        Some(Hierarchy { is_v2, point, root })
    });
    parsed.collect()
}

impl Hierarchy {
    /// The folder of a process's group, given the text of its /proc/PID/cgroup.
    fn folder(&self, groups: &str) -> Option<PathBuf> {
        let group = groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let ours = if self.is_v2 { controllers.is_empty() } else { controllers.split(',').any(|c| c == "freezer") };
            ours.then_some(group)
        })?;
        let below = Path::new(group).strip_prefix(&self.root).ok()?;
        Some(self.point.join(below))
    }

    fn is_frozen(&self, folder: &Path) -> bool {
        let (file, words): (_, &[&str]) =
            if self.is_v2 { ("cgroup.events", &["frozen 1"]) } else { ("freezer.state", &["FROZEN", "FREEZING"]) };
        let said = fs::read_to_string(folder.join(file)).unwrap_or_default();
        said.lines().any(|line| words.contains(&line))
    }
}

/// Whether a process is in a frozen cgroup.
pub(super) fn is_frozen(pid: u32) -> bool {
    let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return false };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    hierarchies(&mounts).iter().any(|of| of.folder(&groups).is_some_and(|folder| of.is_frozen(&folder)))
}

/// Groups of this machine that a test can freeze.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::io::Write as _;

    /// A group of a test's own, which goes with it.
    pub(crate) struct Group {
        is_v2: bool,
        folder: PathBuf,
    }

    /// One in each hierarchy; none, and said, where this process may not make any.
    pub(crate) fn groups(name: &str) -> Vec<Group> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let make = |of: Hierarchy| {
            let folder = of.folder(&own)?.join(format!("bigiron-test-{name}-{}", std::process::id()));
            let group = fs::create_dir(&folder).ok().map(|()| Group { is_v2: of.is_v2, folder })?;
            group.procs().metadata().ok().map(|_| group)
        };
        let groups: Vec<Group> = hierarchies(&mounts).into_iter().filter_map(make).collect();
        if groups.is_empty() {
            let _ = writeln!(std::io::stderr(), "SKIPPED frozen cgroups: no cgroup can be made here");
        }
        groups
    }

    impl Group {
        /// A file: a process whose number is written into it belongs to the group.
        pub(crate) fn procs(&self) -> PathBuf {
            self.folder.join("cgroup.procs")
        }

        /// A file, and the words that freeze the group or let it go on.
        pub(crate) fn switch(&self, frozen: bool) -> (PathBuf, &'static str) {
            match (self.is_v2, frozen) {
                (true, true) => (self.folder.join("cgroup.freeze"), "1"),
                (true, false) => (self.folder.join("cgroup.freeze"), "0"),
                (false, true) => (self.folder.join("freezer.state"), "FROZEN"),
                (false, false) => (self.folder.join("freezer.state"), "THAWED"),
            }
        }

        pub(crate) fn set(&self, frozen: bool) {
            let (file, word) = self.switch(frozen);
            fs::write(file, word).unwrap();
        }

        pub(crate) fn processes(&self) -> usize {
            fs::read_to_string(self.procs()).unwrap_or_default().lines().count()
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            self.set(false);
            // Its processes have been killed, and end now.
            for _ in 0..1000 {
                if fs::remove_dir(&self.folder).is_ok() {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn hierarchies_are_found_wherever_they_are_mounted() {
        let mounts = "36 32 0:30 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n\
             37 32 0:31 /docker/1 /cg/free\\040zer rw - cgroup cgroup rw,freezer\n38 32 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let found = hierarchies(mounts);
        let groups = "6:freezer:/docker/1/x\n1:cpu:/y\n0::/z\n";
        let folders: Vec<_> = found.iter().filter_map(|of| of.folder(groups)).collect();
        assert_eq!(folders, [Path::new("/sys/fs/cgroup/unified/z"), Path::new("/cg/free zer/x")]);
        // Outside what is mounted.
        assert_eq!(found[1].folder("6:freezer:/other\n"), None);
    }

    #[test]
    fn a_frozen_process_is_told_from_one_that_waits() {
        for group in testing::groups("freezer") {
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            fs::write(group.procs(), child.id().to_string()).unwrap();
            assert!(!is_frozen(child.id()));
            group.set(true);
            // It is on its way.
            while !is_frozen(child.id()) {
                std::thread::yield_now();
            }
            group.set(false);
            while is_frozen(child.id()) {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(!is_frozen(child.id()));
        }
    }
}
