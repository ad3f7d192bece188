//! A process family: a head that forks its children and waits for them, all in one process group. Many heads can fork side by side, and a grandparent
//! spends neither a file descriptor nor a wait on a head's child.
//!
//! Invariant: after a [`ProcessFamily`] is dropped none of its processes exists, not even as a zombie; and if the process that created it is killed,
//! the kernel kills the head, and with it all the others.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::process::{Exit, fork_child};

/// A family, as its creator sees it. Dropping it kills and reaps all its processes.
#[derive(Debug)]
pub struct ProcessFamily {
    head: Pid,
    /// Becomes readable when the head ends.
    end: OwnedFd,
    gone: bool,
}

/// The children of the head, as the head sees them.
#[derive(Debug, Default)]
pub struct Children {
    by_pid: BTreeMap<i32, usize>,
}

impl ProcessFamily {
    /// Forks the head of a family, which runs `body` and exits with the status it returns (101 if it panics). The requirements of [`fork_child`]
    /// apply. The caller becomes the reaper of its orphaned descendants (`PR_SET_CHILD_SUBREAPER`), so that the children of a killed head are reaped
    /// as well.
    pub fn fork_head(body: impl FnOnce(&mut Children) -> i32) -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let child = fork_child(|| match rustix::process::setpgid(None, None) {
            Ok(()) => body(&mut Children::default()),
            Err(_) => 1,
        })?;
        let head = child.pid();
        // Set here as well, because the group must exist before anyone may want to kill it. The head may already have ended.
        match rustix::process::setpgid(Some(head), Some(head)) {
            Ok(()) | Err(Errno::SRCH | Errno::ACCESS) => {}
            Err(e) => return Err(e.into()),
        }
        let end = rustix::process::pidfd_open(head, PidfdFlags::empty())?;
        child.leave();
        Ok(Self { head, end, gone: false })
    }

    /// The head's process number.
    pub fn head(&self) -> Pid {
        self.head
    }

    /// Kills every process of the family, without waiting for them to end.
    pub fn kill(&self) {
        // The head is not reaped yet, so its number, which is also the group's, is still in use. Fails only if all have ended.
        let _ = rustix::process::kill_process_group(self.head, Signal::KILL);
    }

    /// Waits for the head to end. Call it after the head's children have ended.
    pub fn wait(mut self) -> io::Result<Exit> {
        loop {
            match rustix::process::waitpid(Some(self.head), WaitOptions::empty()) {
                Ok(Some((_, status))) => {
                    self.gone = true;
                    return Ok(Exit::of(status));
                }
                Ok(None) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for ProcessFamily {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl Drop for ProcessFamily {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        self.kill();
        // The head's children become ours before it can be waited for, so "no child" means that none is left.
        while matches!(rustix::process::waitpgid(self.head, WaitOptions::empty()), Ok(_) | Err(Errno::INTR)) {}
    }
}

impl Children {
    /// Forks a child, known as `key`, as [`fork_child`] does.
    pub fn fork(&mut self, key: usize, body: impl FnOnce() -> i32) -> io::Result<()> {
        let child = fork_child(body)?;
        self.by_pid.insert(child.pid().as_raw_nonzero().get(), key);
        child.leave();
        Ok(())
    }

    /// Waits for the next child to end; `None` if there is none left.
    pub fn next_end(&mut self) -> io::Result<Option<(usize, Exit)>> {
        self.end(WaitOptions::empty())
    }

    /// Like [`Children::next_end`] without waiting: also `None` while none has ended.
    pub fn try_next_end(&mut self) -> io::Result<Option<(usize, Exit)>> {
        self.end(WaitOptions::NOHANG)
    }

    fn end(&mut self, options: WaitOptions) -> io::Result<Option<(usize, Exit)>> {
        while !self.by_pid.is_empty() {
            match rustix::process::wait(options) {
                Ok(Some((pid, status))) => {
                    if let Some(key) = self.by_pid.remove(&pid.as_raw_nonzero().get()) {
                        return Ok(Some((key, Exit::of(status))));
                    }
                }
                Ok(None) if options.contains(WaitOptions::NOHANG) => return Ok(None),
                Ok(None) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Duration;

    fn sleep() -> i32 {
        std::thread::sleep(Duration::from_secs(600));
        0
    }

    fn exists(pid: u32) -> bool {
        let pid = Pid::from_raw(pid as i32).unwrap();
        rustix::process::test_kill_process(pid) != Err(Errno::SRCH)
    }

    /// Creates a family of `n` sleepers and returns it with their process numbers.
    fn sleepers(segment: &Segment, n: usize) -> (ProcessFamily, Vec<u32>) {
        let pids = segment.many::<AtomicU32>(n);
        let family = ProcessFamily::fork_head(|children| {
            for (key, pid) in pids.iter().enumerate() {
                let body = || {
                    pid.store(std::process::id(), SeqCst);
                    sleep()
                };
                if children.fork(key, body).is_err() {
                    return 1;
                }
            }
            let _ = children.next_end();
            2
        })
        .unwrap();
        while pids.iter().any(|p| p.load(SeqCst) == 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let pids = pids.iter().map(|p| p.load(SeqCst)).collect();
        (family, pids)
    }

    #[test]
    fn the_head_hears_of_every_end() {
        let family = ProcessFamily::fork_head(|children| {
            for key in 0..20 {
                if children.fork(key, || key as i32 + 1).is_err() {
                    return 1;
                }
            }
            let mut seen = [false; 20];
            while let Ok(Some((key, exit))) = children.next_end() {
                seen[key] = exit == Exit::Status(key as i32 + 1);
            }
            if seen.iter().all(|s| *s) { 0 } else { 2 }
        });
        assert_eq!(family.unwrap().wait().unwrap(), Exit::Status(0));
    }

    #[test]
    fn a_dropped_family_is_gone() {
        let segment = Segment::new(4096).unwrap();
        let (family, pids) = sleepers(&segment, 10);
        drop(family);
        assert!(!pids.into_iter().any(exists));
    }

    #[test]
    fn children_of_a_killed_head_are_gone_too() {
        let segment = Segment::new(4096).unwrap();
        let (family, pids) = sleepers(&segment, 10);
        rustix::process::kill_process(family.head(), Signal::KILL).unwrap();
        drop(family);
        assert!(!pids.into_iter().any(exists));
    }

    #[test]
    fn a_killed_founder_leaves_nobody() {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
        let segment = Segment::new(8192).unwrap();
        let told = segment.many::<AtomicU32>(5);
        let founder = fork_child(|| {
            let inner = Segment::new(4096).unwrap();
            let (_family, pids) = sleepers(&inner, 5);
            for (to, pid) in told.iter().zip(pids) {
                to.store(pid, SeqCst);
            }
            sleep()
        })
        .unwrap();
        while told.iter().any(|p| p.load(SeqCst) == 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(founder);
        // The kernel kills them one after the other, not all at once. This process must now reap them.
        while told.iter().any(|p| exists(p.load(SeqCst))) {
            for p in told {
                let _ = rustix::process::waitpid(Pid::from_raw(p.load(SeqCst) as i32), WaitOptions::NOHANG);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
