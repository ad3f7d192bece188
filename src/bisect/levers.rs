//! Finds which of the levers that differ between two arms causes the difference in the metric.
//!
//! Every lever is first switched alone, from the first arm's value to the second's. If none alone causes half of the difference,
//! the levers that contribute are switched together, the largest first; if that does not cause most of it either, all pairs of
//! levers are tried, as long as they are few. Invariant: the next step is a function of the description and of the finished
//! studies.

use bigiron_stats::Verdict;

use super::folder::{Bisection, EACH};
use super::study_result::{ArmResult, StudyResult, differs};
use bigiron_lab::lever;
use bigiron_model::setting::{Setting, TypedSetting};

/// Share of the difference from which one lever is named as the cause.
pub const HALF: f64 = 0.5;

/// Share of the difference from which several levers together are named as the cause.
pub const MOST: f64 = 0.8;

/// Maximum number of levers: each is an arm of one study.
pub const LIMIT: usize = 16;

/// Maximum number of levers of which all pairs are tried: 15 arms.
pub const COUPLES_OF: usize = 6;

/// The folder of the study of all pairs of levers.
const COUPLES: &str = "couples";

/// A lever with different values in two arms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub lever: String,
    /// The second arm's value; `None` if it does not set the lever.
    pub to: Option<String>,
}

impl Difference {
    /// Its name in reports and studies.
    pub fn name(&self) -> String {
        match &self.to {
            Some(value) => TypedSetting(&(self.lever.clone(), value.clone())).to_string(),
            None => format!("without {}", self.lever),
        }
    }
}

/// The levers in which `b` differs from `a`: those that `b` sets, in its order, then those that only `a` sets.
pub fn differences(a: &[Setting], b: &[Setting]) -> Vec<Difference> {
    let same = |x: &str, y: &str| lever::key(x) == lever::key(y);
    let set = b.iter().filter(|(lever, value)| !a.iter().any(|(l, v)| same(l, lever) && v == value));
    let set = set.map(|(lever, value)| Difference { lever: lever.clone(), to: Some(value.clone()) });
    let left = a.iter().filter(|(lever, _)| !b.iter().any(|(l, _)| same(l, lever)));
    set.chain(left.map(|(lever, _)| Difference { lever: lever.clone(), to: None })).collect()
}

/// `settings` with some differences switched.
pub fn switched(settings: &[Setting], differences: &[&Difference]) -> Vec<Setting> {
    let is = |d: &Difference, lever: &str| lever::key(&d.lever) == lever::key(lever);
    let kept = settings.iter().filter(|(lever, _)| !differences.iter().any(|d| is(d, lever))).cloned();
    let new = differences.iter().filter_map(|d| Some((d.lever.clone(), d.to.clone()?)));
    kept.chain(new).collect()
}

