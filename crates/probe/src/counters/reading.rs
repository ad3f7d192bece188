//! A reading of all counters, and what was counted between two of them.
//!
//! Invariant: a counter is in the difference only if both readings have it and the same CPUs and devices are behind it in both; every other one that
//! either has is named as not known.

use std::fs;
use std::time::Instant;

use bigiron_model::counters::Counted;

use super::own_processes::{self, OwnProcesses};
use super::source::{self, CounterValue, CpuCell, Values};

/// Texts of the files, not looked at yet: looking costs more than reading.
#[derive(Debug, Default)]
pub struct Reading {
    texts: Vec<(&'static str, String)>,
    statistics: bool,
    own: Option<OwnProcesses>,
    /// Nanoseconds that it took.
    ns: u64,
}

impl Reading {
    /// Reads what there is; with `end` what is wanted only when a window closes, too, and what the process `own`, if any, and all its
    /// descendants have done, this one left out.
    pub fn now(end: bool, own: Option<u32>) -> Self {
        let begun = Instant::now();
        // Not to be split: a file that is read in one piece is of one moment.
        let mut reading = Self::of(end, &|path| fs::read_to_string(format!("/proc/{path}")).ok());
        reading.own = own.map(|root| own_processes::read(root, std::process::id()));
        reading.ns = begun.elapsed().as_nanos() as u64;
        reading
    }

    /// The same from any `read`.
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

/// What happened from `before` to `after`.
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

/// By how much a counter has grown; `None` if it went back, or if it is not of the same CPUs and devices.
fn grown(from: &CounterValue, to: &CounterValue) -> Option<u64> {
    match (from, to) {
        (CounterValue::Total(from), CounterValue::Total(to)) => to.checked_sub(*from),
        (CounterValue::Cells(from), CounterValue::Cells(to)) if from.len() == to.len() => {
            from.iter().zip(to).map(|(from, to)| cell(from, to)).try_fold(0_u64, |sum, n| Some(sum.saturating_add(n?)))
        }
        _ => None,
    }
}

/// The same for one CPU: a number of 32 bits may have come round.
fn cell(from: &CpuCell, to: &CpuCell) -> Option<u64> {
    if (from.0, from.1) != (to.0, to.1) {
        return None;
    }
    let narrow = |n: u64| u32::try_from(n).ok();
    to.2.checked_sub(from.2).or_else(|| Some(u64::from(narrow(to.2)?.wrapping_sub(narrow(from.2)?))))
}

#[cfg(test)]
mod tests;
