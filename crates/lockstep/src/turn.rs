//! The turns: the vCPU thread runs until it waits; then the main loop runs until it wakes the vCPU thread.
//!
//! Invariant: [`Turn::park`] reports a wait of the vCPU thread that a pass of the main loop out of turn may have shifted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::MainLoopTimeout;
use crate::kernel::{self, Woken};

/// There is no vCPU thread yet: before any instruction, it first waits for the machine to start.
const NONE: u32 = 0;
/// The vCPU thread runs.
const RUNNING: u32 = 1;
/// The vCPU thread runs, and the main loop sleeps until it stops running.
const AWAITED: u32 = 2;
/// The vCPU thread waits to be woken.
const PARKED: u32 = 3;

/// The main loop has not run out of turn since the vCPU thread last waited.
const NO_PASS: u64 = 0;
/// The main loop is running out of turn.
const IN_PASS: u64 = 1;

/// The most CPU time that a halting vCPU needs until its thread waits. A vCPU that was halting while the main loop ran out of turn waits within that
/// CPU time afterwards; one that waits later was computing, and the main loop changed nothing.
const HALTING_NS: u64 = 1_000_000;

/// The turns of one main loop and one vCPU thread.
pub(crate) struct Turn {
    state: AtomicU32,
    /// The vCPU thread's number, known from its first wait on.
    thread: AtomicU32,
    /// [`NO_PASS`], [`IN_PASS`], or the CPU time of the vCPU thread at the end of the main loop's last pass out of turn.
    pass: AtomicU64,
}

/// The state when the vCPU thread began to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    /// Whether the main loop was sleeping for it.
    pub(crate) awaited: bool,
    /// Whether the main loop may have started from a clock that was behind.
    pub(crate) is_inexact: bool,
}

impl Turn {
    pub(crate) const fn new() -> Self {
        Turn { state: AtomicU32::new(NONE), thread: AtomicU32::new(0), pass: AtomicU64::new(NO_PASS) }
    }

    /// The vCPU thread, holding the big lock, is about to wait.
    pub(crate) fn park(&self) -> Parked {
        if self.thread.load(Ordering::Relaxed) == 0 {
            self.thread.store(kernel::thread(), Ordering::Relaxed);
        }
        let is_inexact = match self.pass.load(Ordering::SeqCst) {
            NO_PASS => false,
            _ => match self.pass.swap(NO_PASS, Ordering::SeqCst) {
                IN_PASS => true,
                ended => self.cpu_ns().saturating_sub(ended) < HALTING_NS,
            },
        };
        let awaited = self.state.swap(PARKED, Ordering::SeqCst) == AWAITED;
        if awaited {
            kernel::wake(&self.state);
        }
        Parked { awaited, is_inexact }
    }

