//! The commit path in stages: the parts of the time between the commit request and the foreground's next instruction.
//!
//! Invariant: the stages of a commit follow each other without a gap, so their sum is the commit, and the sum of their means is
//! the mean of the whole.

use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_sys::load::{Histogram, LotRecorder, ShardedHistogram};
use bigiron_sys::segment::Segment;

/// A stage's name and description.
pub const STAGES: [(&str, &str); 4] = [
    ("post", "Commit: from the request until its redo is in the log buffer and the log writer is signalled, mean"),
    ("writer-wake", "Commit: from the signal until the log writer begins to take the redo, mean"),
    ("flush", "Commit: from there until the redo is durable (the redo write and its sync), mean"),
    ("foreground-wake", "Commit: from the log writer's word that it is durable until the foreground runs, mean"),
];

/// How long one commit spent in each of [`STAGES`], in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(pub [u64; STAGES.len()]);

impl Stages {
    /// From the five points in time of a commit, in nanoseconds of one clock. If two processes overlap (the log writer may
    /// already be taking redo when a commit arrives just in time), the later stage begins when the earlier one ends.
    pub fn between(requested: u64, posted: u64, taken: u64, durable: u64, running: u64) -> Self {
        let mut at = requested;
        Self([posted, taken, durable, running].map(|end| {
            let begin = at;
            at = at.max(end.min(running));
            at - begin
        }))
    }

    /// The whole commit.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The commits of all processes, whole and by stages.
pub struct CommitHistograms<'s> {
    whole: ShardedHistogram<'s>,
    stages: [ShardedHistogram<'s>; STAGES.len()],
}

/// Counts the commits of one process.
pub struct CommitRecorder<'s> {
    whole: LotRecorder<'s>,
    stages: [LotRecorder<'s>; STAGES.len()],
}

impl<'s> CommitHistograms<'s> {
    /// Bytes of segment that they take for this many processes.
    pub const fn bytes(processes: usize) -> usize {
        (1 + STAGES.len()) * ShardedHistogram::bytes(processes)
    }

    /// For processes numbered below `processes`.
    pub fn new(segment: &'s Segment, processes: usize) -> Self {
        let histogram = || ShardedHistogram::new(segment, processes);
        Self { whole: histogram(), stages: std::array::from_fn(|_| histogram()) }
    }

    /// The recorder of one process.
    pub fn recorder(&self, process: usize) -> CommitRecorder<'s> {
        let stages = std::array::from_fn(|stage| self.stages[stage].lot_recorder(process));
        CommitRecorder { whole: self.whole.lot_recorder(process), stages }
    }

    /// Whole commits.
    pub fn whole(&self) -> Histogram {
        self.whole.read()
    }

    /// By stage: `stage-NAME-mean` and its value in nanoseconds, for every metric of [`metrics`].
    pub fn means(&self) -> impl Iterator<Item = (String, f64)> {
        let mean = |h: &ShardedHistogram<'_>| h.read().mean().unwrap_or(0.0);
        STAGES.iter().zip(&self.stages).map(move |((name, _), h)| (format!("stage-{name}-mean"), mean(h)))
    }

    /// By stage: `stage-NAME-p99` and its value in nanoseconds, as facts.
    pub fn facts(&self) -> impl Iterator<Item = (String, String)> {
        let p99 = |h: &ShardedHistogram<'_>| h.read().quantile(0.99).unwrap_or(0);
        STAGES.iter().zip(&self.stages).map(move |((name, _), h)| (format!("stage-{name}-p99-ns"), p99(h).to_string()))
    }
}

impl CommitRecorder<'_> {
    /// Counts one commit.
    pub fn record(&mut self, commit: &Stages) {
        self.whole.record(commit.total());
        for (stage, ns) in self.stages.iter_mut().zip(commit.0) {
            stage.record(ns);
        }
    }
}

/// The declarations of the stages' metrics.
pub fn metrics() -> impl Iterator<Item = MetricDef> {
    STAGES.iter().map(|(name, summary)| MetricDef {
        name: format!("stage-{name}-mean"),
        unit: Unit::Ns,
        better: Better::Lower,
        kind: Kind::Cost,
        primary: false,
        summary: (*summary).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stages_are_the_differences() {
        assert_eq!(Stages::between(100, 110, 150, 350, 400), Stages([10, 40, 200, 50]));
    }

    #[test]
    fn redo_that_comes_while_the_log_writer_takes_it_waits_for_no_wake_up() {
        assert_eq!(Stages::between(100, 110, 105, 350, 400), Stages([10, 0, 240, 50]));
    }

    proptest! {
        #[test]
        fn the_stages_are_the_whole(requested in 0u64..1000, after in 0u64..1000, between in prop::array::uniform3(0u64..3000)) {
            let running = requested + after;
            let stages = Stages::between(requested, between[0], between[1], between[2], running);
            prop_assert_eq!(stages.total(), after);
        }

        #[test]
        fn the_means_add_up(commits in prop::collection::vec(prop::array::uniform4(0u64..1_000_000), 1..50)) {
            let segment = Segment::new(CommitHistograms::bytes(3) + 64).unwrap();
            let histograms = CommitHistograms::new(&segment, 3);
            for (i, stages) in commits.iter().enumerate() {
                histograms.recorder(i % 3).record(&Stages(*stages));
            }
            let sum: f64 = histograms.means().map(|(_, mean)| mean).sum();
            let whole = histograms.whole().mean().unwrap();
            prop_assert!((sum - whole).abs() <= whole * 1e-9);
        }
    }
}
