//! How the environments of a study's arms differ, beyond what its levers set.
//!
//! Invariant: what varies from boot to boot within the sides is no difference between them.

use std::collections::{BTreeMap, BTreeSet};

use bigiron_model::environment::{MODULE, SCHEDULER_FEATURES, is_asked};
use bigiron_model::plan::Plan;
use bigiron_model::record::{FileChange, Record};
use serde::Serialize;

use super::fact::range;
use super::scope;
use super::text::letter;

/// The heading in reports.
pub const TITLE: &str = "What else differs between the arms";

/// Differences shown in a text report; the others are counted.
const LINES: usize = 12;

/// What stands for a fact that a side has not noted.
pub const NOT_NOTED: &str = "not noted";

/// The values of facts over some trials, by name.
pub(super) type Noted<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FactDifference {
    pub fact: String,
    /// By arm, in the plan's order; values that vary between boots are given as a range.
    pub values: Vec<String>,
}

impl FactDifference {
    /// `madvise → always`, or `A: madvise; B: always; C: never`.
    pub fn line(&self) -> String {
        match &self.values[..] {
            [a, b] => change(&self.fact, a, b),
            values => {
                let named: Vec<_> = values.iter().enumerate().map(|(i, v)| format!("{}: {v}", letter(i))).collect();
                named.join("; ")
            }
        }
    }
}

/// `madvise → always`. Of a fact that is a list of words, only those that the other side lacks.
pub(super) fn change(fact: &str, a: &str, b: &str) -> String {
    if !fact.starts_with(SCHEDULER_FEATURES) {
        return format!("{a} → {b}");
    }
    let only = |own: &str, other: &str| -> Vec<String> {
        let other: BTreeSet<&str> = other.split_whitespace().collect();
        own.split_whitespace().filter(|word| !other.contains(word)).map(str::to_owned).collect()
    };
    format!("{} → {}", only(a, b).join(" "), only(b, a).join(" "))
}

/// What differs between the arms of a study although no lever asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unasked {
    /// Number of facts noted.
    pub noted: usize,
    pub differences: Vec<FactDifference>,
    /// Number of module parameters that only some of the arms have: kernels of other versions.
    pub lone_parameters: usize,
    /// Facts that changed between trials of one arm, with each value once; those that vary with every boot are left out.
    pub changed: Vec<FactDifference>,
}

/// Facts that vary from boot to boot by nature.
const VARYING: [&str; 2] = ["irq-affinity", "memory-kib"];

/// The facts of each arm, over its trials that count.
pub(super) fn by_arm<'a>(plan: &Plan, records: &'a [Record]) -> Vec<Noted<'a>> {
    let mut all = vec![Noted::new(); plan.arms.len()];
    for record in scope::results(plan, records) {
        let Some(arm) = plan.arms.iter().position(|a| a.name == record.arm) else { continue };
        for (name, value) in &record.environment {
            all[arm].entry(name).or_default().push(value);
        }
    }
    all
}

/// Whether two sides differ in a fact: they have no value in common, numbers not even a range; and of other values one side has only one, so that
/// what varies with every boot is no difference.
pub(super) fn differs(a: Option<&Vec<&str>>, b: Option<&Vec<&str>>) -> bool {
    let (a, b) = match (a, b) {
        (None, None) => return false,
        (Some(a), Some(b)) => (a, b),
        _ => return true,
    };
    if let (Some((low_a, high_a)), Some((low_b, high_b))) = (numbers(a), numbers(b)) {
        return high_a < low_b || high_b < low_a;
    }
    let is_constant = |values: &[&str]| values.iter().all(|value| *value == values[0]);
    a.iter().all(|value| !b.contains(value)) && (is_constant(a) || is_constant(b))
}

/// The least and the greatest of values that are numbers.
fn numbers(values: &[&str]) -> Option<(f64, f64)> {
    let values: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    let values = values?;
    Some(values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v))))
}

pub(super) fn shown(values: Option<&Vec<&str>>) -> String {
    values.map_or_else(|| NOT_NOTED.to_owned(), |values| range(values))
}

/// What differs between the arms beyond their levers; `None` if no environment was noted.
pub fn unasked(plan: &Plan, records: &[Record]) -> Option<Unasked> {
    let arms = by_arm(plan, records);
    let names: BTreeSet<&str> = arms.iter().flat_map(|noted| noted.keys().copied()).collect();
    if names.is_empty() {
        return None;
    }
    // Arms whose trials all failed early have noted nothing.
    let noted: Vec<usize> = (0..arms.len()).filter(|arm| !arms[*arm].is_empty()).collect();
    let changes: Vec<FileChange> = records.iter().flat_map(|r| r.changes.iter().cloned()).collect();
    let is_asked = |name: &str| plan.arms.iter().any(|arm| is_asked(name, &arm.settings, &changes));
    let difference = |name: &&str| FactDifference {
        fact: (*name).to_owned(),
        values: arms.iter().map(|noted| shown(noted.get(name))).collect(),
    };
    let every_value = |name: &&str| {
        let values: BTreeSet<&str> = arms.iter().filter_map(|noted| noted.get(*name)).flatten().copied().collect();
        FactDifference { fact: (*name).to_owned(), values: values.into_iter().map(str::to_owned).collect() }
    };
    let is_lone = |name: &str| name.starts_with(MODULE) && noted.iter().any(|arm| !arms[*arm].contains_key(name));
    let is_different =
        |name: &&str| noted.iter().skip(1).any(|arm| differs(arms[noted[0]].get(*name), arms[*arm].get(*name)));
    let is_changed = |name: &&str| {
        let varies = |values: &Vec<&str>| values.iter().any(|value| *value != values[0]);
        !VARYING.contains(name) && arms.iter().filter_map(|noted| noted.get(*name)).any(varies)
    };
    let (modules, others): (Vec<&str>, Vec<&str>) =
        names.iter().copied().filter(|name| !is_asked(name)).partition(|name| name.starts_with(MODULE));
    let ordered = || others.iter().chain(&modules).filter(|name| !is_lone(name));
    Some(Unasked {
        noted: names.len(),
        differences: ordered().filter(|name| is_different(name)).map(difference).collect(),
        lone_parameters: modules.iter().filter(|name| is_lone(name)).count(),
        changed: ordered().filter(|name| is_changed(name) && !is_different(name)).map(every_value).collect(),
    })
}

