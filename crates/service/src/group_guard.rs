//! A process that kills a server's processes if bigiron is killed: those of nginx and Apache go on when their first process is.
//!
//! Invariant: a group is killed only while its first process is known to be alive or unreaped, or by the guard, which ends before the group's number
//! can be used again.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use bigiron_sys::launch;

/// The guard, as its creator sees it. Dropping it ends it, and leaves the group alone.
#[derive(Debug)]
pub(crate) struct GroupGuard {
    pid: Pid,
    line: Option<UnixStream>,
}

impl GroupGuard {
    /// Guards a process group.
    ///
    /// # Errors
    /// The system has no process or descriptor left.
    pub(crate) fn start(group: Pid) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        let mut ours = Some(ours);
        // The child only reads and kills, so that other threads of this process do not matter.
        let pid = launch::fork_guard(|| {
            // The child's copy of this end would keep the connection open.
            ours.take();
            let mut byte = [0];
            loop {
                match rustix::io::read(&its, &mut byte) {
                    Err(Errno::INTR) => {}
                    // Told to leave.
                    Ok(1) => return 0,
                    _ => break,
                }
            }
            let _ = kill_process_group(group, Signal::KILL);
            0
        })?;
        Ok(Self { pid, line: ours.take() })
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if let Some(mut line) = self.line.take() {
            let _ = line.write_all(&[1]);
        }
        let _ = launch::reap(Some(self.pid));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_group_ends_with_its_creator_and_not_with_its_guard() {
        let mut first = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let group = Pid::from_child(&first);
        drop(GroupGuard::start(group).unwrap());
        assert!(first.try_wait().unwrap().is_none());
        let mut guard = GroupGuard::start(group).unwrap();
        // As if this process had been killed.
        guard.line.take();
        assert!(!first.wait().unwrap().success());
    }
}
