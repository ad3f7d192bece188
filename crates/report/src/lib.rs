//! The report: text for a terminal or an e-mail, JSON, CSV, and one HTML page.
//!
//! Invariant: the numbers are the same everywhere. Every format lays out the same [`Report`]: its sentences, its rows of quantities and its scope.

pub mod chart;
pub mod counters;
pub mod csv;
pub mod diff;
pub mod environment;
pub mod export;
pub mod fact;
pub mod flame;
pub mod history;
pub mod html;
pub mod json;
pub mod kconfig;
mod layers;
pub mod locks;
pub mod machines;
mod modelled;
pub mod quantity;
pub mod row;
pub mod scope;
pub mod sentence;
pub mod shared;
pub mod site;
pub mod structure;
pub mod subsystem;
pub mod summary;
pub mod svg;
pub mod table;
pub mod text;
pub mod trials;
pub mod why;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_scope;

use std::collections::BTreeMap;

use bigiron_judge::causes::Causes;
use bigiron_judge::counters::ComparedCounters;
use bigiron_judge::line::Line;
use bigiron_judge::{Judgement, State};
use bigiron_model::clock::Clock;
use bigiron_model::plan::{Arm, Plan};
use bigiron_model::record::Record;
use bigiron_model::version::major_minor;

pub use csv::csv;
pub use export::jsonl::jsonl;
pub use export::junit::junit;
pub use export::mail::mail;
pub use export::markdown::markdown;
pub use export::openmetrics::openmetrics;
pub use html::html;
pub use json::json;
pub use summary::summary;
pub use text::text;
pub use trials::{trial, trials};

use kconfig::Difference;
use row::Row;
use sentence::{About, Sentence};
use why::Why;

/// Information from the caller besides plan and records.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Text of the kernel's `.config`, by the arm's name, where it is known.
    pub configs: BTreeMap<String, String>,
    pub why: Why,
    /// By comparison; empty if nothing was counted.
    pub counters: Vec<ComparedCounters>,
    /// Whether text shows all counters.
    pub all_counters: bool,
}

/// Everything that a report says, decided once for all formats.
pub struct Report<'a> {
    pub plan: &'a Plan,
    pub records: &'a [Record],
    pub judgement: &'a Judgement,
    pub sentences: Vec<Sentence>,
    /// By comparison: primaries first, then the exploratory ones in the plan's order.
    pub rows: Vec<Vec<Row<'a>>>,
    /// By comparison: differences between the configurations; `None` if one of them is unknown.
    pub configs: Vec<Option<Vec<Difference>>>,
    pub why: Why,
    /// By comparison; empty if nothing was counted.
    pub counters: Vec<ComparedCounters>,
    /// Whether text shows all counters.
    pub all_counters: bool,
}

impl<'a> Report<'a> {
    pub fn new(plan: &'a Plan, records: &'a [Record], judgement: &'a Judgement, extras: &Extras) -> Report<'a> {
        let copies_decide = |comparison: usize, line: &Line| {
            let is_it = |c: &&Causes| {
                c.comparison == comparison
                    && c.workload == line.workload
                    && c.metric == line.metric.name
                    && c.window == c.metric
            };
            let causes = extras.why.causes.iter().find(is_it).filter(|_| plan.clock == Clock::Exact1);
            causes.and_then(subsystem::without_copies).is_some_and(|without| without.flips)
        };
        let row = |comparison, line| Row { copies_decide: copies_decide(comparison, line), ..Row::new(line) };
        let rows: Vec<Vec<Row<'a>>> = judgement
            .comparisons
            .iter()
            .enumerate()
            .map(|(index, c)| {
                let (primaries, others): (Vec<_>, Vec<_>) = c.lines.iter().partition(|l| l.metric.primary);
                primaries.into_iter().chain(others).map(|line| row(index, line)).collect()
            })
            .collect();
        let config = |arm: usize| extras.configs.get(&plan.arms[arm].name);
        let configs = judgement
            .comparisons
            .iter()
            .map(|c| config(0).zip(config(c.arm)).map(|(a, b)| kconfig::differences(a, b)))
            .collect();
        let sentences = sentence::sentences(plan, judgement, &rows);
        Report {
            plan,
            records,
            judgement,
            sentences,
            rows,
            configs,
            why: extras.why.clone(),
            counters: extras.counters.clone(),
            all_counters: extras.all_counters,
        }
    }

    /// The sentence that answers the question.
    pub fn lead(&self) -> Option<&Sentence> {
        match self.judgement.state {
            State::Unfinished => self.sentences.iter().find(|s| s.about == About::Progress),
            State::Finished | State::Spoilt => self.sentences.iter().rev().find(|s| s.about == About::Suite),
        }
    }

    /// `debian:6.12 against debian:6.1`.
    pub fn title(&self) -> String {
        let others: Vec<&str> = self.plan.arms.iter().skip(1).map(|a| a.name.as_str()).collect();
        let first = self.plan.arms.first().map_or("", |a| a.name.as_str());
        format!("{} against {first}", sentence::join(&others))
    }

    /// The differences between the arms of a line's comparison that affect the subsystems in which the line differs, one for each subsystem.
    pub fn touching(&self, causes: &Causes) -> Vec<String> {
        let (a, b) = (&self.plan.arms[0], &self.plan.arms[self.judgement.comparisons[causes.comparison].arm]);
        let own = |arm: char, of: &'a Arm, other: &'a Arm| {
            let only = of.settings.iter().filter(|setting| !other.settings.contains(setting));
            only.map(move |(lever, value)| (arm, lever.as_str(), value.as_str()))
        };
        let settings: Vec<_> = own('A', a, b).chain(own('B', b, a)).collect();
        let config = self.configs[causes.comparison].as_deref().unwrap_or_default();
        let releases = [a, b].map(|arm| major_minor(&arm.kernel.release));
        let releases = match releases {
            [Some(a), Some(b)] => Some([a, b]),
            _ => None,
        };
        subsystem::touching(causes, subsystem::Arms { config, settings: &settings, releases })
    }

    /// The sentences below the first `shown` rows of a line's causes; what other lines share is in [`shared`].
    pub fn told(&self, causes: &Causes, shown: usize) -> impl Iterator<Item = String> {
        let without = if self.plan.clock == Clock::Exact1 { subsystem::without_copies(causes) } else { None };
        let counts = self.counters.get(causes.comparison);
        let beside = counts.and_then(|counts| counters::beside(counts, &causes.workload, &causes.metric));
        let calls = why::calls(&self.why, causes);
        let stand_in = why::stand_in(self.plan, causes);
        [
            stand_in,
            Some(why::sum(causes, shown)),
            modelled::told(causes),
            beside,
            calls,
            subsystem::summary(causes),
            subsystem::by_program(causes),
            without.map(|without| without.sentence()),
        ]
        .into_iter()
        .flatten()
    }

    /// Whether there are numbers to show: the study is finished and has a clock.
    pub fn has_numbers(&self) -> bool {
        self.judgement.state == State::Finished && self.plan.clock != Clock::None
    }
}

/// The first characters of a hash: enough to distinguish kernels by eye.
pub(crate) fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
