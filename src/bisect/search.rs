//! How a search among kernels stands: what to test next, or what was found.
//!
//! Invariant: a function of the description and of the tests in their order, and of nothing else.

use bigiron_stats::Verdict;
use bigiron_stats::bisect::{self, Level, Point, Posterior, Span};

use super::folder::Bisection;
use super::seen::{Seen, differs};
use crate::kernel::Identity;

/// A search with what its tests have shown so far.
pub struct Search<'a> {
    pub bisection: &'a Bisection,
    /// The study of the ends, then the tests.
    pub tests: Vec<Seen>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// The two ends are to be compared.
    Ends,
    /// This kernel is to be tested.
    Test(usize),
    Done(Found),
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The ends do not differ: there is nothing to be found.
    Nothing(Verdict),
    /// An end did not deliver the metric in any pair.
    Unmeasured,
    /// The place of the change.
    Place(Span),
    /// These kernels are on neither side, and no place is clearly that of the larger change.
    Several,
    /// The tests allowed did not settle it.
    Unsettled(Span),
}

/// A kernel as the search knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    pub boots: u32,
    pub level: Option<Level>,
    /// P(it lies after the change); `None` while the ends are not known to differ.
    pub changed: Option<f64>,
    pub side: Side,
    /// How boots of it failed.
    pub failed: Vec<String>,
}

/// On which side of the change a kernel was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The baseline.
    Good,
    Before,
    After,
    /// On neither: there is more than one change.
    Neither,
    /// It was tested, and that does not settle its side.
    Open,
    NotTested,
    /// It cannot be tested.
    Skipped,
}

impl Search<'_> {
    /// Index of the bad end.
    fn last(&self) -> usize {
        self.bisection.candidates.len() - 1
    }

    /// The candidates by what was seen of them.
    pub fn points(&self) -> Vec<Point> {
        let of = |(index, candidate): (usize, &super::Candidate)| {
            let arms = || self.tests.iter().flat_map(|t| &t.arms).filter(|arm| arm.name == candidate.name);
            let values: Vec<f64> = arms().flat_map(|arm| arm.ratios.iter().copied()).collect();
            let failed = arms().any(|arm| arm.failed.is_some());
            let inner = index > 0 && index < self.last();
            if inner && values.is_empty() && failed { Point::Skipped } else { Point::Values(values) }
        };
        self.bisection.candidates.iter().enumerate().map(of).collect()
    }

    /// What is known of the place; `None` while the ends are not known to differ.
    pub fn posterior(&self) -> Option<Posterior> {
        let ends = self.tests.first()?.arms.first()?;
        (differs(ends.verdict) && !ends.ratios.is_empty()).then(|| Posterior::of(&self.points()))
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        let Some(ends) = self.tests.first().and_then(|t| t.arms.first()) else { return Standing::Ends };
        if ends.ratios.is_empty() {
            return Standing::Done(Found::Unmeasured);
        }
        let Some(posterior) = self.posterior() else { return Standing::Done(Found::Nothing(ends.verdict)) };
        let best = posterior.likeliest();
        if best.probability >= 1.0 - self.bisection.error {
            return Standing::Done(Found::Place(best));
        }
        if !bisect::neither(&self.points()).is_empty() {
            return Standing::Done(Found::Several);
        }
        match posterior.next() {
            Some(kernel) if self.tests.len() <= self.bisection.steps as usize => Standing::Test(kernel),
            _ => Standing::Done(Found::Unsettled(posterior.credible(1.0 - self.bisection.error))),
        }
    }

    /// The candidates that are on neither side.
    pub fn neither(&self) -> Vec<usize> {
        if self.posterior().is_some() { bisect::neither(&self.points()) } else { Vec::new() }
    }

    /// Every candidate.
    pub fn known(&self) -> Vec<Known> {
        let points = self.points();
        let (levels, posterior, neither) = (bisect::levels(&points), self.posterior(), self.neither());
        let error = self.bisection.error;
        let of = |(index, candidate): (usize, &super::Candidate)| {
            let mine = || self.tests.iter().flat_map(|t| &t.arms).filter(|arm| arm.name == candidate.name);
            let changed = posterior.as_ref().map(|p| p.changed(index));
            let side = match (&points[index], changed) {
                _ if index == 0 => Side::Good,
                (Point::Skipped, _) => Side::Skipped,
                (Point::Values(v), _) if v.is_empty() => Side::NotTested,
                _ if neither.contains(&index) => Side::Neither,
                (_, Some(p)) if p <= error => Side::Before,
                (_, Some(p)) if p >= 1.0 - error => Side::After,
                _ => Side::Open,
            };
            let (boots, failed) = match index {
                0 => (
                    self.tests.iter().map(|t| t.boots).sum(),
                    self.tests.iter().filter_map(|t| t.failed.clone()).collect(),
                ),
                _ => (mine().map(|arm| arm.boots).sum(), mine().filter_map(|arm| arm.failed.clone()).collect()),
            };
            Known { boots, level: levels[index], changed, side, failed }
        };
        self.bisection.candidates.iter().enumerate().map(of).collect()
    }

    /// Which kernel a candidate is, as far as that is known.
    pub fn kernel(&self, index: usize) -> Option<&Identity> {
        let candidate = &self.bisection.candidates[index];
        let tested = || self.tests.iter().flat_map(|t| &t.arms).find(|arm| arm.name == candidate.name);
        let baseline = self.tests.first().filter(|_| index == 0);
        candidate.identity.as_ref().or_else(|| baseline.map(|t| &t.kernel)).or_else(|| tested().map(|arm| &arm.kernel))
    }

    /// Boots of all tests.
    pub fn boots(&self) -> u32 {
        self.tests.iter().map(Seen::all_boots).sum()
    }
}
