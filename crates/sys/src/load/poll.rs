//! Waits for sockets, for a time, or for the end, whichever comes first.
//!
//! Invariant: a wait never ends before its deadline unless something happened, and nothing is polled in between.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use super::now_ns;

/// The number of the stop event.
const STOP: u64 = u64::MAX;
/// Events taken at once.
const EVENTS: usize = 256;

/// Wakes every waiting thread, permanently.
pub struct Stop(OwnedFd);

impl Stop {
    /// # Errors
    /// If no descriptor is free.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    pub fn wake(&self) {
        // A full counter wakes the threads just as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// The events that a thread waits for.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    /// # Errors
    /// If no descriptor is free.
    pub fn new(stop: &Stop) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // Once is enough.
        epoll::add(&epoll, &stop.0, EventData::new_u64(STOP), EventFlags::IN | EventFlags::ONESHOT)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS) })
    }

    /// Waits for input on `fd`, which is identified by `number`.
    pub fn add(&self, fd: BorrowedFd<'_>, number: usize) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(number as u64), EventFlags::IN)?)
    }

    /// Starts or stops waiting for room for output as well.
    pub fn output(&self, fd: BorrowedFd<'_>, number: usize, wanted: bool) -> io::Result<()> {
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(number as u64), flags)?)
    }

    /// Waits until an event or `deadline`, in nanoseconds of [`now_ns`]. The numbers of ready descriptors are stored in `ready`.
    pub fn wait(&mut self, deadline: Option<u64>, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        let timeout = deadline.map(|at| timespec(at.saturating_sub(now_ns())));
        self.events.clear();
        let waited =
            match epoll::wait(self.epoll.as_fd(), rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
                // Kernels before 5.11 support only whole milliseconds.
                Err(Errno::NOSYS) => {
                    let rounded =
                        timeout.map(|t| Timespec { tv_nsec: (t.tv_nsec + 999_999) / 1_000_000 * 1_000_000, ..t });
                    let rounded = rounded.map(|t| Timespec {
                        tv_sec: t.tv_sec + t.tv_nsec / 1_000_000_000,
                        tv_nsec: t.tv_nsec % 1_000_000_000,
                    });
                    epoll::wait(self.epoll.as_fd(), rustix::buffer::spare_capacity(&mut self.events), rounded.as_ref())
                }
                waited => waited,
            };
        match waited {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let numbers = self.events.iter().map(|e| e.data.u64()).filter(|n| *n != STOP);
        ready.extend(numbers.map(|n| n as usize));
        Ok(())
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_wait_ends_with_input_with_time_or_with_the_end() {
        let stop = Stop::new().unwrap();
        let mut poll = Poll::new(&stop).unwrap();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        poll.add(near.as_fd(), 7).unwrap();
        let mut ready = Vec::new();
        let at = now_ns() + 1_500_000;
        poll.wait(Some(at), &mut ready).unwrap();
        assert!(now_ns() >= at && ready.is_empty());
        far.write_all(b"x").unwrap();
        poll.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [7]);
        poll.output(near.as_fd(), 7, true).unwrap();
        poll.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [7]);
        // Not closed instead: a process that another test forks at this moment would keep the socket open and ready.
        poll.output(near.as_fd(), 7, false).unwrap();
        near.read_exact(&mut [0]).unwrap();
        stop.wake();
        poll.wait(None, &mut ready).unwrap();
        assert!(ready.is_empty());
        // Once reported, it does not affect later waits.
        let at = now_ns() + 1_000_000;
        poll.wait(Some(at), &mut ready).unwrap();
        assert!(now_ns() >= at);
    }
}