impl Unasked {
    /// The lines of a text report.
    pub fn lines(&self) -> Vec<String> {
        let shown = self.differences.iter().take(LINES).map(|d| format!("{}: {}", d.fact, d.line()));
        let more = self.differences.len().saturating_sub(LINES);
        let more = (more > 0).then(|| format!("and {more} more; all are in the HTML and JSON reports"));
        shown.chain(more).chain(self.told()).collect()
    }

    /// Sentences beside the table: what is not in it.
    pub fn told(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.differences.is_empty() {
            all.push(format!("Of {} facts noted, none differs unasked", self.noted));
        }
        if self.lone_parameters > 0 {
            all.push(format!("{} module parameters exist in only some of the arms' kernels", self.lone_parameters));
        }
        if !self.changed.is_empty() {
            let changed: Vec<String> =
                self.changed.iter().map(|f| format!("{} ({})", f.fact, f.values.join(", "))).collect();
            all.push(format!("Changed from trial to trial of one arm: {}", changed.join("; ")));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_judge::fixture;

    fn study(change: impl Fn(&mut Record)) -> (Plan, Vec<Record>) {
        let plan = fixture::plan(&["debian:6.1", "debian:6.12"], 8, vec![fixture::micro()]);
        let mut records = fixture::records(&plan, 1e-3, |_, _, _| 1.0);
        for record in &mut records {
            let same = [("clock-source", "tsc"), ("thp", "madvise"), ("module.zswap.enabled", "N")];
            record.environment = same.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            change(record);
        }
        (plan, records)
    }

    fn set(record: &mut Record, name: &str, value: &str) {
        record.environment.insert(name.to_owned(), value.to_owned());
    }

    #[test]
    fn what_no_lever_asked_for_is_told() {
        let (mut plan, mut records) = study(|record| {
            let newer = record.arm == "debian:6.12";
            set(record, "thp", if newer { "always" } else { "madvise" });
            set(record, "preemption", if newer { "lazy" } else { "voluntary" });
            set(record, "memory-kib", &format!("{}", 1000 + record.slot));
            set(record, "governor", if record.slot == 3 { "powersave" } else { "performance" });
            if newer {
                set(record, "module.new.parameter", "1");
                set(record, "microcode", "0x2");
            }
        });
        let found = unasked(&plan, &records).unwrap();
        let lines: Vec<String> = found.differences.iter().map(|d| format!("{}: {}", d.fact, d.line())).collect();
        assert_eq!(lines, ["microcode: not noted → 0x2", "preemption: voluntary → lazy", "thp: madvise → always"]);
        assert_eq!((found.noted, found.lone_parameters), (8, 1));
        assert_eq!(found.told()[1], "Changed from trial to trial of one arm: governor (performance, powersave)");
        // What levers set is not told.
        plan.arms[1].settings.push(("boot.preempt".to_owned(), "lazy".to_owned()));
        let path = "/sys/kernel/mm/transparent_hugepage/enabled".to_owned();
        records[1].changes.push(FileChange { path, before: "madvise".to_owned(), after: "always".to_owned() });
        let facts: Vec<String> = unasked(&plan, &records).unwrap().differences.into_iter().map(|d| d.fact).collect();
        assert_eq!(facts, ["microcode"]);
    }

    #[test]
    fn of_a_list_the_words_apart_are_told() {
        let list = |values: [&str; 2]| FactDifference {
            fact: SCHEDULER_FEATURES.to_owned(),
            values: values.map(str::to_owned).into(),
        };
        assert_eq!(
            list(["UTIL_EST NI_RANDOM START_DEBIT", "PLACE_LAG NI_RANDOM UTIL_EST"]).line(),
            "START_DEBIT → PLACE_LAG"
        );
    }

    #[test]
    fn equal_arms_and_old_records() {
        let (plan, records) = study(|_| {});
        let found = unasked(&plan, &records).unwrap();
        assert!(found.differences.is_empty() && found.changed.is_empty());
        assert_eq!(found.told(), ["Of 3 facts noted, none differs unasked"]);
        // An arm that never got so far differs in nothing.
        let (plan, records) = study(|record| {
            if record.arm == "debian:6.1" {
                record.environment.clear();
            }
        });
        assert!(unasked(&plan, &records).unwrap().differences.is_empty());
        let (plan, records) = study(|record| record.environment.clear());
        assert_eq!(unasked(&plan, &records), None);
    }
}
