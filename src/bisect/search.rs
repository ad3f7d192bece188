//! The state of a search among kernels: the next test, or the result.
//!
//! Invariant: it is a function of the description and of the tests in order, and of nothing else.

use std::collections::{BTreeMap, HashMap};

use bigiron_stats::Verdict;
use bigiron_stats::bisect::{self, Level, Point, Posterior, Span};

use super::folder::{Bisection, SearchKind};
use super::git::{BuildOutcome, Built};
use super::study_result::{StudyResult, differs};
use bigiron_model::identity::Identity;

/// A search with its tests so far.
pub struct Search<'a> {
    pub bisection: &'a Bisection,
    /// The study of the ends, then the tests.
    pub tests: Vec<StudyResult>,
    /// The build results of candidates that are commits or configurations, by candidate number.
    pub builds: BTreeMap<usize, Built>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchState {
    /// The two ends must be compared.
    Ends,
    /// This kernel must be tested.
    Test(usize),
    Done(SearchResult),
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchResult {
    /// The ends do not differ: there is nothing to find.
    Nothing(Verdict),
    /// An end did not deliver the metric in any pair.
    Unmeasured,
    /// The place of the change.
    Place(Span),
    /// These kernels are on neither side, and no place is clearly that of the larger change.
    Several,
    /// The allowed number of tests did not settle it.
    Unsettled(Span),
}

/// What the search knows about a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownKernel {
    pub boots: u32,
    pub level: Option<Level>,
    /// P(it lies after the change); `None` until the ends are known to differ.
    pub changed: Option<f64>,
    pub side: Side,
    /// How boots of it failed.
    pub failed: Vec<String>,
}

/// The side of the change on which a kernel lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The baseline.
    Good,
    Before,
    After,
    /// Neither: there is more than one change.
    Neither,
    /// It was tested, but its side is still open.
    Open,
    NotTested,
    /// It cannot be tested.
    Skipped,
    /// It was not tested, because it equals the kernel of this number byte for byte.
    Same(usize),
}

