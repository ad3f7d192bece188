//! Starts a program and accounts for its resource use, with calls that rustix does not offer safely: `clone3` into a control group, `wait4`.
//!
//! Invariant: the program gets an empty standard input, the two given outputs, no other descriptor of this process, default signal dispositions and a
//! process group of its own; and the kernel kills it when the thread that started it ends.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags};

use super::process::Exit;

/// A program to start; everything is allocated in advance.
pub struct Program {
    /// Its path; there is no search.
    pub path: CString,
    pub argv: Vec<CString>,
    /// `NAME=VALUE`.
    pub environment: Vec<CString>,
    pub dir: CString,
}

/// A running program, as its parent sees it. It is reaped by [`reap`], by its number or with all children.
pub struct RunningProgram {
    pub pid: Pid,
    /// Becomes readable when it ends.
    pub end: OwnedFd,
}

/// The resources used by a process and by the descendants that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time.
    pub user_ns: u64,
    pub system_ns: u64,
    /// The largest resident memory of any of these processes.
    pub max_rss_bytes: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Bytes read from and written to block devices.
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Usage {
    /// The sum of both.
    pub fn and(self, other: Usage) -> Usage {
        Usage {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            max_rss_bytes: self.max_rss_bytes.max(other.max_rss_bytes),
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }

    fn of(usage: &libc::rusage) -> Usage {
        /// The unit of block I/O in getrusage(2).
        const SECTOR: u64 = 512;
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
        let count = |n: libc::c_long| n.max(0) as u64;
        Usage {
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
            max_rss_bytes: count(usage.ru_maxrss) * 1024,
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            read_bytes: count(usage.ru_inblock) * SECTOR,
            written_bytes: count(usage.ru_oublock) * SECTOR,
        }
    }
}

/// The resources used by all children of this process that were waited for, and by their waited-for descendants.
pub fn children_usage() -> Usage {
    // SAFETY: a structure of integers, for which all zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call, which cannot fail for this argument.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    Usage::of(&usage)
}

/// CPU time in nanoseconds, user and system, of all children of this process that were waited for, and of their waited-for descendants.
pub fn children_cpu_ns() -> u64 {
    let usage = children_usage();
    usage.user_ns + usage.system_ns
}

/// Forks a process that outlives the thread that forked it, in a session of its own: one that is to tidy up after its parent's death. It runs `body`
/// and exits with the status it returns (101 if it panics). To be called from a single-threaded process.
pub fn fork_guard(body: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: fork copies this thread alone, and the caller has no other. The child never returns from here.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let _ = rustix::process::setsid();
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
            super::process::exit_now(status)
        }
        pid => Pid::from_raw(pid).ok_or_else(|| io::ErrorKind::Other.into()),
    }
}

impl Program {
    /// Starts it with these outputs, in the control group whose folder the descriptor refers to.
    ///
    /// # Errors
    /// The system has no process left, or the program or its folder cannot be used; then the error is that of `execve` or `chdir`.
    pub fn start(
        &self,
        stdout: BorrowedFd<'_>,
        stderr: BorrowedFd<'_>,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> io::Result<RunningProgram> {
        let (failed, failed_in) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let null = rustix::fs::open(c"/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
        let pointers =
            |words: &[CString]| words.iter().map(|w| w.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
        let (argv, environment) = (pointers(&self.argv), pointers(&self.environment));
        let parent = std::process::id() as libc::pid_t;
        let fds = [null.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd(), failed_in.as_raw_fd()];
        let pid = match clone_into(cgroup)? {
            0 => {
                let error = become_program(&self.path, &argv, &environment, &self.dir, parent, fds);
                let bytes = error.to_ne_bytes();
                // SAFETY: writes from an array that lives here to the descriptor that `become_program` put there.
                unsafe { libc::write(FAILED, bytes.as_ptr().cast(), bytes.len()) };
                super::process::exit_now(127)
            }
            pid => Pid::from_raw(pid).ok_or(io::ErrorKind::Other)?,
        };
        drop(failed_in);
        let mut error = [0; 4];
        // The read ends without a byte when the program has been executed.
        if let Ok(4) = rustix::io::retry_on_intr(|| rustix::io::read(&failed, &mut error)) {
            reap(Some(pid))?;
            return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)));
        }
        let end = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(RunningProgram { pid, end })
    }
}

/// The descriptor on which a child reports why it cannot execute its program.
const FAILED: libc::c_int = 3;

