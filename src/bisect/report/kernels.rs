//! The report of a search among kernels.

use super::{
    BisectOutcome, BisectReport, CandidateRow, ChangePlace, FolderExtras, change, changed, metric, nothing,
    probability, unmeasured,
};
use crate::bisect::search::{KnownKernel, Side};
use crate::bisect::{Search, SearchKind, SearchResult, SearchState};
use bigiron_report::sentence::join;

impl<'a> BisectReport<'a> {
    /// The report of a search among kernels, commits or configurations; `more` has further facts.
    pub fn kernels(search: &Search<'a>, more: &FolderExtras<'_>) -> BisectReport<'a> {
        let bisection = search.bisection;
        let known = search.known();
        let mut report = BisectReport {
            bisection,
            outcome: BisectOutcome::Unfinished,
            sentences: Vec::new(),
            place: None,
            commits: Vec::new(),
            options: None,
            head: match bisection.what {
                SearchKind::Commits => COMMITS_HEAD,
                SearchKind::Configs => CONFIGS_HEAD,
                SearchKind::Kernels | SearchKind::Levers => HEAD,
            },
            rows: Vec::new(),
            next: Vec::new(),
            commands: Vec::new(),
            method: method(search),
            tests: search.tests.len().saturating_sub(1),
            boots: search.boots(),
        };
        let told = KernelReporter { search, known: &known, more };
        let marked = told.conclude(&mut report);
        report.rows = (0..known.len()).map(|i| told.row(i, marked == Some(i))).collect();
        if report.outcome == BisectOutcome::Several {
            // The probabilities assume a single change.
            for row in &mut report.rows {
                (row.weight, row.shown) = (None, String::new());
            }
        }
        report
    }
}

const HEAD: &[&str] = &["kernel", "change", "95 %", "boots", "after", ""];
const COMMITS_HEAD: &[&str] = &["commit", "change", "95 %", "boots", "after", "", "subject"];
const CONFIGS_HEAD: &[&str] = &["kernel", "change", "95 %", "boots", "after", "", "switched"];

/// Builds the report's sentences from the known facts.
pub(super) struct KernelReporter<'a, 'b> {
    pub(super) search: &'b Search<'a>,
    known: &'b [KnownKernel],
    pub(super) more: &'b FolderExtras<'b>,
}

impl KernelReporter<'_, '_> {
    pub(super) fn name(&self, index: usize) -> &str {
        &self.search.bisection.candidates[index].name
    }

    fn names(&self, indices: impl Iterator<Item = usize>) -> Vec<String> {
        indices.map(|i| format!("`{}`", self.name(i))).collect()
    }

    /// Adds the sentences; returns the kernel at which the change is, if it was found.
    fn conclude(&self, report: &mut BisectReport<'_>) -> Option<usize> {
        let bisection = self.search.bisection;
        let last = bisection.candidates.len() - 1;
        match self.search.state() {
            SearchState::Ends => {
                report
                    .sentences
                    .push("Unfinished: the two ends are not compared yet; the same command resumes".to_owned());
            }
            SearchState::Test(next) => {
                let sentence = format!("Unfinished: {} is the next test; the same command resumes", self.name(next));
                report.sentences.push(sentence);
            }
            SearchState::Done(SearchResult::Nothing(verdict)) => {
                nothing(report, verdict, &self.whole());
            }
            SearchState::Done(SearchResult::Unmeasured) => {
                report.outcome = BisectOutcome::Unmeasured;
                let ends = &self.search.tests[0];
                let failed = [(self.name(0), &ends.failed), (self.name(last), &ends.arms[0].failed)];
                report.sentences.push(unmeasured(bisection, &failed));
            }
            SearchState::Done(SearchResult::Place(span)) => {
                report.outcome = BisectOutcome::Found;
                self.place(report, span.good, span.bad, span.probability);
                return Some(span.bad);
            }
            SearchState::Done(SearchResult::Several) => {
                report.outcome = BisectOutcome::Several;
                self.several(report);
            }
            SearchState::Done(SearchResult::Unsettled(span)) => {
                report.outcome = BisectOutcome::Unsettled;
                let (good, bad) = (self.name(span.good), self.name(span.bad));
                report.sentences.push(format!(
                    "Not settled by {} tests: {} changes between `{good}` and `{bad}`, with a probability of {}",
                    report.tests,
                    metric(bisection),
                    probability(span.probability)
                ));
                report.place = Some(self.span(span.good, span.bad, span.probability));
                report.next.push(
                    "Run more tests: repeat the command with a larger `--steps`, or start again with more `--pairs-per-step`"
                        .to_owned(),
                );
            }
        }
        None
    }

