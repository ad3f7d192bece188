//! Latches and events in memory that processes share: short mutual exclusion, and sleeping until a condition changes.
//!
//! Invariant: nothing here spins. A blocked process sleeps in the kernel on a futex until another wakes it, and no more processes are woken than can
//! proceed.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::futex;
use crate::futex::Scope;
use crate::segment::shared_struct;

/// What a process sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contended {
    /// A [`Latch`].
    Latch,
    /// A frame, latched for reading or for writing.
    Frame,
}

/// Called when a process must sleep; it sleeps by calling the function passed to it.
pub type Observer = fn(Contended, &mut dyn FnMut());

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Sets `observer`, which is then called for every sleep on a latch. Only the first observer is used.
pub fn observe(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

fn contended(what: Contended, mut sleep: impl FnMut()) {
    match OBSERVER.get() {
        Some(observer) => observer(what, &mut sleep),
        None => sleep(),
    }
}

shared_struct! {
    /// An event to wait for. The waiter takes a ticket, checks the condition, and waits with the ticket: a signal in between is never lost.
    pub struct EventCount {
        generation: AtomicU32,
        waiters: AtomicU32,
    }
}

impl EventCount {
    /// The ticket for [`EventCount::wait`]; take it before checking the condition.
    pub fn ticket(&self) -> u32 {
        self.generation.load(SeqCst)
    }

    /// Sleeps until a signal later than the ticket. May return early.
    pub fn wait(&self, ticket: u32) {
        self.waiters.fetch_add(1, SeqCst);
        sleep(&self.generation, ticket);
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Like [`EventCount::wait`], but only until the monotonic clock reaches `deadline`, in nanoseconds.
    pub fn wait_deadline(&self, ticket: u32, deadline: u64) {
        self.waiters.fetch_add(1, SeqCst);
        let woken = futex::wait_deadline(&self.generation, ticket, Scope::Shared, deadline);
        self.waiters.fetch_sub(1, SeqCst);
        woken.expect("a mapped and aligned word can be waited on");
    }

    /// Sleeps until `done` returns true; `done` must become true only before a signal.
    pub fn wait_until(&self, done: impl Fn() -> bool) {
        loop {
            let ticket = self.ticket();
            if done() {
                return;
            }
            self.wait(ticket);
        }
    }

    /// Like [`EventCount::wait`], but sleeps no longer than `timeout`.
    pub fn wait_timeout(&self, ticket: u32, timeout: Duration) {
        self.waiters.fetch_add(1, SeqCst);
        futex::wait(&self.generation, ticket, Scope::Shared, Some(timeout))
            .expect("a mapped and aligned word can be waited on");
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Wakes all waiters. Needs no system call if there are none.
    pub fn signal(&self) {
        self.signal_some(u32::MAX >> 1);
    }

    /// Wakes at most `count` waiters, longest waiting first, for an event that lets no more of them proceed. The others sleep on, so a process must
    /// signal again as long as [`EventCount::waiting`] is not 0.
    pub fn signal_some(&self, count: u32) {
        self.generation.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            wake(&self.generation, count);
        }
    }

    /// Number of processes waiting now.
    pub fn waiting(&self) -> u32 {
        self.waiters.load(SeqCst)
    }
}

shared_struct! {
    /// A mutual exclusion: 0 free, 1 held, 2 held with possible waiters (U. Drepper, "Futexes are tricky", mutex 2).
    pub struct Latch {
        word: AtomicU32,
    }
}

impl Latch {
    /// Takes the latch; it is free again when the guard is dropped. Not reentrant.
    pub fn lock(&self) -> Held<'_> {
        self.acquire(Contended::Latch);
        Held(self)
    }

    /// Takes the latch if it is free.
    pub fn try_lock(&self) -> Option<Held<'_>> {
        self.try_acquire().then(|| Held(self))
    }

    fn acquire(&self, what: Contended) {
        if !self.try_acquire() {
            contended(what, || self.wait());
        }
    }

    fn try_acquire(&self) -> bool {
        self.word.compare_exchange(0, 1, SeqCst, SeqCst).is_ok()
    }

    fn wait(&self) {
        while self.word.swap(2, SeqCst) != 0 {
            sleep(&self.word, 2);
        }
    }

    fn release(&self) {
        if self.word.swap(0, SeqCst) == 2 {
            wake(&self.word, 1);
        }
    }
}