/// Of `linux/sched.h`, since 5.7.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `fork`, into a control group if one is given: moving the process later would wait for a grace period of the kernel.
fn clone_into(cgroup: Option<BorrowedFd<'_>>) -> io::Result<libc::pid_t> {
    let Some(cgroup) = cgroup else {
        // SAFETY: the caller's child makes system calls only, until it executes or exits.
        let pid = unsafe { libc::fork() };
        return if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
    };
    // SAFETY: a structure of integers, for which all zero is a value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.cgroup = cgroup.as_raw_fd() as u64;
    // SAFETY: without CLONE_VM and a stack this is a fork; the caller's child makes system calls only, until it executes or exits.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid as libc::pid_t) }
}

/// In the child: sets up the program's environment and executes it. Returns the error number if that fails.
fn become_program(
    path: &CString,
    argv: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    dir: &CString,
    parent: libc::pid_t,
    fds: [libc::c_int; 4],
) -> i32 {
    let last = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    // SAFETY: system calls only, on strings and arrays that outlive them and end with a null.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() != parent {
            super::process::exit_now(127);
        }
        // Not a session: the kernel's autogroups would put each run behind all other processes that wait for a CPU.
        libc::setpgid(0, 0);
        // First to numbers above all targets, so that none is overwritten before it is copied.
        let mut high = [0; 4];
        for (to, from) in high.iter_mut().zip(fds) {
            *to = libc::fcntl(from, libc::F_DUPFD_CLOEXEC, 16);
            if *to < 0 {
                return last();
            }
        }
        for (to, from) in (0..).zip(high) {
            if libc::dup2(from, to) < 0 {
                return last();
            }
        }
        libc::fcntl(FAILED, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::syscall(libc::SYS_close_range, FAILED + 1, libc::c_int::MAX, 0);
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        if libc::chdir(dir.as_ptr()) != 0 {
            return last();
        }
        libc::execve(path.as_ptr(), argv.as_ptr(), environment.as_ptr());
    }
    last()
}

/// Waits for a child (any child, if none is given) to end and reaps it; returns its number, exit and resource use.
///
/// # Errors
/// `ECHILD` if there is no such child.
pub fn reap(child: Option<Pid>) -> io::Result<(Pid, Exit, Usage)> {
    loop {
        if let Some(reaped) = wait4(child, 0)? {
            return Ok(reaped);
        }
    }
}

/// [`reap`] without waiting: `None` while no such child has ended.
///
/// # Errors
/// As [`reap`].
pub fn try_reap(child: Option<Pid>) -> io::Result<Option<(Pid, Exit, Usage)>> {
    wait4(child, libc::WNOHANG)
}

fn wait4(child: Option<Pid>, options: libc::c_int) -> io::Result<Option<(Pid, Exit, Usage)>> {
    let mut status = 0;
    // SAFETY: a structure of integers, for which all zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let number = child.map_or(-1, |pid| pid.as_raw_nonzero().get());
    loop {
        // SAFETY: both pointers are to values that outlive the call.
        let pid = unsafe { libc::wait4(number, &raw mut status, options, &raw mut usage) };
        if pid < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
        let exit = if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Status(libc::WEXITSTATUS(status))
        };
        return Ok(Some((pid, exit, Usage::of(&usage))));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn program(path: &str, args: &[&str]) -> Program {
        let text = |s: &str| CString::new(s).unwrap();
        Program {
            path: text(path),
            argv: [path].iter().chain(args).map(|a| text(a)).collect(),
            environment: vec![text("GREETING=hello")],
            dir: text("/usr"),
        }
    }

    fn start(program: &Program, out: &std::fs::File) -> io::Result<RunningProgram> {
        program.start(out.as_fd(), out.as_fd(), None)
    }

    #[test]
    fn a_program_gets_what_it_was_given_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let out = std::fs::File::create(&path).unwrap();
        let script = "echo $GREETING; pwd; cat; ls -l /proc/$$/fd | grep -c '[0-9] ->'";
        let running = start(&program("/bin/sh", &["-c", script]), &out).unwrap();
        let (pid, exit, usage) = reap(Some(running.pid)).unwrap();
        assert_eq!((pid, exit), (running.pid, Exit::Status(0)));
        assert!(usage.max_rss_bytes > 100 << 10 && usage.minor_faults > 10, "{usage:?}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "hello\n/usr\n3\n");
    }

    #[test]
    fn what_cannot_be_executed_says_why() {
        let out = tempfile::tempfile().unwrap();
        let error = start(&program("/nonexistent", &[]), &out).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = start(&program("/etc/passwd", &[]), &out).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn usage_is_summed_and_memory_is_not() {
        let one = Usage { user_ns: 1, max_rss_bytes: 5, written_bytes: 512, ..Usage::default() };
        let two = Usage { user_ns: 2, max_rss_bytes: 3, written_bytes: 512, ..Usage::default() };
        let both = one.and(two);
        assert_eq!((both.user_ns, both.max_rss_bytes, both.written_bytes), (3, 5, 1024));
    }
}
