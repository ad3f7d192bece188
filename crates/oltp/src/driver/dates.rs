//! The dates of rows.
//!
//! Invariant: no two requests of a run have the same date, and the dates of a thread increase: an acknowledged row is found by
//! its date. No clock is read, so that a seed always gives the same rows.

/// Number of dates of one part of a run shared by several processes.
const OF_PART: i64 = 1_000_000_000_000;

/// 2024-06-01 in microseconds since 2000-01-01: after every date of the load.
pub const FIRST: i64 = 8918 * 86_400_000_000;

/// Dates of one driver thread.
#[derive(Clone, Debug)]
pub struct Dates {
    next: i64,
    threads: i64,
}

impl Dates {
    /// The dates of thread `thread` of `threads`, all later than `after`, the last date that earlier runs left in the database.
    pub fn new(after: i64, (thread, threads): (u32, u32)) -> Self {
        Self { next: FIRST.max(after.saturating_add(1)) + i64::from(thread), threads: i64::from(threads) }
    }

    /// The dates of part `part` (from 1) of a run.
    pub fn of_part(mut self, part: u32) -> Self {
        self.next += OF_PART * i64::from(part - 1);
        self
    }

    pub fn take(&mut self) -> i64 {
        let date = self.next;
        self.next += self.threads;
        date
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn dates_are_unique_and_grow() {
        let mut seen = BTreeSet::new();
        let mut after = 0;
        for _ in 0..3 {
            for thread in 0..4 {
                let mut dates = Dates::new(after, (thread, 4));
                let some: Vec<_> = (0..100).map(|_| dates.take()).collect();
                assert!(some.is_sorted());
                seen.extend(some);
            }
            after = *seen.last().unwrap();
        }
        assert_eq!(seen.len(), 1200);
        // 2024-06-01T00:00:00Z is 1,717,200,000 s of Unix time, 946,684,800 s of which were before 2000.
        assert_eq!(*seen.first().unwrap(), (1_717_200_000 - 946_684_800) * 1_000_000);
    }
}
