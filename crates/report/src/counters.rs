//! What kernels counted in the windows, as every format prints it.
//!
//! Invariant: what text shows of counters are differences that survive the correction for their number; where none can, those shown say that they may
//! be chance.

use bigiron_model::host::HostKind;
use std::collections::BTreeMap;

use super::Report;
use super::quantity::{Quantity, percent_decimals};
use super::sentence::join;
use bigiron_judge::counters::{ComparedCounter, ComparedCounters};
use bigiron_model::counter_words as words;
use bigiron_model::metric::Unit;

/// Counters shown in text, unless all are asked for.
pub const ROWS: usize = 12;

/// Of them, at most, amounts at a workload's end: what happened says more.
const AMOUNTS: usize = 3;

/// Counters named in a sentence about a line.
const NAMED: usize = 3;

/// A counter as people read it.
pub struct Figures {
    pub a: Quantity,
    pub b: Quantity,
    /// `None` where nothing was tested.
    pub change: Option<Quantity>,
    /// `low … high`.
    pub interval: String,
}

/// What is to be shown of a comparison.
pub struct ShownCounters<'a> {
    pub counters: Vec<&'a ComparedCounter>,
    /// In how many other places those of a name differ, which have no line of their own.
    elsewhere: BTreeMap<&'a str, usize>,
    /// How many survive the correction.
    pub surviving: usize,
    /// Whether these survive; if not, they are the largest of those whose own interval excludes no change.
    pub survive: bool,
}

impl Figures {
    pub fn of(counter: &ComparedCounter) -> Self {
        // Of events there are parts, for one operation.
        let unit = if counter.unit == Unit::Count { Unit::named("") } else { counter.unit };
        let percent = |log: f64| 100.0 * log.exp_m1();
        let change = counter.change;
        let decimals = percent_decimals(percent(change.mean), change.ci95.map(|(l, h)| (percent(l), percent(h))));
        let (a, b) = match (counter.a, counter.b) {
            (a, b) if a > 0.0 && b > 0.0 => Quantity::couple(a, b, unit, (a - b).abs() / 2.0),
            (a, b) => (Quantity::metric(a, unit, 0.0), Quantity::metric(b, unit, 0.0)),
        };
        let tested = change.adjusted_p.is_some();
        let interval = change.ci95.filter(|_| tested).map_or_else(
            || if tested { "none".to_owned() } else { String::new() },
            |(low, high)| {
                let end = |log| Quantity::change(log, decimals).number();
                format!("{} … {}", end(low), end(high))
            },
        );
        Self { a, b, change: tested.then(|| Quantity::change(change.mean, decimals)), interval }
    }
}

impl ShownCounters<'_> {
    /// Where a counter was read: `chat messages`, `micro fork-exit and 3 others`, or `chat, at its end`.
    pub fn place(&self, counter: &ComparedCounter) -> String {
        let others = match self.elsewhere.get(counter.name.as_str()) {
            None | Some(0) => String::new(),
            Some(1) => " and another".to_owned(),
            Some(n) => format!(" and {n} others"),
        };
        match &counter.metrics[..] {
            [] => format!("{}, at its end{others}", counter.workload),
            metrics => format!("{} {}{others}", counter.workload, metrics.join(", ")),
        }
    }
}

