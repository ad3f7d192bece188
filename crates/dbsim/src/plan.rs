//! The parts of a run under a clock: the ramp, then the stretches of the window.
//!
//! Invariant: lengths are fixed numbers of transactions or times, independent of the machine.

use std::time::Duration;

use bigiron_model::clock::Clock;

use super::job::{Job, Length};
use bigiron_workload::units::Pace;

/// How long a part of the run lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Transactions of all foregrounds and clients together; each process has a fixed share.
    Transactions(u64),
    Time(Duration),
}

/// A part of the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Empty for a window without phases.
    pub name: String,
    pub span: Span,
    /// Replaces the classes' own pace.
    pub pace: Option<Pace>,
}

/// The parts of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub ramp: Span,
    /// At least one.
    pub stretches: Vec<Stretch>,
}

impl Plan {
    pub fn new(job: &Job, clock: Clock) -> Self {
        let window = match (job.run.length, job.transactions(clock)) {
            (Length::Time(time), _) => Span::Time(time),
            (_, count) => Span::Transactions(count.unwrap_or(0)),
        };
        let phases = job.run.phases.len() as u32;
        // A phase without its own length has an equal part of the window's.
        let part = |length| match (length, window) {
            (Length::Auto, Span::Transactions(n)) => Span::Transactions(n.div_ceil(u64::from(phases))),
            (Length::Auto, Span::Time(t)) => Span::Time(t / phases),
            (Length::Transactions(n), _) => Span::Transactions(n),
            (Length::Time(t), _) => Span::Time(t),
        };
        let mut stretches: Vec<_> = job
            .run
            .phases
            .iter()
            .map(|p| Stretch { name: p.name.clone(), span: part(p.length), pace: p.pace })
            .collect();
        if stretches.is_empty() {
            stretches.push(Stretch { name: String::new(), span: window, pace: None });
        }
        let ramp = match (job.run.ramp, window, job.ramp(clock)) {
            (Some(Length::Time(t)), ..) => Span::Time(t),
            (None, Span::Time(t), _) => Span::Time(t / 4),
            (.., count) => Span::Transactions(count.unwrap_or(0)),
        };
        Self { ramp, stretches }
    }

    /// Transactions before the window; `None` if the ramp is a time.
    pub fn ramp_transactions(&self) -> Option<u64> {
        match self.ramp {
            Span::Transactions(n) => Some(n),
            Span::Time(_) => None,
        }
    }

    /// Transactions in the window; `None` if the ramp or any part of the window is a time.
    pub fn transactions(&self) -> Option<u64> {
        self.ramp_transactions()?;
        let of = |s: &Stretch| match s.span {
            Span::Transactions(n) => Some(n),
            Span::Time(_) => None,
        };
        self.stretches.iter().map(of).sum()
    }

    /// Transactions of the whole run, unless a time ends it.
    pub fn total(&self) -> Option<u64> {
        Some(self.ramp_transactions()? + self.transactions()?)
    }

    /// Length of the window, if all of it is a time.
    pub fn time(&self) -> Option<Duration> {
        let of = |s: &Stretch| match s.span {
            Span::Transactions(_) => None,
            Span::Time(t) => Some(t),
        };
        self.stretches.iter().map(of).sum()
    }

    /// The longest of ramp and window that is a time.
    pub fn longest_part(&self) -> Duration {
        let ramp = if let Span::Time(ramp) = self.ramp { ramp } else { Duration::ZERO };
        self.time().unwrap_or_default().max(ramp)
    }

    /// Whether transactions are counted anywhere, so that the job needs processes for them.
    pub fn counts_transactions(&self) -> bool {
        let counted = |s: Span| matches!(s, Span::Transactions(n) if n > 0);
        counted(self.ramp) || self.stretches.iter().any(|s| counted(s.span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dbsim;
    use crate::job::PhaseSpec;
    use bigiron_workload::testing;

    fn job(length: Length, ramp: Option<Length>, phases: &[Length]) -> Job {
        let mut job = Job::parse(&testing::options(&Dbsim, []).unwrap()).unwrap();
        job.run.length = length;
        job.run.ramp = ramp;
        job.run.phases = phases.iter().map(|l| PhaseSpec { name: "p".to_owned(), length: *l, pace: None }).collect();
        job
    }

    #[test]
    fn the_default_is_as_many_transactions_as_suit_the_clock() {
        let plan = Plan::new(&job(Length::Auto, None, &[]), Clock::Exact);
        assert_eq!((plan.ramp, plan.transactions(), plan.total()), (Span::Transactions(750), Some(3_000), Some(3_750)));
        assert_eq!(Plan::new(&job(Length::Auto, None, &[]), Clock::Wall).transactions(), Some(60_000));
    }

    #[test]
    fn phases_share_the_window_unless_they_say_otherwise() {
        let (time, second) = (Length::Time(Duration::from_secs(8)), Duration::from_secs(1));
        let plan = Plan::new(&job(time, None, &[Length::Auto, Length::Time(second)]), Clock::Wall);
        assert_eq!(plan.ramp, Span::Time(2 * second));
        let spans: Vec<_> = plan.stretches.iter().map(|s| s.span).collect();
        assert_eq!(spans, [Span::Time(4 * second), Span::Time(second)]);
        assert_eq!((plan.time(), plan.transactions()), (Some(5 * second), None));
        let plan = Plan::new(&job(Length::Transactions(90), Some(time), &[Length::Auto; 4]), Clock::Wall);
        assert!(plan.stretches.iter().all(|s| s.span == Span::Transactions(23)));
        assert_eq!((plan.time(), plan.total()), (None, None));
        assert!(plan.counts_transactions());
    }
}
