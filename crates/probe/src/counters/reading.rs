//! A reading of all counters, and the difference of two readings.
//!
//! Invariant: a counter is in the difference only if both readings have it, with the same CPUs and devices; every other counter that either reading
//! has is named as unknown.

use std::fs;
use std::time::Instant;

use bigiron_model::counters::Counted;

use super::own_processes::{self, OwnProcesses};
use super::source::{self, CounterValue, CpuCell, Values};

/// Unparsed texts of the files: parsing takes longer than reading.
#[derive(Debug, Default)]
pub struct Reading {
    texts: Vec<(&'static str, String)>,
    statistics: bool,
    own: Option<OwnProcesses>,
    /// Nanoseconds that the reading took.
    ns: u64,
}

impl Reading {
    /// Reads the files; with `end` also those needed only when a window closes; with `own` also the counts of that process and all its descendants,
    /// except the calling process.
    pub fn now(end: bool, own: Option<u32>) -> Self {
        let begun = Instant::now();
        // Read in one piece, a file is consistent.
        let mut reading = Self::of(end, &|path| fs::read_to_string(format!("/proc/{path}")).ok());
        reading.own = own.map(|root| own_processes::read(root, std::process::id()));
        reading.ns = begun.elapsed().as_nanos() as u64;
        reading
    }

    /// As [`Reading::now`], with any function `read`.
    pub fn of(end: bool, read: &dyn Fn(&str) -> Option<String>) -> Self {
        let files = source::EDGES.iter().chain(end.then_some(&source::END).into_iter().flatten());
        Self {
            texts: files.filter_map(|file| Some((*file, read(file)?))).collect(),
            statistics: read(source::SCHEDSTATS).is_some_and(|text| text.trim() == "1"),
            own: None,
            ns: 0,
        }
    }

    fn values(&self) -> Values {
        let mut values = Values::new();
        for (file, text) in &self.texts {
            source::parse(file, text, self.statistics, &mut values);
        }
        values
    }
}

/// The difference from `before` to `after`.
pub fn between(before: &Reading, after: &Reading) -> Counted {
    let (mut from, to) = (before.values(), after.values());
    let mut counted = Counted::default();
    for (name, value) in to {
        match (from.remove(&name), value) {
            (_, CounterValue::Gauge(n)) => drop(counted.amounts.insert(name, n)),
            (Some(from), to) => drop(counted.events.insert(name, grown(&from, &to))),
            (None, _) => drop(counted.events.insert(name, None)),
        }
    }
    counted.events.extend(from.into_keys().map(|name| (name, None)));
    (counted.readings, counted.reading_ns) = (2, before.ns + after.ns);
    if let (Some(before), Some(after)) = (&before.own, &after.own) {
        counted.events.extend(own_processes::between(before, after));
    }
    counted
}

/// The growth of a counter; `None` if it decreased or does not cover the same CPUs and devices.
fn grown(from: &CounterValue, to: &CounterValue) -> Option<u64> {
    match (from, to) {
        (CounterValue::Total(from), CounterValue::Total(to)) => to.checked_sub(*from),
        (CounterValue::Cells(from), CounterValue::Cells(to)) if from.len() == to.len() => {
            from.iter().zip(to).map(|(from, to)| cell(from, to)).try_fold(0_u64, |sum, n| Some(sum.saturating_add(n?)))
        }
        _ => None,
    }
}

/// The growth for one CPU; a number of 32 bits may have wrapped.
fn cell(from: &CpuCell, to: &CpuCell) -> Option<u64> {
    if (from.0, from.1) != (to.0, to.1) {
        return None;
    }
    let narrow = |n: u64| u32::try_from(n).ok();
    to.2.checked_sub(from.2).or_else(|| Some(u64::from(narrow(to.2)?.wrapping_sub(narrow(from.2)?))))
}

#[cfg(test)]
mod tests;
