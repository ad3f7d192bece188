//! Sleeping on a word of memory, within a process or between processes.
//!
//! Invariant: a wait returns only for a reason the caller must check for itself (woken, value changed, signal, time-out), so
//! every use is a loop around the word's value.

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

/// Who shares the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of this process: the kernel keys the wait by address.
    Process,
    /// Any process that maps the page (see [`SharedMemory`](super::shared_memory::SharedMemory)).
    Shared,
}

impl Scope {
    fn flags(self) -> Flags {
        match self {
            Scope::Process => Flags::PRIVATE,
            Scope::Shared => Flags::empty(),
        }
    }
}

/// Sleeps while `word` is `expected`, until woken or `timeout` has passed. Returns at once if the value differs; returns early if a signal arrives.
/// `Ok(false)` means that the time-out passed.
pub fn wait(word: &AtomicU32, expected: u32, scope: Scope, timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = match timeout {
        Some(t) => Some(Timespec::try_from(t).map_err(|_| io::ErrorKind::InvalidInput)?),
        None => None,
    };
    match futex::wait(word, scope.flags(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(true),
        Err(Errno::TIMEDOUT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Sleeps while `word` is `expected`, until woken or the monotonic clock reaches `deadline`, in nanoseconds: no drift, however often the sleep is
/// resumed. Otherwise like [`wait`].
pub fn wait_deadline(word: &AtomicU32, expected: u32, scope: Scope, deadline: u64) -> io::Result<bool> {
    let deadline = Timespec::try_from(Duration::from_nanos(deadline)).map_err(|_| io::ErrorKind::InvalidInput)?;
    // Unlike FUTEX_WAIT, FUTEX_WAIT_BITSET takes an absolute time.
    match futex::wait_bitset(word, scope.flags(), expected, Some(&deadline), NonZeroU32::MAX) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(true),
        Err(Errno::TIMEDOUT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Wakes up to `count` sleepers on `word` and returns how many there were.
pub fn wake(word: &AtomicU32, count: u32, scope: Scope) -> io::Result<usize> {
    Ok(futex::wake(word, scope.flags(), count)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, fork_child};
    use crate::shared_memory::SharedMemory;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn a_wait_ends_by_value_and_by_time() {
        let word = AtomicU32::new(1);
        assert!(wait(&word, 0, Scope::Process, None).unwrap());
        assert!(!wait(&word, 1, Scope::Process, Some(Duration::from_millis(1))).unwrap());
    }

    #[test]
    fn a_deadline_is_a_time_of_day_of_the_monotonic_clock() {
        let word = AtomicU32::new(1);
        let now = || rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let ns = |t: Timespec| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64;
        let deadline = ns(now()) + 2_000_000;
        assert!(wait_deadline(&word, 0, Scope::Process, deadline).unwrap());
        assert!(!wait_deadline(&word, 1, Scope::Process, deadline).unwrap());
        assert!(ns(now()) >= deadline);
        assert!(!wait_deadline(&word, 1, Scope::Process, 0).unwrap());
    }

    #[test]
    fn processes_wake_each_other() {
        let memory = SharedMemory::new(4096).unwrap();
        let words = memory.slice::<AtomicU32>(0, 2);
        let child = fork_child(|| {
            while words[0].load(SeqCst) == 0 {
                if wait(&words[0], 0, Scope::Shared, None).is_err() {
                    return 1;
                }
            }
            words[1].store(7, SeqCst);
            if wake(&words[1], 1, Scope::Shared).is_err() { 1 } else { 0 }
        })
        .unwrap();
        words[0].store(1, SeqCst);
        wake(&words[0], 1, Scope::Shared).unwrap();
        while words[1].load(SeqCst) == 0 {
            wait(&words[1], 0, Scope::Shared, None).unwrap();
        }
        assert_eq!(words[1].load(SeqCst), 7);
        assert_eq!(child.wait().unwrap(), Exit::Status(0));
    }
}
