//! CPU time that is used up on purpose.

use std::time::Duration;

use crate::cpu_clock::thread_cpu_time;
use crate::spin;

/// How long a loop is timed before its turns are counted out.
const TIMED: Duration = Duration::from_millis(2);

/// Computes until the thread has used so much CPU time, as the scheduler counts it: a loop in registers, and looks at the thread's
/// CPU clock, ever fewer per time as the speed of the loop becomes known.
pub fn burn(time: Duration) {
    timed(time);
}

/// As [`burn`]; how many turns of the loop that took.
fn timed(time: Duration) -> u64 {
    let start = thread_cpu_time();
    let (mut turns, mut next) = (0u64, 64u64);
    loop {
        spin::iterations(next);
        turns += next;
        let used = thread_cpu_time() - start;
        let Some(left) = time.checked_sub(used).filter(|l| !l.is_zero()) else { return turns };
        // Half of what is left, at the speed so far, looks at the clock included.
        let turns_left = u128::from(turns) * left.as_nanos() / used.as_nanos().max(1);
        next = (turns_left / 2).clamp(64, 1 << 40) as u64;
    }
}

/// The same piece of work again and again, without a look at any clock: the kernel is not asked for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    turns: u64,
}

impl Piece {
    /// One that takes `time`; unless that is none, a loop is timed for 2 ms first.
    pub fn lasting(time: Duration) -> Self {
        if time.is_zero() {
            return Self { turns: 0 };
        }
        let turns = timed(TIMED);
        // The same again, without looks at the clock between.
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
        // Frequencies change and others use the caches: the best of several, and a factor of 2 both ways.
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
