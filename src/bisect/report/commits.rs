//! The part of a report about commits, in addition to the part about all kernels.

use super::kernels::KernelReporter;
use super::{BisectReport, CommitDetails};
use crate::bisect::Search;
use crate::bisect::git::{BuildOutcome, Built, short};
use bigiron_model::shell::quote;
use bigiron_report::sentence::join;
use bigiron_report::why::ns;

/// Maximum number of files and functions named in a sentence.
const NAMED: usize = 6;

impl KernelReporter<'_, '_> {
    /// Number of commits between two candidates, including the second.
    pub(super) fn joins(&self, good: usize, bad: usize) -> u32 {
        let joins = |i: usize| self.search.bisection.candidates[i].commit.as_ref().map_or(1, |c| c.joins);
        (good + 1..=bad).map(joins).sum()
    }

    /// Describes the commits of a place, and suggests next steps.
    pub(super) fn commits(&self, report: &mut BisectReport<'_>, good: usize, bad: usize) {
        let bisection = self.search.bisection;
        let candidates = &bisection.candidates;
        let (Some(source), Some(first), Some(last)) =
            (&bisection.source, &candidates[good].commit, &candidates[bad].commit)
        else {
            return;
        };
        let touched = self.more.touched.as_ref().filter(|t| t.good == first.hash && t.bad == last.hash);
        for (index, candidate) in candidates.iter().enumerate().take(bad + 1).skip(good + 1) {
            let Some(commit) = &candidate.commit else { continue };
            let known = touched.and_then(|t| t.commits.iter().find(|c| c.commit == commit.hash));
            let untested = match self.search.unbuilt(index) {
                Some(built) => Some(built.why.clone().unwrap_or_else(|| "it could not be built".to_owned())),
                None => (index != bad).then(|| "no boot of it gave the metric".to_owned()),
            };
            report.commits.push(CommitDetails {
                commit: commit.clone(),
                untested,
                files: known.map_or_else(Vec::new, |k| k.files.clone()),
                functions: touched
                    .and_then(|t| t.functions)
                    .map(|_| known.map_or_else(Vec::new, |k| k.functions.clone())),
            });
        }
        let tree = quote(&source.tree.display().to_string());
        let (a, b) = (short(&first.hash), short(&last.hash));
        report.next.push("See the changes".to_owned());
        report.commands.push(match self.joins(good, bad) {
            1 => format!("git -C {tree} show {b}"),
            _ => format!("git -C {tree} log --stat {a}..{b}"),
        });
        for merged in touched.iter().flat_map(|t| &t.commits).filter_map(|c| c.merged.as_ref()) {
            let (base, tip) = (short(&merged.0), short(&merged.1));
            report.next.push(format!("Bisect the commits that the merge joins, {base}..{tip}"));
            report.commands.push(self.again(base, tip));
        }
        if self.joins(good, bad) > 1 && bad - good == 1 && !source.paths.is_empty() {
            report.next.push("Bisect the commits that touch other paths".to_owned());
            report.commands.push(self.again(a, b));
        }
    }

    /// The command that searches between two other commits.
    pub(super) fn again(&self, good: &str, bad: &str) -> String {
        let bisection = self.search.bisection;
        let Some(source) = &bisection.source else { return String::new() };
        let config = source.config.strip_prefix("make ").unwrap_or(&source.config);
        let mut words = vec![
            format!("bigiron bisect --git {}", quote(&source.tree.display().to_string())),
            format!("--good {good} --bad {bad} --config {}", quote(config)),
        ];
        words.extend(source.make.iter().map(|word| format!("--make-arg={}", quote(word))));
        words.push(format!("{}:{} {}", bisection.workload, bisection.metric.name, bisection.options));
        words.join(" ")
    }

    /// Commands that search each part of a list with several changes.
    pub(super) fn parts(&self, report: &mut BisectReport<'_>, ends: &[usize]) {
        for pair in ends.windows(2) {
            let (a, b) = (self.name(pair[0]), self.name(pair[1]));
            match pair[1] - pair[0] {
                1 => report.next.push(format!("One change lies between `{a}` and `{b}`")),
                _ => report.commands.push(self.again(a, b)),
            }
        }
    }
}

impl CommitDetails {
    /// Lines of its block in the text: headings and their contents.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let commit = &self.commit;
        let mut lines = vec![
            ("commit", commit.hash.clone()),
            ("subject", commit.subject.clone()),
            ("author", commit.author.clone()),
            ("date", commit.date.clone()),
        ];
        if commit.joins > 1 {
            lines.push(("joins", format!("{} commits", commit.joins)));
        }
        if let Some(why) = &self.untested {
            lines.push(("untested", why.clone()));
        }
        if !self.files.is_empty() {
            lines.push(("files", some(&self.files)));
        }
        match self.functions.as_deref() {
            Some([]) => lines.push(("why", "none of the functions that cost more is defined in its files".to_owned())),
            Some(functions) => {
                let each: Vec<String> = functions
                    .iter()
                    .map(|f| format!("`{}` in {} takes {} ns more per operation", f.name, f.file, ns(f.more_ns)))
                    .collect();
                lines.push(("why", some(&each)));
            }
            None => {}
        }
        lines
    }
}

/// The first of a list, and the number of the rest.
pub(super) fn some(all: &[String]) -> String {
    match all.len().saturating_sub(NAMED) {
        0 => all.join(", "),
        more => format!("{} and {more} more", all[..NAMED].join(", ")),
    }
}

/// How the kernels were built.
pub(super) fn method(search: &Search<'_>) -> Option<String> {
    let bisection = search.bisection;
    let source = bisection.source.as_ref()?;
    let of = |outcome: BuildOutcome| search.builds.values().filter(move |built| built.outcome == outcome);
    let seconds: Vec<f64> = of(BuildOutcome::Built).map(|built: &Built| built.seconds).collect();
    let longest = seconds.iter().copied().fold(0.0, f64::max);
    let mut made = vec![format!(
        "{} built (make took {}, {} at most)",
        if seconds.len() == 1 { "1 kernel was".to_owned() } else { format!("{} kernels were", seconds.len()) },
        time(seconds.iter().sum()),
        time(longest)
    )];
    for (outcome, what) in [(BuildOutcome::Cached, "were in the cache"), (BuildOutcome::Failed, "could not be built")] {
        let count = of(outcome).count();
        made.extend((count > 0).then(|| format!("{count} {what}")));
    }
    let made = if search.builds.is_empty() { String::new() } else { format!("; {}", join(&made)) };
    let config = &source.config;
    let count = bisection.candidates.len();
    if let (Some(bad), Some(commit)) = (&source.bad_config, &source.commit) {
        return Some(format!(
            "The candidates are {count} configurations of `{}`, from `{config}` to `{bad}`, each with the options that a guest needs. Options that are switched off come first, \
             dependents before dependencies; then those that are switched on or change value, dependencies before dependents{made}",
            short(commit)
        ));
    }
    let paths = match source.paths.is_empty() {
        true => String::new(),
        false => format!(" that touch {}", source.paths.join(" ")),
    };
    let configured = match made.is_empty() {
        true => String::new(),
        false => format!(", configured by `{config}` plus the options that a guest needs"),
    };
    Some(format!("The candidates are the {count} first-parent commits{paths}{made}{configured}"))
}

/// A time for readers.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s => format!("{:.1} min", s / 60.0),
    }
}
