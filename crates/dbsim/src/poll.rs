//! Waiting by polling, for jobs that request it.
//!
//! Invariant: a poller yields the CPU between two checks: first to any other runnable process, then for a time that doubles.

use std::time::Duration;

/// Number of checks after which it sleeps instead of yielding.
const YIELDS: u32 = 32;
/// The first sleep: about the granularity of a timer (the kernel's own slack is 50 µs).
const SHORT: Duration = Duration::from_micros(20);
/// The longest sleep: the maximum delay of a poller, which keeps thousands of them from filling a CPU.
const LONG: Duration = Duration::from_millis(1);

/// A poller.
pub struct Poll;

impl Poll {
    /// Returns as soon as a check finds `done`.
    pub fn until(done: impl Fn() -> bool) {
        let mut looks = 0;
        let mut sleep = SHORT;
        while !done() {
            if looks < YIELDS {
                looks += 1;
                std::thread::yield_now();
            } else {
                std::thread::sleep(sleep);
                sleep = (2 * sleep).min(LONG);
            }
        }
    }
}
