//! A clock cheap enough to read for every request: the CPU's time-stamp counter, if the kernel itself uses it to keep time.
//!
//! Invariant: ticks only grow, are the same on every CPU, and represent nanoseconds of `CLOCK_MONOTONIC` to within 0.01 %.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long the counter is compared with the kernel's clock; the thread sleeps meanwhile.
const CALIBRATION: Duration = Duration::from_millis(10);
/// Fraction bits of nanoseconds per tick.
const FRACTION: u32 = 32;

/// The clock. The parent makes it once, and the fork copies it.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    counter: bool,
    /// Nanoseconds per tick, times 2^32.
    scale: u64,
}

impl Ticks {
    /// Measures the frequency of the counter; takes 10 ms.
    pub fn new() -> Self {
        let by_kernel = Self::uncalibrated();
        if !kernel_keeps_time_by_counter() {
            return by_kernel;
        }
        let (counter0, ns0) = both();
        std::thread::sleep(CALIBRATION);
        let (counter1, ns1) = both();
        let (ticks, ns) = (counter1.wrapping_sub(counter0), ns1 - ns0);
        // A counter is never slower than 10 MHz or faster than 100 GHz.
        if ticks < ns / 100 || ticks > ns * 100 {
            return by_kernel;
        }
        Self { counter: true, scale: ((u128::from(ns) << FRACTION) / u128::from(ticks)) as u64 }
    }

    /// The kernel's clock with a tick of one nanosecond: slower to read, but needs no calibration.
    pub fn uncalibrated() -> Self {
        Self { counter: false, scale: 1 << FRACTION }
    }

    /// The time now, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        if self.counter { counter() } else { monotonic_ns() }
    }

    /// Nanoseconds from one reading to a later one; 0 if it is not later.
    #[inline]
    pub fn ns(&self, from: u64, to: u64) -> u64 {
        ((u128::from(to.saturating_sub(from)) * u128::from(self.scale)) >> FRACTION) as u64
    }
}

impl Default for Ticks {
    fn default() -> Self {
        Self::new()
    }
}

/// The kernel has checked that the counter is constant, never stops and agrees between CPUs; otherwise it would use another clock.
fn kernel_keeps_time_by_counter() -> bool {
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction; a kernel that forbade it could not keep time by it in user space.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    monotonic_ns()
}

#[cold]
#[inline(never)]
fn monotonic_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Both clocks at one moment: of several attempts, the one with the least delay.
fn both() -> (u64, u64) {
    let attempt = || {
        let before = counter();
        let ns = monotonic_ns();
        let width = counter().wrapping_sub(before);
        (width, before.wrapping_add(width / 2), ns)
    };
    let (_, ticks, ns) = (0..16).map(|_| attempt()).min_by_key(|(width, ..)| *width).unwrap_or_else(attempt);
    (ticks, ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_agrees_with_the_kernels_clock() {
        let ticks = Ticks::new();
        let (outer, from, inner) = (Instant::now(), ticks.now(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let inner = inner.elapsed().as_nanos() as f64;
        let measured = ticks.ns(from, ticks.now()) as f64;
        let outer = outer.elapsed().as_nanos() as f64;
        assert!(measured >= inner * 0.9995 && measured <= outer * 1.0005, "{inner} {measured} {outer}: {ticks:?}");
        assert_eq!(ticks.ns(5, 4), 0);
    }
}
