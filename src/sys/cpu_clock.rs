//! The CPU time of another process.
//!
//! Invariant: it is the scheduler's own count (nanoseconds), not the tick-sampled user and system time of /proc.

use std::io;
use std::time::Duration;

use rustix::process::Pid;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
