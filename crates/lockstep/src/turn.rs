//! Whose turn it is: the vCPU thread's, until it waits; then the main loop's, until it wakes the vCPU thread.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::kernel;

/// There is no vCPU thread yet: its first act, before any instruction, is to wait for the machine to start.
const NONE: u32 = 0;
/// The vCPU thread runs.
const RUNNING: u32 = 1;
/// The vCPU thread runs and the main loop sleeps until it no longer does.
const AWAITED: u32 = 2;
/// The vCPU thread waits for somebody to wake it.
const PARKED: u32 = 3;

/// The turn of one main loop and one vCPU thread.
pub(crate) struct Turn(AtomicU32);

impl Turn {
    pub(crate) const fn new() -> Self {
        Turn(AtomicU32::new(NONE))
    }

    /// The vCPU thread, with the big lock held, is about to wait. `true` if the main loop was sleeping for it.
    pub(crate) fn park(&self) -> bool {
        let awaited = self.0.swap(PARKED, Ordering::SeqCst) == AWAITED;
        if awaited {
            kernel::wake(&self.0);
        }
        awaited
    }

    /// The vCPU thread is about to be woken, or finds itself awake. Whoever notices first: the waker, in whose hands it was, else could
    /// take another turn before the woken thread has run at all.
    pub(crate) fn unpark(&self) {
        // Not if somebody has noticed and the main loop sleeps again already: that must not be forgotten.
        let _ = self.0.compare_exchange(PARKED, RUNNING, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The main loop waits for its turn. `false` if it did not come: a signal, or `patience_s` seconds.
    pub(crate) fn wait(&self, patience_s: u32) -> bool {
        loop {
            match self.0.compare_exchange(RUNNING, AWAITED, Ordering::SeqCst, Ordering::SeqCst) {
                Err(NONE | PARKED) => return true,
                Ok(_) | Err(_) => {
                    if !kernel::wait(&self.0, AWAITED, patience_s) {
                        return false;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Condvar, Mutex};

    #[test]
    fn without_a_vcpu_thread_it_is_the_main_loops_turn() {
        assert!(Turn::new().wait(0));
    }

    #[test]
    fn a_vcpu_thread_that_never_waits_does_not_keep_the_main_loop_for_ever() {
        let turn = Turn::new();
        turn.park();
        assert!(turn.wait(0));
        turn.unpark();
        assert!(!turn.wait(0));
        assert!(turn.park(), "the main loop had been waiting");
        assert!(turn.wait(0));
    }

    #[test]
    fn a_woken_thread_does_not_forget_that_it_is_awaited() {
        let turn = Turn::new();
        turn.park();
        turn.unpark(); // by the main loop
        assert!(!turn.wait(0));
        turn.unpark(); // by the vCPU thread itself, later
        assert!(turn.park());
    }

    /// QEMU in small: the vCPU thread runs and waits on a condition of the big lock; the main loop wakes it, and its other passes come
    /// at any time.
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
                    // Long enough for a main loop that is not kept from it to come in.
                    (0..8).for_each(|_| std::thread::yield_now());
                    runs.store(false, Ordering::SeqCst);
                    work = big_lock.lock().unwrap();
                }
                over.store(true, Ordering::SeqCst);
                turn.park();
            });
            while !over.load(Ordering::SeqCst) {
                assert!(turn.wait(600));
                let mut work = big_lock.lock().unwrap();
                assert!(!runs.load(Ordering::SeqCst));
                *work = 1;
                turn.unpark();
                halt_cond.notify_all();
            }
        });
    }
}