    /// The vCPU thread is about to be woken, or has woken. The first to notice counts: otherwise the waker, which had the turn, could take another
    /// turn before the woken thread has run at all.
    pub(crate) fn unpark(&self) {
        // Not if the wake-up has been noticed and the main loop sleeps again already: that must not be lost.
        let _ = self.state.compare_exchange(PARKED, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The main loop waits for its turn. Returns `false` if the turn did not come and the main loop runs out of turn: after a signal, or after its
    /// patience.
    pub(crate) fn wait(&self, patience: MainLoopTimeout) -> bool {
        let (mut begun, mut slices) = (None, 0);
        loop {
            if let Err(NONE | PARKED) =
                self.state.compare_exchange(RUNNING, AWAITED, Ordering::SeqCst, Ordering::SeqCst)
            {
                return true;
            }
            // Read after the first slice: most waits are shorter, and a system call costs more.
            match kernel::wait(&self.state, AWAITED, patience.slice_ms) {
                Woken::Word => continue,
                Woken::Signal => break,
                Woken::Time => slices += 1,
            }
            let now = self.cpu_ns();
            let used = now.saturating_sub(*begun.get_or_insert(now));
            if used >= u64::from(patience.cpu_ms) * 1_000_000 || slices >= patience.slices {
                break;
            }
        }
        self.intrude();
        false
    }

    /// The main loop begins a pass without having waited for its turn.
    pub(crate) fn intrude(&self) {
        if matches!(self.state.load(Ordering::SeqCst), RUNNING | AWAITED) {
            self.pass.store(IN_PASS, Ordering::SeqCst);
        }
    }

    /// The main loop has done its work and is about to poll.
    pub(crate) fn end_pass(&self) {
        if self.pass.load(Ordering::SeqCst) == IN_PASS {
            // Not if the vCPU thread has waited in the meantime and reported it.
            let ended = self.cpu_ns().max(IN_PASS + 1);
            let _ = self.pass.compare_exchange(IN_PASS, ended, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    fn cpu_ns(&self) -> u64 {
        kernel::cpu_ns(self.thread.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::sync::{Condvar, Mutex};
    use std::time::{Duration, Instant};

    const NO_PATIENCE: MainLoopTimeout = MainLoopTimeout { cpu_ms: 0, slice_ms: 1, slices: 0 };
    const ENDLESS: MainLoopTimeout = MainLoopTimeout { cpu_ms: 600_000, slice_ms: 1000, slices: 600 };
    const EXACT: Parked = Parked { awaited: false, is_inexact: false };

    /// Computes for this number of milliseconds of the thread's CPU time.
    fn compute(ms: u64) {
        let thread = kernel::thread();
        let end = kernel::cpu_ns(thread) + ms * 1_000_000;
        while kernel::cpu_ns(thread) < end {}
    }

    #[test]
    fn without_a_vcpu_thread_it_is_the_main_loops_turn() {
        assert!(Turn::new().wait(NO_PATIENCE));
    }

    #[test]
    fn a_vcpu_thread_that_never_waits_does_not_keep_the_main_loop_for_ever() {
        let turn = Turn::new();
        assert_eq!(turn.park(), EXACT);
        assert!(turn.wait(NO_PATIENCE));
        turn.unpark();
        assert!(!turn.wait(NO_PATIENCE));
        assert!(turn.park().awaited, "the main loop had been waiting");
        assert!(turn.wait(NO_PATIENCE));
    }

    #[test]
    fn a_vcpu_thread_that_gets_no_cpu_is_waited_for() {
        let (turn, parked) = (Turn::new(), AtomicBool::new(false));
        let (running, run) = channel();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                turn.park();
                turn.unpark();
                running.send(()).unwrap();
                // The main loop may be late.
                while turn.state.load(Ordering::SeqCst) != AWAITED {
                    std::thread::sleep(Duration::from_millis(1));
                }
                // Like a thread on a busy machine: it uses no CPU for much longer than the patience.
                std::thread::sleep(Duration::from_millis(400));
                parked.store(true, Ordering::SeqCst);
                assert_eq!(turn.park(), Parked { awaited: true, is_inexact: false });
            });
            run.recv().unwrap();
            assert!(turn.wait(MainLoopTimeout { cpu_ms: 100, slice_ms: 10, slices: 6000 }));
            assert!(parked.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn patience_ends_by_the_vcpu_threads_cpu_time() {
        let (turn, over) = (Turn::new(), AtomicBool::new(false));
        let (running, run) = channel();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                turn.park();
                turn.unpark();
                running.send(()).unwrap();
                while !over.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
            run.recv().unwrap();
            let begun = Instant::now();
            assert!(!turn.wait(MainLoopTimeout { cpu_ms: 50, slice_ms: 5, slices: 60_000 }));
            assert!(begun.elapsed() >= Duration::from_millis(50));
            over.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn a_vcpu_that_may_have_halted_while_the_main_loop_ran_out_of_turn_says_so() {
        let turn = Turn::new();
        turn.park();
        turn.unpark();
        assert!(!turn.wait(NO_PATIENCE));
        assert!(turn.park().is_inexact, "within the pass");
        turn.unpark();
        assert!(!turn.wait(NO_PATIENCE));
        turn.end_pass();
        assert!(turn.park().is_inexact, "right after it");
        turn.unpark();
        assert!(!turn.wait(NO_PATIENCE));
        turn.end_pass();
        compute(5);
        assert!(!turn.park().is_inexact, "it was computing");
        turn.unpark();
        assert_eq!(turn.park(), EXACT, "each pass counts once");
        // A pass after a signal, while nothing runs.
        turn.intrude();
        turn.unpark();
        assert_eq!(turn.park(), EXACT);
    }

    #[test]
    fn a_woken_thread_does_not_forget_that_it_is_awaited() {
        let turn = Turn::new();
        turn.park();
        turn.unpark(); // by the main loop
        assert!(!turn.wait(NO_PATIENCE));
        turn.unpark(); // by the vCPU thread itself, later
        assert!(turn.park().awaited);
    }

    /// A miniature QEMU: the vCPU thread runs and waits on a condition of the big lock; the main loop wakes it, and its other passes come at any
    /// time.
    #[test]
    fn they_never_run_at_once() {
        const ROUNDS: u32 = 1_000;
        let (turn, big_lock, halt_cond) = (Turn::new(), Mutex::new(0_u32), Condvar::new());
        let (runs, over) = (AtomicBool::new(false), AtomicBool::new(false));
        turn.park(); // A vCPU thread's first act is to wait for the machine to start.
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut work = big_lock.lock().unwrap();
                for _ in 0..ROUNDS {
                    while *work == 0 {
                        turn.park();
                        work = halt_cond.wait(work).unwrap();
                        turn.unpark();
                    }
                    *work = 0;
                    drop(work);
                    runs.store(true, Ordering::SeqCst);
                    // Long enough for a main loop that is not held back to interfere.
                    (0..8).for_each(|_| std::thread::yield_now());
                    runs.store(false, Ordering::SeqCst);
                    work = big_lock.lock().unwrap();
                }
                over.store(true, Ordering::SeqCst);
                turn.park();
            });
            while !over.load(Ordering::SeqCst) {
                assert!(turn.wait(ENDLESS));
                let mut work = big_lock.lock().unwrap();
                assert!(!runs.load(Ordering::SeqCst));
                *work = 1;
                turn.unpark();
                halt_cond.notify_all();
            }
        });
    }
}
