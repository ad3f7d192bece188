//! Pairs the begins and ends of waits.
//!
//! Invariant: a wait has one begin and one end, of one thread and lock. If an end may have been lost, nothing is guessed, and the open waits count as
//! unpaired.

use std::collections::BTreeMap;

/// The waiter: a thread, or an interrupt on a CPU without a thread to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiter {
    Thread(u32),
    Idle { cpu: u32 },
}

impl Waiter {
    /// The idle threads of all CPUs have the number 0.
    pub fn new(tid: u32, cpu: u32) -> Self {
        if tid == 0 { Self::Idle { cpu } } else { Self::Thread(tid) }
    }
}

/// The begin of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitBegin<T> {
    pub time: u64,
    pub origin: T,
    /// Whether it spins from here on instead of sleeping.
    pub spins: bool,
    /// Whether a further begin before the end belongs to the same wait: a mutex is spun for, then slept for, and spun for again.
    pub goes_on: bool,
}

/// A wait that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedWait<T> {
    pub begin: u64,
    pub ns: u64,
    pub origin: T,
    /// Whether it never slept.
    pub spun: bool,
}

/// Waits in progress.
#[derive(Debug)]
pub struct Pairing<T> {
    open: BTreeMap<(Waiter, u64), WaitBegin<T>>,
    /// Begins and ends without a counterpart.
    pub unpaired: u64,
}

impl<T> Default for Pairing<T> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), unpaired: 0 }
    }
}

impl<T: Copy> Pairing<T> {
    /// `waiter` begins to wait for `lock`. It may already be waiting for another lock: an interrupt has its own.
    pub fn begin(&mut self, waiter: Waiter, lock: u64, begin: WaitBegin<T>) {
        match self.open.get_mut(&(waiter, lock)) {
            Some(open) if open.goes_on && begin.goes_on => open.spins &= begin.spins,
            Some(open) => {
                // Nobody waits for one lock twice at the same time, so the end was lost.
                *open = begin;
                self.unpaired += 1;
            }
            None => drop(self.open.insert((waiter, lock), begin)),
        }
    }

    /// `waiter` stops waiting for `lock`.
    pub fn end(&mut self, waiter: Waiter, lock: u64, time: u64) -> Option<EndedWait<T>> {
        let Some(begin) = self.open.remove(&(waiter, lock)) else {
            self.unpaired += 1;
            return None;
        };
        let ns = time.saturating_sub(begin.time);
        Some(EndedWait { begin: begin.time, ns, origin: begin.origin, spun: begin.spins })
    }

    /// Drops a begin that was not a wait.
    pub fn forget(&mut self, waiter: Waiter, lock: u64) {
        self.open.remove(&(waiter, lock));
    }

    /// Events were lost: the ends of open waits may be among them.
    pub fn lost(&mut self) {
        self.unpaired += self.open.len() as u64;
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: WaitBegin<char> = WaitBegin { time: 0, origin: 'a', spins: true, goes_on: false };

    fn at(time: u64, begin: WaitBegin<char>) -> WaitBegin<char> {
        WaitBegin { time, ..begin }
    }

    fn ended(begin: u64, ns: u64, origin: char, spun: bool) -> Option<EndedWait<char>> {
        Some(EndedWait { begin, ns, origin, spun })
    }

    #[test]
    fn waits_of_several_threads_and_of_an_interrupt_inside_one_are_told_apart() {
        let (one, two) = (Waiter::new(7, 0), Waiter::new(8, 1));
        let mut pairing = Pairing::default();
        pairing.begin(one, 100, at(10, WaitBegin { spins: false, ..SPIN }));
        pairing.begin(two, 100, at(12, SPIN));
        // An interrupt on the first thread's CPU waits for a lock of its own.
        pairing.begin(one, 200, at(15, WaitBegin { origin: 'b', ..SPIN }));
        assert_eq!(pairing.end(one, 200, 18), ended(15, 3, 'b', true));
        // The thread has moved to another CPU in the meantime.
        assert_eq!(pairing.end(Waiter::new(7, 1), 100, 30), ended(10, 20, 'a', false));
        assert_eq!(pairing.end(two, 100, 31), ended(12, 19, 'a', true));
        assert_eq!(pairing.unpaired, 0);
    }

    #[test]
    fn idle_cpus_are_not_one_thread() {
        let mut pairing = Pairing::default();
        pairing.begin(Waiter::new(0, 0), 100, at(10, SPIN));
        pairing.begin(Waiter::new(0, 1), 100, at(11, WaitBegin { origin: 'b', ..SPIN }));
        assert_eq!(pairing.end(Waiter::new(0, 0), 100, 20), ended(10, 10, 'a', true));
        assert_eq!(pairing.end(Waiter::new(0, 1), 100, 20), ended(11, 9, 'b', true));
    }

    #[test]
    fn a_mutex_that_is_spun_and_slept_for_is_one_wait() {
        let mutex = WaitBegin { goes_on: true, ..SPIN };
        let one = Waiter::new(7, 0);
        let mut pairing = Pairing::default();
        pairing.begin(one, 100, at(10, mutex));
        pairing.begin(one, 100, at(15, WaitBegin { spins: false, ..mutex }));
        pairing.begin(one, 100, at(90, mutex));
        assert_eq!(pairing.end(one, 100, 95), ended(10, 85, 'a', false));
        pairing.begin(one, 100, at(96, mutex));
        assert_eq!(pairing.end(one, 100, 97), ended(96, 1, 'a', true));
        assert_eq!(pairing.unpaired, 0);
    }

    #[test]
    fn a_lost_half_makes_no_wait() {
        let one = Waiter::new(7, 0);
        let mut pairing = Pairing::default();
        assert_eq!(pairing.end(one, 100, 5), None);
        pairing.begin(one, 100, at(10, SPIN));
        pairing.begin(one, 100, at(20, SPIN));
        assert_eq!(pairing.end(one, 100, 25), ended(20, 5, 'a', true));
        assert_eq!(pairing.unpaired, 2);
        pairing.begin(one, 100, at(30, SPIN));
        pairing.begin(one, 300, at(31, SPIN));
        pairing.lost();
        assert_eq!((pairing.end(one, 100, 40), pairing.unpaired), (None, 5));
        pairing.begin(one, 100, at(50, SPIN));
        pairing.forget(one, 100);
        assert_eq!((pairing.end(one, 100, 60), pairing.unpaired), (None, 6));
    }
}