    /// The overall change between the ends.
    fn whole(&self) -> String {
        self.known
            .last()
            .and_then(|k| k.level)
            .map_or_else(|| "not measured".to_owned(), |l| changed(l.mean, l.interval))
    }

    fn span(&self, good: usize, bad: usize, probability: f64) -> ChangePlace {
        let between = (good + 1..bad).map(|i| self.name(i).to_owned()).collect();
        ChangePlace { good: self.name(good).to_owned(), bad: self.name(bad).to_owned(), probability, between }
    }

    fn place(&self, report: &mut BisectReport<'_>, good: usize, bad: usize, p: f64) {
        let bisection = self.search.bisection;
        let neither = self.search.neither();
        let (a, b) = (self.name(good), self.name(bad));
        let what = if neither.is_empty() { "The change" } else { "The largest change" };
        let is_commits = bisection.what == SearchKind::Commits;
        let is_configs = bisection.what == SearchKind::Configs;
        let sure = match p == 1.0 && !is_commits && !is_configs {
            true => String::new(),
            false => format!(", with a probability of {}", probability(p)),
        };
        report.options = self.options(good, bad);
        let maker = match &report.options {
            _ if is_commits && self.joins(good, bad) == 1 => Some(format!("the commit `{b}`")),
            Some(options) if bad - good == 1 => Some(options.named()),
            _ => None,
        };
        report.sentences.push(match maker {
            Some(maker) => format!("{what} of {} is caused by {maker}{sure}", metric(bisection)),
            None => format!("{what} of {} lies between `{a}` and `{b}`{sure}", metric(bisection)),
        });
        report.sentences.push(format!(
            "Overall, `{}` is {} against `{}`",
            self.name(self.known.len() - 1),
            self.whole(),
            self.name(0)
        ));
        if bad - good > 1 {
            let skipped = self.names(good + 1..bad);
            report.sentences.push(format!(
                "It is one of {} places: {} could not be tested",
                bad - good,
                join(&skipped)
            ));
        }
        if !neither.is_empty() {
            report.outcome = BisectOutcome::FoundWithOthers;
            report.sentences.push(format!(
                "There is more than one change: {} {} near neither end",
                self.at_levels(&neither),
                if neither.len() == 1 { "is" } else { "are" }
            ));
        }
        report.place = Some(self.span(good, bad, p));
        if is_commits {
            self.commits(report, good, bad);
        }
        if is_configs {
            self.configs(report, good, bad);
        }
        let package = |index: usize| self.search.kernel(index).and_then(|k| k.package.clone());
        if let (Some(older), Some(newer)) = (package(good), package(bad))
            && older != newer
        {
            report.next.push(format!("Read the changelog of `{newer}`, down to `{older}`"));
        }
        report.next.push("Find the causes by function".to_owned());
        // A configuration may equal one that was built under another name.
        let built = |index: usize| self.search.builds.get(&index)?.kernel.as_ref().map(|kernel| kernel.spec.clone());
        let arm = |index: usize| built(index).unwrap_or_else(|| bisection.candidates[index].text());
        let why = if bisection.clock.is_exact() { " --why 1" } else { "" };
        report.commands.push(format!(
            "bigiron compare {} {} {} {}{why}",
            arm(good),
            arm(bad),
            bisection.workload,
            bisection.options
        ));
    }

