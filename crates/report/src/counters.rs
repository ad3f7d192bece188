//! What kernels counted in the windows, laid out for every format.
//!
//! Invariant: text shows the counters whose differences survive the correction for the number of counters; if none survive, it marks those it shows
//! as possibly due to chance.

use bigiron_model::host::HostKind;
use std::collections::BTreeMap;

use super::Report;
use super::quantity::{Quantity, percent_decimals};
use super::sentence::join;
use bigiron_judge::counters::{ComparedCounter, ComparedCounters};
use bigiron_model::counter_words as words;
use bigiron_model::metric::Unit;

/// Counters shown in text by default.
pub const ROWS: usize = 12;

/// The most amounts at a workload's end among them: events say more.
const AMOUNTS: usize = 3;

/// Counters named in a sentence about a line.
const NAMED: usize = 3;

/// A counter as a report prints it.
pub struct Figures {
    pub a: Quantity,
    pub b: Quantity,
    /// `None` if it was not tested.
    pub change: Option<Quantity>,
    /// `low … high`.
    pub interval: String,
}

/// The counters to show of a comparison.
pub struct ShownCounters<'a> {
    pub counters: Vec<&'a ComparedCounter>,
    /// The number of other places in which a counter of this name differs; these have no line of their own.
    elsewhere: BTreeMap<&'a str, usize>,
    /// Number of counters that survive the correction.
    pub surviving: usize,
    /// Whether the shown counters survive; if not, they are those with the largest changes whose own interval excludes no change.
    pub survive: bool,
}

impl Figures {
    pub fn of(counter: &ComparedCounter) -> Self {
        // Events per operation are fractions.
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

/// The counters of a comparison that differ, largest change first, each name once; with `all`, every counter that is not zero, in its own order.
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
        // One cause that shows in ten metrics would leave no line for another cause.
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

/// The number of tested counters, and how many of them differ.
pub fn sum(counts: &ComparedCounters, shown: &ShownCounters<'_>) -> String {
    let (tested, surviving) = (counts.tested, shown.surviving);
    let mut text = format!(
        "Of {tested} counters that are not equal in every pair, {surviving} differ by more than chance (false discovery rate 5 %)"
    );
    if !shown.survive && !shown.counters.is_empty() {
        text.push_str("; the intervals of those marked ? exclude no change, which happens by chance among this many");
    }
    let left = if shown.survive { surviving.saturating_sub(shown.counters.len()) } else { 0 };
    if left > 0 {
        text.push_str(&format!(
            "; {left} of them are not shown here: `bigiron report DIR --counters all`, HTML and JSON show all"
        ));
    }
    text.push('.');
    for (arm, only) in [('A', &counts.only_a), ('B', &counts.only_b)] {
        if !only.is_empty() {
            let exist =
                if only.len() == 1 { "1 counter exists".to_owned() } else { format!("{} counters exist", only.len()) };
            text.push_str(&format!(" {exist} only in {arm}'s kernel."));
        }
    }
    text
}

/// How the counters were read.
pub fn method(report: &Report<'_>) -> Option<String> {
    let cost = Quantity::metric(report.counters.first()?.reading_ns, Unit::Ns, 0.0);
    let whose = match report.plan.machine.host {
        HostKind::Local | HostKind::Ssh => {
            "They cover the whole machine, other processes included; `own.` counters cover the trial's own processes alone"
        }
        _ => "They cover the guest's whole kernel",
    };
    Some(format!(
        "Counters are read before and after each window ({cost} a reading, outside measured time) and divided by its operations; in a change, values below 10 events, \
         100 µs or 64 KiB in a trial count as these floors. {whose}. They are exploratory, and no verdict depends on them (`bigiron doc counters`)"
    ))
}

/// The counters that differ in a line's window: `Counted there per operation: 3.10 context switches instead of 1.90.`
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
    (!said.is_empty()).then(|| format!("Counted there per operation: {}.", join(&said)))
}

#[cfg(test)]
pub(super) mod tests;
