//! Latches and events in memory that processes share: short exclusion, and sleeping until something has changed.
//!
//! Invariant: nothing here spins. Who cannot go on sleeps in the kernel on a futex until the one who can let it go on says so.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::sys::futex::{self, Scope};
use crate::sys::segment::shared_struct;

shared_struct! {
    /// Something that others wait for. The waiter takes a ticket, looks whether it has to wait, and waits with the ticket: a
    /// signal in between is never lost.
    pub struct Event {
        generation: AtomicU32,
        waiters: AtomicU32,
    }
}

impl Event {
    /// What [`Event::wait`] needs; to be taken before looking at what is waited for.
    pub fn ticket(&self) -> u32 {
        self.generation.load(SeqCst)
    }

    /// Sleeps until a signal that is younger than the ticket. May return early.
    pub fn wait(&self, ticket: u32) {
        self.waiters.fetch_add(1, SeqCst);
        sleep(&self.generation, ticket);
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Sleeps until `done` says so; `done` must become true only ahead of a signal.
    pub fn wait_until(&self, done: impl Fn() -> bool) {
        loop {
            let ticket = self.ticket();
            if done() {
                return;
            }
            self.wait(ticket);
        }
    }

    /// Like [`Event::wait`], but sleeps no longer than `timeout`.
    pub fn wait_timeout(&self, ticket: u32, timeout: Duration) {
        self.waiters.fetch_add(1, SeqCst);
        futex::wait(&self.generation, ticket, Scope::Shared, Some(timeout))
            .expect("a mapped and aligned word can be waited on");
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Wakes everybody who waits. Costs no system call if nobody does.
    pub fn signal(&self) {
        self.generation.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            wake(&self.generation, u32::MAX >> 1);
        }
    }
}

shared_struct! {
    /// A mutual exclusion: 0 free, 1 held, 2 held and somebody may be waiting (U. Drepper, "Futexes are tricky", mutex 2).
    pub struct Latch {
        word: AtomicU32,
    }
}

impl Latch {
    /// Takes the latch; it is free again when the guard is dropped. Not reentrant.
    pub fn lock(&self) -> Held<'_> {
        if self.word.compare_exchange(0, 1, SeqCst, SeqCst).is_err() {
            while self.word.swap(2, SeqCst) != 0 {
                sleep(&self.word, 2);
            }
        }
        Held(self)
    }
}

/// A held [`Latch`].
pub struct Held<'a>(&'a Latch);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.word.swap(0, SeqCst) == 2 {
            wake(&self.0.word, 1);
        }
    }
}

const WRITER: u32 = 1 << 31;

shared_struct! {
    /// Many readers or one writer. Readers may overtake a waiting writer: holders are to be brief.
    pub(super) struct RwLatch {
        state: AtomicU32,
        freed: Event,
    }
}

impl RwLatch {
    pub(super) fn lock_shared(&self) {
        self.lock(|s| (s & WRITER == 0).then_some(s + 1));
    }

    pub(super) fn lock_exclusive(&self) {
        self.lock(|s| (s == 0).then_some(WRITER));
    }

    fn lock(&self, next: impl Fn(u32) -> Option<u32>) {
        loop {
            let ticket = self.freed.ticket();
            if self.state.fetch_update(SeqCst, SeqCst, &next).is_ok() {
                return;
            }
            self.freed.wait(ticket);
        }
    }

    pub(super) fn unlock_shared(&self) {
        if self.state.fetch_sub(1, SeqCst) == 1 {
            self.freed.signal();
        }
    }

    pub(super) fn unlock_exclusive(&self) {
        self.state.store(0, SeqCst);
        self.freed.signal();
    }
}

fn sleep(word: &AtomicU32, expected: u32) {
    futex::wait(word, expected, Scope::Shared, None).expect("a mapped and aligned word can be waited on");
}

fn wake(word: &AtomicU32, count: u32) {
    futex::wake(word, count, Scope::Shared).expect("a mapped and aligned word can be woken");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::process::{Exit, fork_child};
    use crate::sys::segment::Segment;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_latch_excludes_processes() {
        let segment = Segment::new(4096).unwrap();
        let (latch, count) = (segment.one::<Latch>(), segment.one::<AtomicU64>());
        let children: Vec<_> = (0..4)
            .map(|_| {
                fork_child(|| {
                    for _ in 0..20_000 {
                        let _held = latch.lock();
                        // Not one atomic step: without the latch increments would be lost.
                        count.store(count.load(Relaxed) + 1, Relaxed);
                    }
                    0
                })
                .unwrap()
            })
            .collect();
        for c in children {
            assert_eq!(c.wait().unwrap(), Exit::Status(0));
        }
        assert_eq!(count.load(SeqCst), 80_000);
    }

    #[test]
    fn a_signal_after_the_ticket_is_not_lost() {
        let segment = Segment::new(4096).unwrap();
        let (there, back, turn) = (segment.one::<Event>(), segment.one::<Event>(), segment.one::<AtomicU32>());
        let child = fork_child(|| {
            for i in 0..5_000 {
                there.wait_until(|| turn.load(SeqCst) == 2 * i + 1);
                turn.store(2 * i + 2, SeqCst);
                back.signal();
            }
            0
        })
        .unwrap();
        for i in 0..5_000 {
            turn.store(2 * i + 1, SeqCst);
            there.signal();
            back.wait_until(|| turn.load(SeqCst) == 2 * i + 2);
        }
        assert_eq!(child.wait().unwrap(), Exit::Status(0));
    }
}