    fn several(&self, report: &mut BisectReport<'_>) {
        let bisection = self.search.bisection;
        let neither = self.search.neither();
        let last = self.known.len() - 1;
        report.sentences.push(format!(
            "More than one change of {}: {} {} near neither `{}` nor `{}`, which is {}",
            metric(bisection),
            self.at_levels(&neither),
            if neither.len() == 1 { "is" } else { "are" },
            self.name(0),
            self.name(last),
            self.whole()
        ));
        report.next.push("Bisect each part".to_owned());
        let mut ends = vec![0];
        ends.extend(neither);
        ends.push(last);
        match bisection.what {
            SearchKind::Commits => return self.parts(report, &ends),
            SearchKind::Configs => return self.parts_of_configs(report, &ends),
            SearchKind::Kernels | SearchKind::Levers => {}
        }
        for pair in ends.windows(2).filter(|pair| pair[1] - pair[0] > 1) {
            let list: Vec<String> = (pair[0]..=pair[1]).map(|i| bisection.candidates[i].text()).collect();
            report.commands.push(format!(
                "bigiron bisect --kernels {} {}:{} {}",
                list.join(","),
                bisection.workload,
                bisection.metric.name,
                bisection.options
            ));
        }
        for pair in ends.windows(2).filter(|pair| pair[1] - pair[0] == 1) {
            report.next.push(format!("One change lies between `{}` and `{}`", self.name(pair[0]), self.name(pair[1])));
        }
    }

    /// Kernels with their changes.
    fn at_levels(&self, kernels: &[usize]) -> String {
        let level = |i: &usize| {
            let level =
                self.known[*i].level.map_or_else(String::new, |l| format!(" at {}", changed(l.mean, l.interval)));
            format!("`{}`{level}", self.name(*i))
        };
        join(&kernels.iter().map(level).collect::<Vec<_>>())
    }

    fn row(&self, index: usize, marked: bool) -> CandidateRow {
        let known = &self.known[index];
        let level = known.level.map(|l| change(l.mean, l.interval));
        let (change, interval) = level.map_or((None, None), |(change, interval)| (Some(change), interval));
        let word = match known.side {
            Side::Good => "good",
            Side::Before => "before",
            Side::After if index + 1 == self.known.len() => "bad",
            Side::After => "after",
            Side::Neither => "neither",
            Side::Open => "open",
            Side::NotTested => "not tested",
            Side::Skipped => "skipped",
            Side::Same(_) => "the same",
        };
        let name = self.name(index).to_owned();
        let mut notes: Vec<String> = known.failed.iter().map(|failed| format!("`{name}` {failed}")).collect();
        if let Side::Same(other) = known.side {
            notes.push(format!("`{name}` is, byte for byte, `{}`: not booted", self.name(other)));
        }
        CandidateRow {
            notes,
            subject: self.search.bisection.candidates[index].subject(),
            build: self.search.builds.get(&index).cloned(),
            name,
            release: self.search.kernel(index).map(|k| k.release.clone()),
            change,
            interval,
            boots: known.boots,
            weight: known.changed,
            shown: known.changed.map_or_else(String::new, probability),
            word,
            marked,
        }
    }
}

fn method(search: &Search<'_>) -> Vec<String> {
    let b = search.bisection;
    let mut method = vec![
        format!(
            "The first study compared the ends; each test then compared one kernel with the good one, in {} pairs, on the {} clock, seed {}",
            b.pairs_per_step, b.clock, b.seed
        ),
        "change: geometric mean of the pairs' ratios to the good kernel; the interval is Student's, with the spread of all kernels pooled".to_owned(),
        format!(
            "after: the probability that the kernel lies after the change, given one change of one size; every place was as likely at first, and the search stops at {}",
            probability(1.0 - b.error)
        ),
    ];
    method.extend(super::commits::method(search));
    method
}
