//! The figures of a load point: how often a user runs each test, jobs per minute, the job timing index, the size of a user's
//! files. The formulas are those of ReAIM 7 (osdl-aim-7 7.0.1.13).
//!
//! Invariant: pure functions; a rate is that of all users together unless its name says otherwise.

/// How often a user with about `jobs` to do runs each test: each test's share of `jobs`, rounded half up, and at least once for a
/// test with any share. The actual number of jobs is the sum.
pub fn calls(weights: &[u32], jobs: u32) -> Vec<u32> {
    let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
    let of = |weight: &u32| {
        let share = f64::from(*weight) / sum * f64::from(jobs);
        match share.floor() {
            whole if share - whole >= 0.5 => whole as u32 + 1,
            0.0 if share > 0.0 => 1,
            whole => whole as u32,
        }
    };
    weights.iter().map(of).collect()
}

/// Jobs per minute of `users` that each did `jobs` in `elapsed_ns`.
pub fn jobs_per_minute(jobs: u32, users: u32, elapsed_ns: u64) -> f64 {
    jobs_per_minute_each(jobs, elapsed_ns) * f64::from(users)
}

/// The same for one user.
pub fn jobs_per_minute_each(jobs: u32, elapsed_ns: u64) -> f64 {
    60.0 * f64::from(jobs) * 1e9 / elapsed_ns.max(1) as f64
}

/// The users' times, from the common start to each one's end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub mean_ns: f64,
    /// Of the population, not of a sample.
    pub deviation_ns: f64,
    pub shortest_ns: u64,
    pub longest_ns: u64,
}

impl Spread {
    /// The spread of `times`, which must not be empty.
    pub fn of(times: &[u64]) -> Self {
        let n = times.len().max(1) as f64;
        let mean = times.iter().map(|t| *t as f64).sum::<f64>() / n;
        let squares: f64 = times.iter().map(|t| (*t as f64 - mean).powi(2)).sum();
        Self {
            mean_ns: mean,
            deviation_ns: (squares / n).sqrt(),
            shortest_ns: times.iter().copied().min().unwrap_or(0),
            longest_ns: times.iter().copied().max().unwrap_or(0),
        }
    }

    /// The coefficient of variation.
    pub fn variation(self) -> f64 {
        if self.mean_ns > 0.0 { self.deviation_ns / self.mean_ns } else { 0.0 }
    }

    /// The job timing index, in per cent: 100 if all users took equally long, 0 if the deviation is as large as the mean.
    pub fn timing_index(self) -> f64 {
        ((1.0 - self.variation()) * 100.0).max(0.0)
    }
}

/// KiB of a user's file with `users` in parallel: the fixed part, and a share of the pool, rounded down.
pub fn file_kib(file_kib: u64, pool_kib: u64, users: u32) -> u64 {
    file_kib + pool_kib / u64::from(users.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_tests_are_shares_of_its_jobs() {
        // 570 in all: 40 are 7.02 of 100, 30 are 5.26, 20 are 3.51, 10 are 1.75.
        assert_eq!(calls(&[40, 30, 20, 10, 470], 100), [7, 5, 4, 2, 82]);
        // A share below a half still gives one call, no share gives none.
        assert_eq!(calls(&[1, 0, 999], 100), [1, 0, 100]);
        assert_eq!(calls(&[1, 1], 1), [1, 1]);
        assert_eq!(calls(&[1, 2], 10), [3, 7]);
    }

    #[test]
    fn rates_are_those_of_the_formula() {
        // 60 · 98 · 4 / 12 s.
        assert_eq!(jobs_per_minute(98, 4, 12_000_000_000), 1960.0);
        assert_eq!(jobs_per_minute_each(98, 12_000_000_000), 490.0);
    }

    #[test]
    fn the_timing_index_falls_with_the_spread() {
        // Mean 5, deviations -3, -1, 1, 3: variance 5.
        let spread = Spread::of(&[2, 4, 6, 8]);
        assert_eq!((spread.mean_ns, spread.shortest_ns, spread.longest_ns), (5.0, 2, 8));
        assert!((spread.deviation_ns - 5f64.sqrt()).abs() < 1e-12);
        assert!((spread.timing_index() - (1.0 - 5f64.sqrt() / 5.0) * 100.0).abs() < 1e-9);
        assert_eq!(Spread::of(&[7]).timing_index(), 100.0);
        // Three equal times and one a hundred times longer: the deviation is larger than the mean.
        assert_eq!(Spread::of(&[1, 1, 1, 1000]).timing_index(), 0.0);
    }

    #[test]
    fn the_pool_is_shared_among_the_users() {
        assert_eq!(file_kib(10, 100, 1), 110);
        assert_eq!(file_kib(10, 100, 2), 60);
        assert_eq!(file_kib(10, 100, 24), 14);
        assert_eq!(file_kib(10, 0, 24), 10);
    }
}
