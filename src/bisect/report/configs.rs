//! The part of a report about configurations, in addition to the part about all kernels.

use serde::Serialize;

use super::BisectReport;
use super::commits::some;
use super::kernels::KernelReporter;
use crate::bisect::Source;
use crate::bisect::config::kconfig::Described;
use crate::bisect::config::options::NOT_SET;
use crate::bisect::git::touched::Function;
use bigiron_model::shell::quote;
use bigiron_report::sentence::join;
use bigiron_report::why::ns;

/// Maximum number of options with their own lines.
const SHOWN: usize = 8;

/// Maximum number of options named in a sentence.
const NAMED: usize = 3;

/// The differences between the configurations of a place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptionsAtChange {
    /// Those that were switched themselves come first.
    pub options: Vec<Described>,
    /// Functions that cost more in the bad end than in the good one, the largest increase first; null without a profile.
    pub functions: Option<Vec<Function>>,
    /// Bytes of the two boot images, if they were built.
    pub image_bytes: Option<(u64, u64)>,
}

impl KernelReporter<'_, '_> {
    /// The options between two candidates, if they are known.
    pub(super) fn options(&self, good: usize, bad: usize) -> Option<OptionsAtChange> {
        let told = self.more.switched.as_ref().filter(|t| t.good == self.name(good) && t.bad == self.name(bad))?;
        let bytes = |index: usize| self.search.builds.get(&index)?.image_bytes;
        Some(OptionsAtChange {
            options: told.options.clone(),
            functions: told.looked.then(|| told.functions.clone()),
            image_bytes: bytes(good).zip(bytes(bad)),
        })
    }

    /// Suggests next steps for a place among configurations.
    pub(super) fn configs(&self, report: &mut BisectReport<'_>, good: usize, bad: usize) {
        report.next.push("Compare the two resolved configurations".to_owned());
        report.commands.push(format!("diff {} {}", self.config(good), self.config(bad)));
        let Some(source) = &self.search.bisection.source else { return };
        let (neither, last) = (self.search.neither(), self.search.bisection.candidates.len() - 1);
        // A kernel before the place that is near neither end has a change before it; one after the place has a change after it.
        let others = [(0, good, neither.iter().any(|i| *i <= good)), (bad, last, neither.iter().any(|i| *i >= bad))];
        for (from, to, _) in others.into_iter().filter(|(from, to, is_there)| *is_there && to > from) {
            report.next.push(format!("Find the other change between `{}` and `{}`", self.name(from), self.name(to)));
            report.commands.push(self.between(source, from, to));
        }
    }

    /// The file with the configuration of a candidate.
    fn config(&self, index: usize) -> String {
        let file = self.more.dir.join("builds").join(format!("{}.config", self.name(index)));
        quote(&file.display().to_string())
    }

    /// The command that searches between two other configurations of the same commit.
    fn between(&self, source: &Source, good: usize, bad: usize) -> String {
        let bisection = self.search.bisection;
        let mut words = vec![format!("bigiron bisect config --git {}", quote(&source.tree.display().to_string()))];
        words.extend(source.commit.iter().map(|commit| format!("--at {}", crate::bisect::git::short(commit))));
        words.push(format!("--good {} --bad {}", self.config(good), self.config(bad)));
        words.extend(source.make.iter().map(|word| format!("--make-arg={}", quote(word))));
        words.push(format!("{}:{} {}", bisection.workload, bisection.metric.name, bisection.options));
        words.join(" ")
    }

    /// Commands that search each part of a chain with several changes.
    pub(super) fn parts_of_configs(&self, report: &mut BisectReport<'_>, ends: &[usize]) {
        let Some(source) = &self.search.bisection.source else { return };
        for pair in ends.windows(2) {
            let (a, b) = (self.name(pair[0]), self.name(pair[1]));
            match pair[1] - pair[0] {
                1 => {
                    let subject = self.search.bisection.candidates[pair[1]].subject().unwrap_or_default();
                    report.next.push(format!("One change lies between `{a}` and `{b}`, caused by {subject}"));
                }
                _ => report.commands.push(self.between(source, pair[0], pair[1])),
            }
        }
    }
}

impl OptionsAtChange {
    fn switched(&self) -> impl Iterator<Item = &Described> {
        self.options.iter().filter(|option| option.switched)
    }

    /// The options that were switched, in a sentence.
    pub(super) fn named(&self) -> String {
        let name = |option: &Described| format!("`CONFIG_{}={}`", option.option, option.to);
        let mut names: Vec<String> = self.switched().map(name).collect();
        if names.is_empty() {
            names = self.options.iter().map(name).collect();
        }
        if names.len() > NAMED {
            let more = names.len() - NAMED;
            names.truncate(NAMED);
            names.push(format!("{more} more"));
        }
        join(&names)
    }

    /// Lines of its block in the text: headings and their contents.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let value = |value: &str| if value == NOT_SET { "not set".to_owned() } else { value.to_owned() };
        let mut lines = Vec::new();
        let shown: Vec<&Described> = self.switched().take(SHOWN).collect();
        for option in &shown {
            lines.push(("option", format!("CONFIG_{}", option.option)));
            lines.push(("value", format!("{}, was {}", value(&option.to), value(&option.from))));
            lines.extend(option.prompt.iter().map(|prompt| ("asks", prompt.clone())));
            lines.extend(option.defined.iter().map(|place| ("defined", place.clone())));
        }
        let others: Vec<String> = self
            .options
            .iter()
            .filter(|option| !shown.contains(option))
            .map(|option| format!("CONFIG_{}={} (was {})", option.option, option.to, value(&option.from)))
            .collect();
        if !others.is_empty() {
            lines.push(("with it", some(&others)));
        }
        if let Some((good, bad)) = self.image_bytes {
            lines.push(("image", format!("{bad} bytes, was {good}")));
        }
        match self.functions.as_deref() {
            Some([]) => lines.push(("why", "no function costs more by itself".to_owned())),
            Some(functions) => {
                let each: Vec<String> = functions
                    .iter()
                    .map(|f| format!("`{}` takes {} ns more per operation", f.name, ns(f.more_ns)))
                    .collect();
                lines.push(("why", format!("from end to end, {}", some(&each))));
            }
            None => {}
        }
        lines
    }
}
