//! The work in each interval of the window.
//!
//! Invariant: at most 120 points, however long the window: beyond that, neighbours are merged and the interval doubles.

use std::fmt::Write as _;
use std::time::Duration;

/// Maximum number of points.
pub const POINTS: usize = 120;
/// Initial interval if the window's length is not known: a 16th of a second, so that doubling reaches one second.
const SHORTEST: Duration = Duration::from_micros(62_500);
/// Number of intervals of a short window of known length.
const FEWEST: u32 = 20;

/// Counts so far, or in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub transactions: u64,
    pub commits: u64,
    /// Blocks that foregrounds read.
    pub reads: u64,
    pub redo_writes: u64,
}

impl Sample {
    pub fn since(&self, before: &Self) -> Self {
        Self {
            transactions: self.transactions - before.transactions,
            commits: self.commits - before.commits,
            reads: self.reads - before.reads,
            redo_writes: self.redo_writes - before.redo_writes,
        }
    }

    fn plus(&self, o: &Self) -> Self {
        Self {
            transactions: self.transactions + o.transactions,
            commits: self.commits + o.commits,
            reads: self.reads + o.reads,
            redo_writes: self.redo_writes + o.redo_writes,
        }
    }
}

/// The series of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub interval: Duration,
    pub points: Vec<Sample>,
    /// Totals at the end of the last point.
    last: Sample,
    /// Number of intervals to merge into a point, and of those merged so far.
    join: u32,
    joined: (u32, Sample),
    tick: Duration,
}

/// The interval for a window of that length, if known: a second, less for a short window, more for a long one.
fn interval(window: Option<Duration>) -> Duration {
    let Some(window) = window else { return SHORTEST };
    let second = Duration::from_secs(1);
    if window < second * FEWEST { (window / FEWEST).max(Duration::from_millis(1)) } else { second }
}

impl Series {
    /// Must be called when the window opens, with the totals so far.
    pub fn begin(window: Option<Duration>, totals: Sample) -> Self {
        let tick = interval(window);
        Self { interval: tick, points: Vec::new(), last: totals, join: 1, joined: (0, Sample::default()), tick }
    }

    /// Time between two calls of [`Series::tick`].
    pub fn every(&self) -> Duration {
        self.tick
    }

    /// Records another interval; returns the work in it.
    pub fn tick(&mut self, totals: Sample) -> Sample {
        let done = totals.since(&self.last);
        self.last = totals;
        self.joined = (self.joined.0 + 1, self.joined.1.plus(&done));
        if self.joined.0 == self.join {
            self.points.push(std::mem::take(&mut self.joined).1);
        }
        if self.points.len() > POINTS {
            // An odd number: the last one begins a point of the new length.
            let last = self.points.pop().expect("more than none");
            self.points = self.points.chunks(2).map(|p| p[0].plus(&p[1])).collect();
            self.joined = (self.join, last);
            self.join *= 2;
            self.interval *= 2;
        }
        done
    }

    /// One value of every point per second, as a JSON array.
    pub fn per_second(&self, of: impl Fn(&Sample) -> u64) -> String {
        let mut text = String::from("[");
        for (i, p) in self.points.iter().enumerate() {
            let rate = of(p) as f64 / self.interval.as_secs_f64();
            // Whole numbers suffice, except for small values.
            let digits = usize::from(rate < 100.0 && rate.fract() != 0.0);
            let _ = write!(text, "{}{rate:.digits$}", if i > 0 { "," } else { "" });
        }
        text.push(']');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn intervals_suit_the_window() {
        let of = |ms| interval(Some(Duration::from_millis(ms)));
        assert_eq!(of(60_000), Duration::from_secs(1));
        assert_eq!(of(2_000), Duration::from_millis(100));
        assert_eq!(of(1), Duration::from_millis(1));
        assert_eq!(interval(None) * 16, Duration::from_secs(1));
    }

    #[test]
    fn rates_are_per_second() {
        let mut series = Series::begin(Some(Duration::from_secs(2)), Sample { commits: 5, ..Sample::default() });
        series.tick(Sample { transactions: 3, commits: 7, ..Sample::default() });
        series.tick(Sample { transactions: 1_003, commits: 7, ..Sample::default() });
        assert_eq!(series.per_second(|p| p.transactions), "[30,10000]");
        assert_eq!(series.per_second(|p| p.commits), "[20,0]");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_by_joining(counts in prop::collection::vec(0u64..1_000, 0..2_000)) {
            let mut series = Series::begin(None, Sample::default());
            let mut total = 0;
            for n in &counts {
                total += n;
                series.tick(Sample { reads: total, ..Sample::default() });
                prop_assert!(series.points.len() <= POINTS);
            }
            let width = (series.interval.as_nanos() / SHORTEST.as_nanos()) as usize;
            let points: Vec<_> = series.points.iter().map(|p| p.reads).collect();
            let whole: Vec<_> = counts.chunks_exact(width).map(|c| c.iter().sum::<u64>()).collect();
            prop_assert_eq!(points, whole);
        }
    }
}
