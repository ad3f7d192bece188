//! The CPU time of a process or thread, and the time for which a thread was ready to run without a CPU.
//!
//! Invariant: times are the scheduler's own count (nanoseconds), not the tick-sampled user and system time of /proc.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

/// CPU time, user and system, that process `pid` has used so far.
pub fn cpu_time(pid: Pid) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: writes one clock id to the pointer given.
    match unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &raw mut clock) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec to the pointer given.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// CPU time, user and system, that the calling thread has used so far.
pub fn thread_cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// CPU time of a thread, in total and divided into user and system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCpu {
    /// The scheduler's count.
    pub total: Duration,
    /// The kernel's division (`getrusage`): exact, or sampled at ticks, depending on the kernel's configuration.
    pub user: Duration,
    pub system: Duration,
}

impl ThreadCpu {
    /// The time used so far by the calling thread.
    pub fn now() -> Self {
        // SAFETY: all zeros is a value of this plain structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: writes one rusage to the pointer given. It cannot fail for the calling thread.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        Self { total: thread_cpu_time(), user: time(usage.ru_utime), system: time(usage.ru_stime) }
    }

    /// The time used since `earlier`.
    pub fn since(&self, earlier: Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    /// The sum of the times of two threads.
    pub fn plus(&self, other: Self) -> Self {
        Self { total: self.total + other.total, user: self.user + other.user, system: self.system + other.system }
    }
}

/// The time for which one thread has been ready to run without a CPU.
pub struct RunDelay {
    schedstat: File,
}

impl RunDelay {
    /// The calling thread's; `None` if the kernel does not count it (built without `CONFIG_SCHED_INFO`).
    pub fn of_this_thread() -> Option<Self> {
        let delay = Self { schedstat: File::open("/proc/thread-self/schedstat").ok()? };
        delay.read().map(|_| delay)
    }

    /// Nanoseconds so far, until the thread last got a CPU.
    pub fn read(&self) -> Option<u64> {
        let mut text = [0; 96];
        let n = self.schedstat.read_at(&mut text, 0).ok()?;
        run_delay(std::str::from_utf8(&text[..n]).ok()?)
    }
}

/// The second of the three numbers of /proc/PID/schedstat (time on CPU, run delay, time slices). If the kernel does not count them, all three are 0:
/// a thread that reads this has had at least one time slice.
fn run_delay(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace().map(str::parse);
    let (_, delay, slices) = (words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?);
    let _: (u64, u64) = (delay, slices);
    (slices > 0).then_some(delay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::skipped;

    #[test]
    fn work_is_counted() {
        let me = rustix::process::getpid();
        let before = cpu_time(me).unwrap();
        let mut x = 1u64;
        for i in 0..2_000_000u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1));
        }
        assert!(cpu_time(me).unwrap() > before);
    }

    #[test]
    fn a_threads_time_is_divided() {
        let before = ThreadCpu::now();
        while thread_cpu_time() < before.total + Duration::from_millis(30) {}
        let used = ThreadCpu::now().since(before);
        assert!(used.total >= Duration::from_millis(30));
        // User and system time may be sampled at a tick of 10 ms.
        assert!(used.user + used.system >= Duration::from_millis(10), "{used:?}");
        assert_eq!(used.plus(used).total, used.total * 2);
    }

    #[test]
    fn run_delay_is_the_second_number() {
        assert_eq!(run_delay("123456 789 12\n"), Some(789));
        assert_eq!(run_delay("0 0 0\n"), None);
        assert_eq!(run_delay("123456\n"), None);
    }

    #[test]
    fn a_threads_own_work_is_counted() {
        let before = thread_cpu_time();
        while thread_cpu_time() < before + Duration::from_millis(2) {}
        match RunDelay::of_this_thread() {
            Some(delay) => assert!(delay.read().is_some()),
            None => skipped("delays of threads", "the kernel does not count them"),
        }
    }
}
