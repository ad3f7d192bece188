//! Facts: what workloads recorded besides their metrics, durability first.
//!
//! Invariant: JSON holds everything; text and HTML shorten values and say so.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::quantity::Quantity;
use super::scope::{self, whole};
use super::text::letter;
use bigiron_model::file_system;
use bigiron_model::metric::Unit;
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;
use bigiron_model::storage::DISK_CACHE_FACT;

/// A longer value is a list for machines: a text report counts its entries, and an HTML page folds it.
const LONGEST: usize = 100;

/// The names of the facts that make up [`durability`].
const DURABILITY: [&str; 5] = ["durability", "weakened", "page-cache", "data-bytes", "cache-bytes"];

/// A fact that workloads recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// `workload.name`.
    pub name: String,
    /// By arm, in the plan's order; one entry if it is the same in all arms. Values that vary between boots are given as a range.
    pub values: Vec<String>,
}

impl Fact {
    /// The values as a report prints them: bytes are scaled.
    pub fn shown(&self) -> Vec<String> {
        let scaled = |value: &String| match self.name.ends_with("-bytes") {
            true => value.split(" … ").map(bytes).collect::<Vec<_>>().join(" … "),
            false => value.clone(),
        };
        self.values.iter().map(scaled).collect()
    }

    /// Whether [`durability`] covers it.
    pub fn is_of_durability(&self) -> bool {
        self.name == DISK_CACHE_FACT || self.name.split_once('.').is_some_and(|(_, name)| DURABILITY.contains(&name))
    }

    /// Whether it is a feature of the file system, which has a table of its own.
    pub fn is_of_file_system(&self) -> bool {
        file_system::FEATURES.iter().any(|feature| file_system::fact(feature) == self.name)
    }

    /// Whether a value is too long to print.
    pub fn is_list(&self) -> bool {
        self.values.iter().any(|v| super::table::width(v) > LONGEST)
    }

    /// `120 MiB`, or `A: 120 MiB; B: 64 MiB`.
    pub fn line(&self) -> String {
        match &self.shown()[..] {
            [same] => same.clone(),
            values => {
                let by_arm: Vec<_> = values.iter().enumerate().map(|(i, v)| format!("{}: {v}", letter(i))).collect();
                by_arm.join("; ")
            }
        }
    }
}

/// A number of bytes in the largest suitable unit; any other value unchanged.
fn bytes(value: &str) -> String {
    value.parse().map_or_else(|_| value.to_owned(), |n: f64| whole(&Quantity::metric(n, Unit::Bytes, 0.0)))
}

/// All facts, by name.
pub fn facts(plan: &Plan, records: &[Record]) -> Vec<Fact> {
    let mut values: BTreeMap<&str, Vec<Vec<&str>>> = BTreeMap::new();
    for record in scope::results(plan, records) {
        let Some(arm) = plan.arms.iter().position(|a| a.name == record.arm) else { continue };
        for (name, value) in &record.facts {
            values.entry(name).or_insert_with(|| vec![Vec::new(); plan.arms.len()])[arm].push(value);
        }
    }
    values
        .into_iter()
        .map(|(name, by_arm)| {
            let mut values: Vec<String> = by_arm.iter().map(|v| range(v)).collect();
            if values.iter().all(|v| *v == values[0]) {
                values.truncate(1);
            }
            Fact { name: name.to_owned(), values }
        })
        .collect()
}

/// One value, `low … high`, or the number of values.
pub(super) fn range(values: &[&str]) -> String {
    let distinct: BTreeSet<&str> = values.iter().copied().collect();
    match distinct.len() {
        0 => return "none".to_owned(),
        1 => return values[0].to_owned(),
        _ => {}
    }
    let mut numbers: Vec<(f64, &str)> = distinct.iter().filter_map(|v| v.parse().ok().map(|n| (n, *v))).collect();
    if numbers.len() < distinct.len() {
        return format!("{} values, e.g. {}", distinct.len(), values[0]);
    }
    numbers.sort_by(|x, y| x.0.total_cmp(&y.0));
    format!("{} … {}", numbers[0].1, numbers[numbers.len() - 1].1)
}