impl Search<'_> {
    /// Index of the bad end.
    fn last(&self) -> usize {
        self.bisection.candidates.len() - 1
    }

    /// The observations of each candidate.
    pub fn points(&self) -> Vec<Point> {
        let of = |(index, candidate): (usize, &super::Candidate)| {
            let arms = || self.tests.iter().flat_map(|t| &t.arms).filter(|arm| arm.name == candidate.name);
            let values: Vec<f64> = arms().flat_map(|arm| arm.ratios.iter().copied()).collect();
            let failed = arms().any(|arm| arm.failed.is_some()) || self.unbuilt(index).is_some();
            let inner = index > 0 && index < self.last();
            if inner && values.is_empty() && failed { Point::Skipped } else { Point::Values(values) }
        };
        self.bisection.candidates.iter().enumerate().map(of).collect()
    }

    /// The posterior of the place; `None` until the ends are known to differ.
    pub fn posterior(&self) -> Option<Posterior> {
        let ends = self.tests.first()?.arms.first()?;
        (differs(ends.verdict) && !ends.ratios.is_empty()).then(|| Posterior::among(&self.points(), &self.possible()))
    }

    /// The possible places of the change: not between two kernels that are equal byte for byte.
    fn possible(&self) -> impl Fn(usize) -> bool + use<> {
        let mut excluded = vec![false; self.bisection.candidates.len()];
        let known: Vec<(usize, &Identity)> =
            (0..excluded.len()).filter_map(|i| Some((i, self.builds.get(&i)?.kernel.as_ref()?))).collect();
        let mut farthest: HashMap<(&str, Option<&str>), (usize, usize)> = HashMap::new();
        for (i, kernel) in known {
            let reach = farthest.entry(self.bytes(kernel)).or_insert((i, i));
            reach.1 = i;
        }
        for (first, last) in farthest.into_values() {
            excluded[first + 1..=last].fill(true);
        }
        move |j| !excluded[j]
    }

    /// The key by which two kernels count as the same. In a search among configurations only the image counts: a difference in
    /// configuration without a trace in the image changes nothing that boots.
    fn bytes<'k>(&self, kernel: &'k Identity) -> (&'k str, Option<&'k str>) {
        let config = kernel.config_sha256.as_deref().filter(|_| self.bisection.what != SearchKind::Configs);
        (&kernel.image_sha256, config)
    }

    /// The tested candidate with the same bytes, if this one was not tested.
    fn same(&self, index: usize) -> Option<usize> {
        let bytes = |i: usize| {
            let kernel = self.builds.get(&i)?.kernel.as_ref()?;
            Some(self.bytes(kernel))
        };
        let mine = bytes(index)?;
        let is_tested = |i: &usize| {
            *i == 0 || self.tests.iter().flat_map(|t| &t.arms).any(|a| a.name == self.bisection.candidates[*i].name)
        };
        (0..self.bisection.candidates.len()).filter(|i| *i != index).filter(is_tested).find(|i| bytes(*i) == Some(mine))
    }

    /// Why a candidate could not be built.
    pub fn unbuilt(&self, index: usize) -> Option<&Built> {
        self.builds.get(&index).filter(|built| built.outcome == BuildOutcome::Failed)
    }

    /// The state of the search.
    pub fn state(&self) -> SearchState {
        let Some(ends) = self.tests.first().and_then(|t| t.arms.first()) else { return SearchState::Ends };
        if ends.ratios.is_empty() {
            return SearchState::Done(SearchResult::Unmeasured);
        }
        let Some(posterior) = self.posterior() else { return SearchState::Done(SearchResult::Nothing(ends.verdict)) };
        let best = posterior.likeliest();
        if best.probability >= 1.0 - self.bisection.error {
            return SearchState::Done(SearchResult::Place(best));
        }
        if !bisect::neither(&self.points()).is_empty() {
            return SearchState::Done(SearchResult::Several);
        }
        match posterior.next() {
            Some(kernel) if self.tests.len() + self.failed_builds() <= self.bisection.steps as usize => {
                SearchState::Test(kernel)
            }
            _ => SearchState::Done(SearchResult::Unsettled(posterior.credible(1.0 - self.bisection.error))),
        }
    }

    /// Failed builds: each counts as a step.
    fn failed_builds(&self) -> usize {
        self.builds.values().filter(|built| built.outcome == BuildOutcome::Failed).count()
    }

    /// The candidates that are on neither side.
    pub fn neither(&self) -> Vec<usize> {
        if self.posterior().is_some() { bisect::neither(&self.points()) } else { Vec::new() }
    }

    /// Every candidate.
    pub fn known(&self) -> Vec<KnownKernel> {
        let points = self.points();
        let (levels, posterior, neither) = (bisect::levels(&points), self.posterior(), self.neither());
        let error = self.bisection.error;
        let of = |(index, candidate): (usize, &super::Candidate)| {
            let mine = || self.tests.iter().flat_map(|t| &t.arms).filter(|arm| arm.name == candidate.name);
            let changed = posterior.as_ref().map(|p| p.changed(index));
            let side = match (&points[index], changed) {
                _ if index == 0 => Side::Good,
                (Point::Skipped, _) => Side::Skipped,
                (Point::Values(v), _) if v.is_empty() => self.same(index).map_or(Side::NotTested, Side::Same),
                _ if neither.contains(&index) => Side::Neither,
                (_, Some(p)) if p <= error => Side::Before,
                (_, Some(p)) if p >= 1.0 - error => Side::After,
                _ => Side::Open,
            };
            let (boots, mut failed): (u32, Vec<String>) = match index {
                0 => (
                    self.tests.iter().map(|t| t.boots).sum(),
                    self.tests.iter().filter_map(|t| t.failed.clone()).collect(),
                ),
                _ => (mine().map(|arm| arm.boots).sum(), mine().filter_map(|arm| arm.failed.clone()).collect()),
            };
            failed.extend(self.unbuilt(index).map(|built| {
                let why = built.why.as_deref().unwrap_or("make failed");
                let log = built.log.as_ref().map_or_else(String::new, |log| format!("; the log is {log}"));
                format!("could not be built: {why}{log}")
            }));
            KnownKernel { boots, level: levels[index], changed, side, failed }
        };
        self.bisection.candidates.iter().enumerate().map(of).collect()
    }

    /// A candidate's kernel, if known.
    pub fn kernel(&self, index: usize) -> Option<&Identity> {
        let candidate = &self.bisection.candidates[index];
        let tested = || self.tests.iter().flat_map(|t| &t.arms).find(|arm| arm.name == candidate.name);
        let baseline = self.tests.first().filter(|_| index == 0);
        let built = self.builds.get(&index).and_then(|built| built.kernel.as_ref());
        candidate
            .identity
            .as_ref()
            .or(built)
            .or_else(|| baseline.map(|t| &t.kernel))
            .or_else(|| tested().map(|arm| &arm.kernel))
    }

    /// Boots of all tests.
    pub fn boots(&self) -> u32 {
        self.tests.iter().map(StudyResult::all_boots).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::git::short;
    use super::super::study_result::ArmResult;
    use super::super::{Candidate, SearchKind};
    use super::*;
    use bigiron_model::clock::Clock;
    use bigiron_model::metric::{Better, Kind, MetricDef, Unit};

    fn kernel(image: &str) -> Identity {
        Identity {
            spec: image.to_owned(),
            release: "6.9.0".to_owned(),
            package: None,
            image_sha256: image.to_owned(),
            config_sha256: Some("c".to_owned()),
        }
    }

    fn commits(count: usize) -> Bisection {
        let candidate = |n: usize| Candidate {
            name: n.to_string(),
            kernel: format!("git-{n}"),
            settings: Vec::new(),
            identity: None,
            commit: None,
            link: None,
        };
        let metric = MetricDef {
            name: "fork-exit".to_owned(),
            unit: Unit::named("ns"),
            better: Better::Lower,
            kind: Kind::Cost,
            primary: false,
            summary: String::new(),
        };
        Bisection {
            schema: 1,
            bigiron: String::new(),
            executable: String::new(),
            qemu: None,
            qemu_build: None,
            question_sha256: String::new(),
            begun: String::new(),
            repeat: String::new(),
            options: String::new(),
            clock: Clock::Exact,
            seed: 1,
            what: SearchKind::Commits,
            error: 0.05,
            pairs_per_step: 2,
            steps: 50,
            workload: "micro".to_owned(),
            metric,
            source: None,
            candidates: (0..count).map(candidate).collect(),
        }
    }

    /// A study of one candidate, whose ratios are these.
    fn seen(name: usize, ratios: &[f64]) -> StudyResult {
        let arm = ArmResult {
            name: name.to_string(),
            kernel: kernel("x"),
            boots: ratios.len() as u32,
            failed: None,
            ratios: ratios.to_vec(),
            estimate: None,
            verdict: Verdict::Worse,
        };
        StudyResult { folder: String::new(), kernel: kernel("good"), boots: 2, failed: None, arms: vec![arm] }
    }

    fn built(image: Option<&str>) -> Built {
        Built {
            commit: short("0123456789abcdef").to_owned(),
            outcome: if image.is_some() { BuildOutcome::Built } else { BuildOutcome::Failed },
            why: image.is_none().then(|| "no such header".to_owned()),
            seconds: 1.0,
            image_bytes: None,
            log: image.is_none().then(|| "builds/x.log".to_owned()),
            kernel: image.map(kernel),
        }
    }

    #[test]
    fn a_commit_that_is_not_built_keeps_its_probability() {
        let bisection = commits(6);
        let tests = vec![seen(5, &[0.1; 8]), seen(2, &[0.0, 0.001]), seen(4, &[0.1, 0.101])];
        let mut search = Search { bisection: &bisection, tests, builds: BTreeMap::new() };
        assert_eq!(search.state(), SearchState::Test(3));
        search.builds.insert(3, built(None));
        let SearchState::Done(SearchResult::Place(span)) = search.state() else { panic!("{:?}", search.state()) };
        assert_eq!((span.good, span.bad), (2, 4));
        let known = search.known();
        assert_eq!(known[3].side, Side::Skipped);
        assert_eq!(known[3].failed, ["could not be built: no such header; the log is builds/x.log"]);
        assert!((known[3].changed.unwrap() - 0.5).abs() < 0.01);
    }

    #[test]
    fn kernels_of_the_same_bytes_have_no_change_between_them() {
        let bisection = commits(6);
        let tests = vec![seen(5, &[0.1; 8])];
        let mut search = Search { bisection: &bisection, tests, builds: BTreeMap::new() };
        assert_eq!(search.state(), SearchState::Test(2));
        for (index, image) in [(0, "good"), (5, "bad"), (2, "good")] {
            search.builds.insert(index, built(Some(image)));
        }
        assert_eq!(search.known()[2].side, Side::Same(0));
        assert_eq!(search.known()[1].changed, Some(0.0));
        assert!(matches!(search.state(), SearchState::Test(3 | 4)));
        search.builds.insert(3, built(Some("bad")));
        let SearchState::Done(SearchResult::Place(span)) = search.state() else { panic!("{:?}", search.state()) };
        assert_eq!((span.good, span.bad, span.probability), (2, 3, 1.0));
        // An additional configuration makes another kernel.
        let other = Identity { config_sha256: Some("d".to_owned()), ..kernel("bad") };
        search.builds.insert(3, Built { kernel: Some(other), ..built(Some("bad")) });
        assert!(matches!(search.state(), SearchState::Test(3 | 4)));
        // In a search among configurations, a configuration without a trace in the image does not.
        let configs = Bisection { what: SearchKind::Configs, ..bisection.clone() };
        let search = Search { bisection: &configs, ..search };
        assert!(matches!(search.state(), SearchState::Done(SearchResult::Place(_))), "{:?}", search.state());
    }

    #[test]
    fn a_build_that_fails_is_a_step() {
        let bisection = Bisection { steps: 2, ..commits(9) };
        let mut search = Search { bisection: &bisection, tests: vec![seen(8, &[0.1; 8])], builds: BTreeMap::new() };
        for _ in 0..2 {
            let SearchState::Test(next) = search.state() else { panic!("{:?}", search.state()) };
            search.builds.insert(next, built(None));
        }
        assert!(matches!(search.state(), SearchState::Done(SearchResult::Unsettled(_))));
    }
}
