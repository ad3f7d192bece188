//! Network namespaces, held by file descriptors.
//!
//! Invariant: a namespace exists as long as a process holds it or lives in it, and no longer: it has no name that could be left behind.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The namespace of the calling thread.
const HERE: &str = "/proc/thread-self/ns/net";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// A new namespace that contains only a loopback interface, down. Needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// Those of `unshare`, e.g. `EPERM`.
    pub fn new() -> io::Result<Self> {
        // A separate thread enters it and ends; this one stays where it is.
        aside(|| {
            unshare(UnshareFlags::NEWNET)?;
            Self::here()
        })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn here() -> io::Result<Self> {
        Self::open(Path::new(HERE))
    }

    /// The namespace of a file of /proc: `/proc/PID/ns/net`, or `/proc/PID/fd/N` of a process that holds it.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?.into()))
    }

    /// The path at which other processes of this user can open it, as long as this process holds it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }

    /// Moves the calling thread, and everything that it starts from then on, into the namespace. Needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// Those of `setns`.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Does `work` in the namespace, with its /sys and /proc/sys/net, in a separate thread. Needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// Those of `setns` and `mount`.
    pub fn visit<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        aside(|| {
            // Only this thread sees these mounts. sysfs shows the network of the process that mounts it.
            unshare(UnshareFlags::NEWNS)?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            self.enter()?;
            match mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None) {
                // The sysfs of this network is mounted there already.
                Err(rustix::io::Errno::BUSY) | Ok(()) => Ok(work()),
                Err(e) => Err(e.into()),
            }
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags given here do not unshare the file table, on which the safety of file descriptors rests.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Runs `work` in a separate thread and waits for it.
fn aside<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::skipped;

    fn inode(path: &Path) -> PathBuf {
        std::fs::read_link(path).unwrap()
    }

    #[test]
    fn a_thread_that_visits_leaves_the_others_where_they_are() {
        let before = inode(Path::new(HERE));
        let there = match Namespace::new() {
            // Root alone may.
            Err(e) => return skipped("name spaces of networks", e),
            Ok(there) => there,
        };
        let (inside, devices) = there
            .visit(|| {
                let devices = std::fs::read_dir("/sys/class/net").unwrap().map(|e| e.unwrap().file_name());
                (inode(Path::new(HERE)), devices.collect::<Vec<_>>())
            })
            .unwrap();
        assert_ne!(inside, before);
        assert_eq!(devices.iter().filter(|name| **name == *"lo").count(), 1, "{devices:?}");
        assert!(devices.iter().all(|name| !name.to_string_lossy().starts_with("eth")), "{devices:?}");
        assert_eq!(inode(Path::new(HERE)), before);
        // If /sys shows this network already, it stays as it is.
        let own = Namespace::here().unwrap().visit(|| inode(Path::new(HERE))).unwrap();
        assert_eq!(own, before);
        // Another process opens it by its path.
        let again = Namespace::open(&there.path()).unwrap();
        assert_eq!(again.visit(|| inode(Path::new(HERE))).unwrap(), inside);
    }
}
