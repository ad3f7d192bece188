//! CPU time used up on purpose.

use std::time::Duration;

use crate::cpu_clock::thread_cpu_time;
use crate::spin;

/// How long a loop is timed before its iterations are counted instead.
const TIMED: Duration = Duration::from_millis(2);

/// Computes until the thread has used this much CPU time by the scheduler's count: a loop in registers, with checks of the thread's CPU clock that
/// become rarer as the speed of the loop becomes known.
pub fn burn(time: Duration) {
    timed(time);
}

/// Like [`burn`]; returns the number of iterations of the loop.
fn timed(time: Duration) -> u64 {
    let start = thread_cpu_time();
    let (mut turns, mut next) = (0u64, 64u64);
    loop {
        spin::iterations(next);
        turns += next;
        let used = thread_cpu_time() - start;
        let Some(left) = time.checked_sub(used).filter(|l| !l.is_zero()) else { return turns };
        // Half of the remaining time at the speed so far, clock checks included.
        let turns_left = u128::from(turns) * left.as_nanos() / used.as_nanos().max(1);
        next = (turns_left / 2).clamp(64, 1 << 40) as u64;
    }
}

/// A fixed piece of work without clock checks or other system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    turns: u64,
}

impl Piece {
    /// A piece that takes `time`; unless that is 0, a loop is first timed for 2 ms.
    pub fn lasting(time: Duration) -> Self {
        if time.is_zero() {
            return Self { turns: 0 };
        }
        let turns = timed(TIMED);
        // The same number again, without clock checks in between.
        let start = thread_cpu_time();
        spin::iterations(turns);
        let used = (thread_cpu_time() - start).max(Duration::from_nanos(1));
        Self { turns: (u128::from(turns) * time.as_nanos() / used.as_nanos()).max(1) as u64 }
    }

    /// Does it.
    pub fn run(self) {
        spin::iterations(self.turns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_cpu_time_is_burnt_as_was_asked_for() {
        for us in [1, 50, 3_000] {
            let time = Duration::from_micros(us);
            let start = thread_cpu_time();
            burn(time);
            let used = thread_cpu_time() - start;
            assert!(used >= time, "{used:?} of {time:?}");
        }
    }

    #[test]
    fn pieces_last_as_long_as_was_asked_for() {
        Piece::lasting(Duration::ZERO).run();
        // Frequencies change and other processes use the caches: the best of several tries, and a factor of 2 either way.
        let shares = (0..20).map(|_| {
            let piece = Piece::lasting(Duration::from_micros(20));
            let start = thread_cpu_time();
            (0..100).for_each(|_| piece.run());
            (thread_cpu_time() - start).as_secs_f64() / 2e-3
        });
        let nearest = shares.map(|s| s.ln().abs()).fold(f64::INFINITY, f64::min);
        assert!(nearest < 2f64.ln(), "{nearest}");
    }
}