/// A held [`Latch`].
pub struct Held<'a>(&'a Latch);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Set if a writer has the frame or waits for its readers to leave; the other bits count the readers.
const WRITER: u32 = 1 << 31;

shared_struct! {
    /// Many readers or one writer. A writer waits only for the readers that came before it: later processes queue at the gate, which admits them one
    /// after the other, so nobody is woken in vain.
    pub(super) struct RwLatch {
        state: AtomicU32,
        /// The writer holds the gate from before it waits for readers until it is done, so `WRITER` is set only while the gate is held.
        gate: Latch,
        /// The writer sleeps here until the last reader has left.
        drained: EventCount,
    }
}

impl RwLatch {
    pub(super) fn lock_shared(&self) {
        let enter = |s: u32| (s & WRITER == 0).then_some(s + 1);
        if self.state.fetch_update(SeqCst, SeqCst, enter).is_err() {
            self.gate.acquire(Contended::Frame);
            self.state.fetch_add(1, SeqCst);
            self.gate.release();
        }
    }

    pub(super) fn lock_exclusive(&self) {
        let drain = || self.drained.wait_until(|| self.state.load(SeqCst) == WRITER);
        if !self.gate.try_acquire() {
            contended(Contended::Frame, || {
                self.gate.wait();
                if self.state.fetch_or(WRITER, SeqCst) != 0 {
                    drain();
                }
            });
        } else if self.state.fetch_or(WRITER, SeqCst) != 0 {
            contended(Contended::Frame, drain);
        }
    }

    pub(super) fn unlock_shared(&self) {
        if self.state.fetch_sub(1, SeqCst) == WRITER + 1 {
            self.drained.signal();
        }
    }

