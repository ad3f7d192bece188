//! Wakes all waiters for the same condition with one system call.
//!
//! Invariant: a sleeper is never forgotten, and a call needs no system call if nobody sleeps. Only the first sleeper since the last call and the
//! caller change the word, and waiters, however many, do not contend for its cache line.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::futex;
use crate::futex::Scope;
use crate::segment::shared_struct;

/// Set in the word: somebody sleeps, or is about to. The bits above it count calls.
const ASLEEP: u32 = 1;

shared_struct! {
    /// A word to sleep on, in a cache line of its own, for processes that one other process calls (an eventcount, as D. Reed and
    /// R. Kanodia describe it).
    pub struct Broadcast {
        word: AtomicU32,
        unused: [AtomicU32; 15],
    }
}

impl Broadcast {
    /// Sleeps until `done` returns true; `done` must become true only before a call.
    pub fn wait_until(&self, done: impl Fn() -> bool) {
        loop {
            let word = self.word.load(Acquire);
            if done() {
                return;
            }
            let asleep = word | ASLEEP;
            if word == asleep || self.word.compare_exchange(word, asleep, AcqRel, Acquire).is_ok() {
                futex::wait(&self.word, asleep, Scope::Shared, None)
                    .expect("a mapped and aligned word can be waited on");
            }
        }
    }

    /// Wakes all sleepers.
    pub fn call(&self) {
        let next = |word: u32| Some((word | ASLEEP).wrapping_add(1));
        let before = self.word.fetch_update(AcqRel, Acquire, next).expect("there always is a next one");
        if before & ASLEEP != 0 {
            futex::wake(&self.word, u32::MAX >> 1, Scope::Shared).expect("a mapped and aligned word can be woken");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, fork_child};
    use crate::segment::Segment;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn nobody_sleeps_through_a_call() {
        const ROUNDS: u64 = 3_000;
        const PROCESSES: u64 = 5;
        let segment = Segment::new(4096).unwrap();
        let (there, back) = (segment.one::<Broadcast>(), segment.one::<Broadcast>());
        let (round, done) = (segment.one::<AtomicU64>(), segment.one::<AtomicU64>());
        let children: Vec<_> = (0..PROCESSES)
            .map(|_| {
                fork_child(|| {
                    for i in 1..=ROUNDS {
                        there.wait_until(|| round.load(SeqCst) >= i);
                        // Only one of them calls at a time: the one that finishes last.
                        if done.fetch_add(1, SeqCst) + 1 == i * PROCESSES {
                            back.call();
                        }
                    }
                    0
                })
                .unwrap()
            })
            .collect();
        for i in 1..=ROUNDS {
            round.store(i, SeqCst);
            there.call();
            back.wait_until(|| done.load(SeqCst) == i * PROCESSES);
        }
        for c in children {
            assert_eq!(c.wait().unwrap(), Exit::Status(0));
        }
    }

    #[test]
    fn calls_are_counted_over_the_end_of_the_word() {
        let segment = Segment::new(4096).unwrap();
        let broadcast = segment.one::<Broadcast>();
        for (before, after) in [(0, 2), (1, 2), (u32::MAX - 1, 0), (u32::MAX, 0)] {
            broadcast.word.store(before, SeqCst);
            broadcast.call();
            assert_eq!(broadcast.word.load(SeqCst), after);
        }
    }
}