/// The counters of a comparison that differ, the largest change first, each name once; all that were not nothing, in their own order, if they are asked for.
pub fn shown(counts: &ComparedCounters, all: bool) -> ShownCounters<'_> {
    let surviving = counts.counters.iter().filter(|c| c.discovery()).count();
    let survive = surviving > 0;
    if all {
        return ShownCounters {
            counters: counts.counters.iter().collect(),
            elsewhere: BTreeMap::new(),
            surviving,
            survive,
        };
    }
    let wanted = |c: &&ComparedCounter| if survive { c.discovery() } else { c.differs() };
    let (mut amounts, mut counters): (Vec<&ComparedCounter>, Vec<&ComparedCounter>) =
        counts.counters.iter().filter(wanted).partition(|c| c.metrics.is_empty());
    let mut elsewhere = BTreeMap::new();
    for of in [&mut amounts, &mut counters] {
        of.sort_by(|x, y| y.change.mean.abs().total_cmp(&x.change.mean.abs()));
        // What one cause counts in ten metrics would leave no line for another.
        of.retain(|counter| {
            let others = elsewhere.entry(counter.name.as_str()).and_modify(|n| *n += 1).or_insert(0_usize);
            *others == 0
        });
    }
    amounts.truncate(AMOUNTS);
    counters.truncate(ROWS - amounts.len());
    counters.append(&mut amounts);
    ShownCounters { counters, elsewhere, surviving, survive }
}

/// `irq.TLB`, or `irq.TLB: TLB shootdowns`.
pub fn name(counter: &ComparedCounter) -> String {
    match words::words(&counter.name) {
        Some(words) => format!("{}: {words}", counter.name),
        None => counter.name.clone(),
    }
}

/// How many there are, and how many of them differ.
pub fn sum(counts: &ComparedCounters, shown: &ShownCounters<'_>) -> String {
    let (tested, surviving) = (counts.tested, shown.surviving);
    let mut text = format!(
        "Of {tested} counters that are not alike in every pair {surviving} differ by more than chance (false discovery rate 5 %)"
    );
    if !shown.survive && !shown.counters.is_empty() {
        text.push_str(
            "; those marked ? have an interval of their own that excludes no change, which happens by chance among this many",
        );
    }
    let left = if shown.survive { surviving.saturating_sub(shown.counters.len()) } else { 0 };
    if left > 0 {
        text.push_str(&format!(
            "; {left} of them are not shown here: `bigiron report DIR --counters all`, HTML and JSON have all"
        ));
    }
    text.push('.');
    for (arm, only) in [('A', &counts.only_a), ('B', &counts.only_b)] {
        if !only.is_empty() {
            let of = if only.len() == 1 { "1 counter".to_owned() } else { format!("{} counters", only.len()) };
            text.push_str(&format!(" {of} only {arm}'s kernel has."));
        }
    }
    text
}

/// How they were counted.
pub fn method(report: &Report<'_>) -> Option<String> {
    let cost = Quantity::metric(report.counters.first()?.reading_ns, Unit::Ns, 0.0);
    let whose = match report.plan.machine.host {
        HostKind::Local => {
            "They are those of the whole machine, other processes' work included; `own.` are the trial's own processes alone"
        }
        _ => "They are those of the guest's whole kernel",
    };
    Some(format!(
        "Counters are read before and after what is measured ({cost} a reading, in no measured time) and divided by its operations; fewer than 10 events, 100 µs or 64 KiB in a trial count as these in a \
         change. {whose}. They are exploratory, and no verdict depends on them (`bigiron doc counters`)"
    ))
}

/// What counters say beside the causes of a line: `Counted there: 3.100 context switches for one operation instead of 1.900.`
pub fn beside(counts: &ComparedCounters, workload: &str, metric: &str) -> Option<String> {
    let is_it = |c: &&ComparedCounter| c.workload == workload && c.metrics.iter().any(|m| m == metric) && c.discovery();
    let mut named: Vec<(&ComparedCounter, &str)> =
        counts.counters.iter().filter(is_it).filter_map(|c| Some((c, words::words(&c.name)?))).collect();
    named.sort_by(|(x, _), (y, _)| y.change.mean.abs().total_cmp(&x.change.mean.abs()));
    let said: Vec<String> = named
        .iter()
        .take(NAMED)
        .map(|(counter, words)| {
            let figures = Figures::of(counter);
            format!("{} {words} instead of {}", figures.b, figures.a)
        })
        .collect();
    (!said.is_empty()).then(|| format!("Counted there for one operation: {}.", join(&said)))
}

#[cfg(test)]
pub(super) mod tests;
