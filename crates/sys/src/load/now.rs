//! Points in time that processes can pass to each other through shared memory.
//!
//! Invariant: all use one clock, which no adjustment of the date moves, so a difference is a duration.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: the same in every process of a machine.
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn differences_are_durations() {
        let (before, start) = (now_ns(), Instant::now());
        std::thread::sleep(Duration::from_millis(3));
        let (inner, outer) = (start.elapsed(), now_ns() - before);
        assert!(u128::from(outer) >= inner.as_nanos() && inner >= Duration::from_millis(3));
    }
}