/// One line per workload: how it makes writes durable, whether the page cache is used, and its data's size relative to the memory. A workload that
/// recorded none of this still has a line.
pub fn durability(plan: &Plan, facts: &[Fact]) -> Vec<String> {
    let memory = plan.machine.memory_bytes;
    let one = |workload: &str| {
        let get = |name: &str| facts.iter().find(|f| f.name.strip_prefix(workload) == Some(&format!(".{name}")));
        let mut parts = Vec::new();
        parts.extend(get("durability").map(Fact::line));
        parts.extend(get("weakened").map(|f| format!("weakened: {}", f.line())));
        parts.extend(get("page-cache").map(|f| format!("page cache {}", f.line())));
        if let Some(data) = get("data-bytes") {
            let ratios: BTreeSet<String> = data
                .values
                .iter()
                .filter_map(|v| v.parse::<f64>().ok())
                .map(|bytes| format!("{:.2}", bytes / memory as f64))
                .collect();
            let ratios = ratios.into_iter().collect::<Vec<_>>().join(" or ");
            let memory = whole(&Quantity::metric(memory as f64, Unit::Bytes, 0.0));
            parts.push(format!("data of {}, {ratios} of the memory of {memory}", data.line()));
        }
        parts.extend(get("cache-bytes").map(|f| format!("a cache of its own of {}", f.line())));
        if parts.is_empty() {
            parts.push("nothing recorded".to_owned());
        }
        format!("{workload}: {}", parts.join("; "))
    };
    let cache =
        facts.iter().find(|f| f.name == DISK_CACHE_FACT).map(|f| format!("cache of the host's disk: {}", f.line()));
    plan.workloads.iter().map(|w| one(&w.name)).chain(cache).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Extras, Report, text};
    use bigiron_judge::fixture;
    use bigiron_model::clock::Clock;
    use bigiron_model::record::DISTURBED_FACT;

    fn fact(name: &str, values: &[&str]) -> Fact {
        Fact { name: name.to_owned(), values: values.iter().map(|v| (*v).to_owned()).collect() }
    }

    #[test]
    fn bytes_are_scaled_and_nothing_else() {
        assert_eq!(fact("dbsim.data-bytes", &["125829120"]).line(), "120 MiB");
        assert_eq!(fact("dbsim.redo-bytes", &["1024 … 3145728", "none"]).line(), "A: 1 KiB … 3 MiB; B: none");
        assert_eq!(fact("dbsim.processes", &["11"]).line(), "11");
        assert!(fact("micro.operations", &[&"null-call=1 ".repeat(20)]).is_list());
        assert!(!fact("dbsim.durability", &["data files and journals opened O_DSYNC"]).is_list());
    }

    #[test]
    fn facts_of_trials_that_do_not_count_are_not_told() {
        let mut plan = fixture::plan(&["a", "b"], 8, vec![fixture::micro()]);
        plan.clock = Clock::Wall;
        let mut records = fixture::records(&plan, 1e-3, |_, _, _| 1.0);
        records.iter_mut().for_each(|r| r.facts = BTreeMap::from([("micro.engine".to_owned(), "sync".to_owned())]));
        // The host spoilt trial 1; the pair was run again, and trial 0's first record stands for nothing.
        let again: Vec<Record> = records[..2].iter().map(|r| Record { attempt: 1, ..r.clone() }).collect();
        fixture::void(&mut records[1]);
        for record in &mut records[..2] {
            record.facts.insert("micro.engine".to_owned(), "threads".to_owned());
            record.facts.insert(DISTURBED_FACT.to_owned(), "others used the CPUs".to_owned());
        }
        records.extend(again);
        assert_eq!(facts(&plan, &records), [fact("micro.engine", &["sync"])]);
        let judgement = bigiron_judge::judge(&plan, &records);
        let report = Report::new(&plan, &records, &judgement, &Extras::default());
        let lines = text::trouble_lines(&report);
        assert!(!lines.iter().any(|line| line.contains("disturbed")), "{lines:?}");
        assert!(!crate::summary(&report).iter().any(|line| line.text.contains("disturbed")));
    }

    #[test]
    fn the_summary_counts_disturbed_trials() {
        let plan = fixture::plan(&["a", "b"], 8, vec![fixture::micro()]);
        let mut records = fixture::records(&plan, 1e-3, |_, _, _| 1.0);
        for record in &mut records[..3] {
            record.facts.insert(DISTURBED_FACT.to_owned(), "others used the CPUs".to_owned());
        }
        let judgement = bigiron_judge::judge(&plan, &records);
        let lines = crate::summary(&Report::new(&plan, &records, &judgement, &Extras::default()));
        let says = "3 of 16 trials were disturbed; none is left out for it: see `bigiron report`";
        assert!(lines.iter().any(|line| line.text == says), "{lines:?}");
    }

    #[test]
    fn durability_says_what_an_arm_changed() {
        let plan = fixture::plan(&["a", "b"], 8, vec![fixture::micro(), fixture::dbsim()]);
        let facts = [
            fact("dbsim.data-bytes", &["536870912", "1073741824"]),
            fact("dbsim.durability", &["O_DSYNC", "fdatasync"]),
        ];
        assert_eq!(
            durability(&plan, &facts),
            [
                "micro: nothing recorded",
                "dbsim: A: O_DSYNC; B: fdatasync; data of A: 512 MiB; B: 1 GiB, 0.50 or 1.00 of the memory of 1 GiB"
            ]
        );
    }
}