/// A search with its results so far.
pub struct LeverSearch<'a> {
    pub bisection: &'a Bisection,
    /// The study of the ends, that of each lever alone, and those of several together.
    pub studies: Vec<StudyResult>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum LeverSearchState {
    /// The two arms must be compared.
    Ends,
    /// A study of these sets of levers must run, each set (numbers of [`LeverSearch::differences`]) as an arm.
    Study {
        folder: String,
        sets: Vec<Vec<usize>>,
    },
    Done(LeverSearchResult),
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum LeverSearchResult {
    Nothing(Verdict),
    Unmeasured,
    /// Each of these alone causes at least half of the difference; the largest first.
    Alone(Vec<usize>),
    /// None of these alone, but all together, cause most of it.
    Together(Vec<usize>),
    /// Neither a single lever nor any set that was tried causes most of it.
    Unexplained,
}

impl LeverSearch<'_> {
    pub fn differences(&self) -> Vec<Difference> {
        let [a, b, ..] = &self.bisection.candidates[..] else { return Vec::new() };
        differences(&a.settings, &b.settings)
    }

    /// The name of a set's arm.
    pub fn name(&self, set: &[usize]) -> String {
        let differences = self.differences();
        set.iter().map(|i| differences[*i].name()).collect::<Vec<_>>().join(" + ")
    }

    /// The result of the arm of a set.
    pub fn result_of(&self, set: &[usize]) -> Option<&ArmResult> {
        let name = self.name(set);
        self.studies.iter().skip(1).flat_map(|s| &s.arms).find(|arm| arm.name == name)
    }

    /// The difference between the two arms, on the log scale.
    pub fn whole(&self) -> Option<f64> {
        Some(self.studies.first()?.arms.first()?.estimate?.mean)
    }

    /// The share of the difference that a set causes.
    pub fn share(&self, set: &[usize]) -> Option<f64> {
        Some(self.result_of(set)?.estimate?.mean / self.whole()?)
    }

    /// The state of the search.
    pub fn state(&self) -> LeverSearchState {
        let Some(ends) = self.studies.first().and_then(|s| s.arms.first()) else { return LeverSearchState::Ends };
        if ends.ratios.is_empty() {
            return LeverSearchState::Done(LeverSearchResult::Unmeasured);
        }
        if !differs(ends.verdict) {
            return LeverSearchState::Done(LeverSearchResult::Nothing(ends.verdict));
        }
        let all: Vec<usize> = (0..self.differences().len()).collect();
        if self.studies.len() < 2 {
            let sets = all.iter().map(|i| vec![*i]).collect();
            return LeverSearchState::Study { folder: EACH.to_owned(), sets };
        }
        let contributing = self.contributing(&all);
        let share = |i: &usize| self.share(&[*i]).unwrap_or(0.0);
        let alone: Vec<usize> = contributing.iter().copied().filter(|i| share(i) >= HALF).collect();
        if !alone.is_empty() {
            return LeverSearchState::Done(LeverSearchResult::Alone(alone));
        }
        if all.len() == 2 {
            return LeverSearchState::Done(LeverSearchResult::Together(all));
        }
        for size in 2..=contributing.len().min(all.len() - 1) {
            let mut set = contributing[..size].to_vec();
            set.sort_unstable();
            match self.share(&set) {
                Some(share) if share >= MOST => return LeverSearchState::Done(LeverSearchResult::Together(set)),
                None if self.result_of(&set).is_none() => {
                    return LeverSearchState::Study { folder: format!("together-{size:02}"), sets: vec![set] };
                }
                _ => {}
            }
        }
        if contributing.len() == all.len() {
            return LeverSearchState::Done(LeverSearchResult::Together(all));
        }
        if all.len() > COUPLES_OF {
            return LeverSearchState::Done(LeverSearchResult::Unexplained);
        }
        let couples: Vec<Vec<usize>> = all
            .iter()
            .flat_map(|i| (i + 1..all.len()).map(|j| vec![*i, j]))
            .filter(|set| self.result_of(set).is_none())
            .collect();
        let tried = self.studies.iter().any(|s| s.folder == COUPLES);
        if !tried && !couples.is_empty() {
            return LeverSearchState::Study { folder: COUPLES.to_owned(), sets: couples };
        }
        LeverSearchState::Done(match self.best_couple(&all) {
            Some((set, share)) if share >= MOST => LeverSearchResult::Together(set),
            _ => LeverSearchResult::Unexplained,
        })
    }

    /// The levers that cause some of the difference alone, the largest share first.
    fn contributing(&self, all: &[usize]) -> Vec<usize> {
        let share = |i: usize| self.share(&[i]).unwrap_or(0.0);
        let is_real = |i: &usize| share(*i) > 0.0 && self.result_of(&[*i]).is_some_and(|arm| differs(arm.verdict));
        let mut contributing: Vec<usize> = all.iter().copied().filter(is_real).collect();
        contributing.sort_by(|a, b| share(*b).total_cmp(&share(*a)));
        contributing
    }

    fn best_couple(&self, all: &[usize]) -> Option<(Vec<usize>, f64)> {
        let couples = all.iter().flat_map(|i| (i + 1..all.len()).map(|j| vec![*i, j]));
        couples.filter_map(|set| self.share(&set).map(|share| (set, share))).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Boots of all studies.
    pub fn boots(&self) -> u32 {
        self.studies.iter().map(StudyResult::all_boots).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::study::setting;

    fn set(texts: &[&str]) -> Vec<Setting> {
        texts.iter().map(|text| setting::parse(text).unwrap()).collect()
    }

    #[test]
    fn arms_differ_in_what_either_sets_unlike_the_other() {
        let a = set(&["boot.preempt=none", "boot.nosmt", "mm.thp=always"]);
        let b = set(&["boot.mitigations=off", "mm.thp=always", "boot.preempt=full"]);
        let found = differences(&a, &b);
        let names: Vec<String> = found.iter().map(Difference::name).collect();
        assert_eq!(names, ["boot.mitigations=off", "boot.preempt=full", "without boot.nosmt"]);
        assert_eq!(switched(&a, &[&found[2]]), set(&["boot.preempt=none", "mm.thp=always"]));
        assert_eq!(switched(&a, &[&found[1]]), set(&["boot.nosmt", "mm.thp=always", "boot.preempt=full"]));
        // Two spellings of one parameter are one lever.
        let (a, b) = (set(&["boot.init-on-free=0"]), set(&["boot.init_on_free=1"]));
        assert_eq!(switched(&a, &differences(&a, &b).iter().collect::<Vec<_>>()), b);
    }

    proptest! {
        #[test]
        fn with_all_differences_switched_one_arm_is_the_other(
            a in proptest::collection::btree_map("[a-e]", "[01]", 0..5), b in proptest::collection::btree_map("[a-e]", "[01]", 0..5),
        ) {
            let arm = |map: std::collections::BTreeMap<String, String>| -> Vec<Setting> {
                map.into_iter().map(|(name, value)| (format!("boot.{name}"), value)).collect()
            };
            let (a, b) = (arm(a), arm(b));
            let found = differences(&a, &b);
            let mut all = switched(&a, &found.iter().collect::<Vec<_>>());
            all.sort();
            prop_assert_eq!(&all, &b);
            prop_assert!(differences(&all, &b).is_empty() && differences(&a, &a).is_empty());
        }
    }
}
