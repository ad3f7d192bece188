//! Child processes made by `fork`, which has no safe form in rustix.
//!
//! Invariant: a [`Child`] is reaped exactly once: by [`Child::wait`], by [`Child::try_wait`], or (killed first) when dropped.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Status(i32),
    /// A signal of this number ended it.
    Signal(i32),
}

impl Exit {
    /// An error that names `what` unless the child exited with status 0.
    pub fn success(self, what: &str) -> io::Result<()> {
        match self {
            Exit::Status(0) => Ok(()),
            Exit::Status(n) => Err(io::Error::other(format!("{what} ended with status {n}"))),
            Exit::Signal(n) => Err(io::Error::other(format!("{what} was ended by signal {n}"))),
        }
    }

    pub(super) fn of(status: WaitStatus) -> Self {
        match status.exit_status() {
            Some(n) => Exit::Status(n),
            None => Exit::Signal(status.terminating_signal().unwrap_or(0)),
        }
    }
}

/// A child process. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    reaped: bool,
}

impl Child {
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the child to end.
    pub fn wait(mut self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.reap(WaitOptions::empty())? {
                return Ok(exit);
            }
        }
    }

    /// How the child ended, or `None` if it still runs. Must not be called again after it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.reap(WaitOptions::NOHANG)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.reaped {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(rustix::process::kill_process(self.pid, signal)?)
    }

    /// Releases the child: the caller reaps it by other means, by its number or with all children.
    pub(super) fn leave(mut self) {
        self.reaped = true;
    }

    fn reap(&mut self, options: WaitOptions) -> io::Result<Option<Exit>> {
        if self.reaped {
            return Err(io::ErrorKind::NotFound.into());
        }
        match rustix::process::waitpid(Some(self.pid), options) {
            Ok(Some((_, status))) => {
                self.reaped = true;
                Ok(Some(Exit::of(status)))
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => Ok(None),
            Err(e) => {
                // ECHILD: another caller has reaped it; its number may already belong to another process.
                self.reaped = true;
                Err(e.into())
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            while !self.reaped {
                let _ = self.reap(WaitOptions::empty());
            }
        }
    }
}

/// Forks a child that runs `body` and exits with the status it returns (101 if it panics), without running any destructor or exit handler of the
/// parent. The child is killed when the thread that forked it ends, so a killed parent leaves no processes behind.
///
/// `body` should not print: a lock of the standard streams that another thread held at the fork stays held in the child. Call it from a
/// single-threaded process, or (as the tests do) with a body that takes no lock except the allocator's, which musl keeps usable across a fork.
pub fn fork_child(body: impl FnOnce() -> i32) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    fork(|| {
        if rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_err()
            || rustix::process::getppid() != Some(parent)
        {
            return 1;
        }
        catch_unwind(AssertUnwindSafe(body)).unwrap_or(101)
    })
}

/// Ends the process at once, with all its threads, without running any destructor: for children made by [`fork_child`], whose destructors would touch
/// what they share with their parent.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process without running anything.
    unsafe { libc::_exit(status) }
}

/// Forks a child that only exits with status 0: for measuring the cost of `fork`.
pub fn fork_exit() -> io::Result<Child> {
    fork(|| 0)
}

fn fork(body: impl FnOnce() -> i32) -> io::Result<Child> {
    // SAFETY: fork copies this thread alone. The caller of `fork_child` is single-threaded or its body takes no lock that
    // another thread may hold; the other bodies make system calls only. The child never returns from here: it leaves by
    // _exit, so nothing of the parent's is dropped or flushed twice.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => exit_now(body()),
        pid => Ok(Child { pid: Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?, reaped: false }),
    }
}

/// A program with its arguments, prepared for `execve` so that starting it costs only the system calls.
pub struct Program {
    path: CString,
    argv: Vec<CString>,
}

impl Program {
    /// `path` with `args` after its own name, and an empty environment.
    pub fn new(path: &Path, args: &[&str]) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut argv = vec![path.clone()];
        for a in args {
            argv.push(CString::new(*a)?);
        }
        Ok(Self { path, argv })
    }

    /// Forks and executes it. A child that cannot execute ends with status 127.
    pub fn fork_exec(&self) -> io::Result<Child> {
        let argv: Vec<_> = self.argv.iter().map(|a| a.as_ptr()).chain([std::ptr::null()]).collect();
        let environment = [std::ptr::null()];
        fork(|| {
            // SAFETY: the strings live in self and both arrays, made before the fork, end with a null pointer.
            unsafe { libc::execve(self.path.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
            127
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_reports_its_status() {
        assert_eq!(fork_child(|| 42).unwrap().wait().unwrap(), Exit::Status(42));
        assert_eq!(fork_exit().unwrap().wait().unwrap(), Exit::Status(0));
        assert_eq!(
            fork_child(|| 3).unwrap().wait().unwrap().success("Reader").unwrap_err().to_string(),
            "Reader ended with status 3"
        );
    }

    #[test]
    fn a_dropped_child_is_killed_and_reaped() {
        let child = fork_child(|| {
            std::thread::sleep(std::time::Duration::from_secs(600));
            0
        })
        .unwrap();
        let pid = child.pid();
        drop(child);
        assert_eq!(rustix::process::test_kill_process(pid).unwrap_err(), rustix::io::Errno::SRCH);
    }

    #[test]
    fn a_signal_is_told_from_a_status() {
        let mut child = fork_child(|| {
            std::thread::sleep(std::time::Duration::from_secs(600));
            0
        })
        .unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        child.signal(Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap(), Exit::Signal(15));
    }

    #[test]
    fn a_program_is_executed() {
        let shell = Path::new("/bin/sh");
        let run = |script| Program::new(shell, &["-c", script]).unwrap().fork_exec().unwrap().wait().unwrap();
        assert_eq!(run("exit 5"), Exit::Status(5));
        let absent = Program::new(Path::new("/nonexistent/program"), &[]).unwrap();
        assert_eq!(absent.fork_exec().unwrap().wait().unwrap(), Exit::Status(127));
    }
}