    pub(super) fn unlock_exclusive(&self) {
        self.state.store(0, SeqCst);
        self.gate.release();
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
    use crate::process::{Child, Exit, fork_child};
    use crate::segment::Segment;
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
        let (there, back, turn) =
            (segment.one::<EventCount>(), segment.one::<EventCount>(), segment.one::<AtomicU32>());
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

    /// Sleeps in small steps until `condition` is true, for conditions without an event.
    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn readers_do_not_overtake_a_writer() {
        let segment = Segment::new(4096).unwrap();
        let (latch, order) = (segment.one::<RwLatch>(), segment.one::<AtomicU64>());
        let places = segment.many::<AtomicU64>(3);
        let arrive = |who: usize| places[who].store(order.fetch_add(1, SeqCst) + 1, SeqCst);
        for _ in 0..20 {
            latch.lock_shared();
            let writer = fork_child(|| {
                latch.lock_exclusive();
                arrive(0);
                latch.unlock_exclusive();
                0
            })
            .unwrap();
            until(|| latch.state.load(SeqCst) == WRITER + 1);
            let readers = [1, 2].map(|who| {
                fork_child(move || {
                    latch.lock_shared();
                    arrive(who);
                    latch.unlock_shared();
                    0
                })
                .unwrap()
            });
            // Both are at the gate, or have passed the writer.
            until(|| latch.gate.word.load(SeqCst) == 2 || order.load(SeqCst) > 0);
            latch.unlock_shared();
            for child in readers.into_iter().chain([writer]) {
                assert_eq!(child.wait().unwrap(), Exit::Status(0));
            }
            let place = |who: usize| places[who].load(SeqCst);
            assert!(place(0) < place(1) && place(0) < place(2), "{} {} {}", place(0), place(1), place(2));
            assert_eq!(latch.state.load(SeqCst) + latch.gate.word.load(SeqCst), 0);
            order.store(0, SeqCst);
        }
    }

    #[test]
    fn readers_who_never_leave_the_frame_alone_let_writers_in() {
        let segment = Segment::new(4096).unwrap();
        let (latch, inside, stop) = (segment.one::<RwLatch>(), segment.one::<AtomicU64>(), segment.one::<AtomicU32>());
        let readers: Vec<_> = (0..8)
            .map(|_| {
                fork_child(|| {
                    while stop.load(SeqCst) == 0 {
                        latch.lock_shared();
                        let seen = inside.load(SeqCst);
                        // With eight readers, at least one is inside at any time unless a writer keeps them out.
                        std::thread::yield_now();
                        let same = inside.load(SeqCst) == seen;
                        latch.unlock_shared();
                        if !same {
                            return 1;
                        }
                    }
                    0
                })
                .unwrap()
            })
            .collect();
        for _ in 0..300 {
            latch.lock_exclusive();
            inside.fetch_add(1, SeqCst);
            latch.unlock_exclusive();
        }
        stop.store(1, SeqCst);
        for r in readers {
            assert_eq!(r.wait().unwrap(), Exit::Status(0));
        }
    }

    #[test]
    fn no_more_are_woken_than_can_go_on() {
        let segment = Segment::new(4096).unwrap();
        let (event, tokens, looked) =
            (segment.one::<EventCount>(), segment.one::<AtomicU32>(), segment.one::<AtomicU32>());
        let take = || tokens.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
        let children: Vec<_> = (0..10)
            .map(|_| {
                fork_child(|| {
                    event.wait_until(|| {
                        looked.fetch_add(1, SeqCst);
                        take()
                    });
                    0
                })
                .unwrap()
            })
            .collect();
        // A waiting process may not be asleep yet: it would see the new generation and check once more. So each signal waits until all are
        // asleep, or have ended.
        let still = |child: &Child| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid().as_raw_nonzero())).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S") || rest.starts_with(" Z"))
        };
        until(|| event.waiting() == 10);
        for left in (0..10).rev() {
            until(|| children.iter().all(still));
            tokens.store(1, SeqCst);
            event.signal_some(1);
            until(|| tokens.load(SeqCst) == 0);
            until(|| event.waiting() == left);
        }
        for c in children {
            assert_eq!(c.wait().unwrap(), Exit::Status(0));
        }
        // If all were woken together, they would check 10 + 10 + 9 + … + 1 = 65 times.
        assert!(looked.load(SeqCst) < 40, "{}", looked.load(SeqCst));
    }

    #[test]
    fn who_queues_for_a_frame_is_woken_when_its_turn_has_come() {
        const PROCESSES: usize = 200;
        let segment = Segment::new(1 << 14).unwrap();
        let (latch, there) = (segment.one::<RwLatch>(), segment.one::<AtomicU64>());
        let switches = segment.many::<AtomicU64>(PROCESSES);
        latch.lock_exclusive();
        let children: Vec<_> = switches
            .iter()
            .map(|own| {
                fork_child(|| {
                    there.fetch_add(1, SeqCst);
                    latch.lock_exclusive();
                    // The frame is held across a sleep, as it is while a block is read into it.
                    std::thread::sleep(std::time::Duration::from_micros(100));
                    latch.unlock_exclusive();
                    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
                    let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:")).unwrap();
                    own.store(line.trim().parse().unwrap(), SeqCst);
                    0
                })
                .unwrap()
            })
            .collect();
        until(|| there.load(SeqCst) == PROCESSES as u64);
        latch.unlock_exclusive();
        for c in children {
            assert_eq!(c.wait().unwrap(), Exit::Status(0));
        }
        // Each needs one or two switches to get in and one for the sleep. If all were woken each time, there would be thousands.
        let all: u64 = switches.iter().map(|s| s.load(SeqCst)).sum();
        assert!(all < 6 * PROCESSES as u64, "{all} switches");
    }

    #[test]
    fn who_has_to_sleep_is_observed() {
        static SEEN: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
        let segment = Segment::new(4096).unwrap();
        let (latch, frame, gate) = (segment.one::<Latch>(), segment.one::<RwLatch>(), segment.one::<EventCount>());
        // In a separate process, because an observer is permanent.
        let observed = fork_child(|| {
            observe(|what, sleep| {
                SEEN[what as usize].fetch_add(1, SeqCst);
                sleep();
            });
            let seen = || [SEEN[0].load(SeqCst), SEEN[1].load(SeqCst)];
            drop(latch.lock());
            frame.lock_exclusive();
            frame.unlock_exclusive();
            frame.lock_shared();
            let free = seen();
            gate.signal();
            until(|| frame.gate.word.load(SeqCst) != 0);
            frame.unlock_shared();
            drop(latch.lock());
            i32::from(free != [0, 0] || seen() != [1, 0])
        })
        .unwrap();
        gate.wait_until(|| frame.state.load(SeqCst) == 1);
        let held = latch.lock();
        frame.lock_exclusive();
        until(|| latch.word.load(SeqCst) == 2);
        drop(held);
        frame.unlock_exclusive();
        assert_eq!(observed.wait().unwrap(), Exit::Status(0));
    }
}
