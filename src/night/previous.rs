//! Compares tonight's kernels with the previous night's, from the history.
//!
//! Invariant: it compares only boots drawn from the same seeds, in one configuration, on a clock that is independent of the
//! night; everything else is refused with the reason.

use bigiron_stats::Designs;

use super::grid::{GridCell, Studied};
use super::rows::Row;
use bigiron_judge::history::{EntryRow, History, HistoryEntry};
use bigiron_judge::line;
use bigiron_judge::line::{Line, Order, Pair};
use bigiron_judge::standing;
use bigiron_judge::standing::SlotStanding;
use bigiron_judge::{Comparison, State};
use bigiron_model::plan::Plan;
use bigiron_model::record::{HostCost, Outcome, Record, SCHEMA};
use bigiron_model::values::Values;

/// One of tonight's kernels against the previous night's.
#[derive(Clone, Debug, PartialEq)]
pub struct Previous {
    /// Tonight's kernel, by its position in the night.
    pub arm: usize,
    /// The other kernel: its name in its night, its release and the date of that night.
    pub name: String,
    pub release: String,
    pub begun: String,
    pub rows: Vec<PreviousRow>,
}

/// A row of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct PreviousRow {
    pub name: String,
    /// The comparison, or why there is none.
    pub cell: Result<GridCell, String>,
}

/// The kernel to compare `tonight` with: the newest of an earlier night that was not a baseline and has a different image. A
/// baseline has none.
pub fn last<'a>(tonight: &'a HistoryEntry, history: &'a History) -> Option<&'a HistoryEntry> {
    let others = |e: &&HistoryEntry| !e.baseline && e.kernel.image_sha256 != tonight.kernel.image_sha256;
    let earlier = history.before(&tonight.night, &tonight.begun).filter(others);
    if tonight.baseline { None } else { earlier.max_by(|a, b| a.begun.cmp(&b.begun)) }
}

/// The comparison for each of tonight's kernels (`entries`, in the night's order), except those without a previous kernel.
pub fn previous(entries: &[HistoryEntry], studies: &[Studied], history: &History) -> Vec<Previous> {
    let mut all: Vec<Previous> = Vec::new();
    for (arm, tonight) in entries.iter().enumerate() {
        let Some(last) = last(tonight, history) else { continue };
        let rows = studies.iter().filter(|s| !s.split).flat_map(|study| {
            let of =
                move |row: &Row| PreviousRow { name: row.name.clone(), cell: cell(study, row, arm, tonight, last) };
            study.rows.iter().map(of)
        });
        all.push(Previous {
            arm,
            name: last.arm.clone(),
            release: last.kernel.release.clone(),
            begun: last.begun.clone(),
            rows: rows.collect(),
        });
    }
    if let Some(study) = studies.first() {
        adjust(&study.plan, &mut all);
    }
    all
}

fn cell(
    study: &Studied,
    row: &Row,
    arm: usize,
    tonight: &HistoryEntry,
    last: &HistoryEntry,
) -> Result<GridCell, String> {
    let find = |e: &'_ HistoryEntry| e.rows.iter().find(|r| r.row == row.name).cloned();
    let now = find(tonight).ok_or("no result tonight")?;
    let then = find(last).ok_or("that night did not run this row")?;
    if study.judgement.state != State::Finished {
        return Err("no result tonight".to_owned());
    }
    if !study.plan.clock.is_exact() {
        return Err(format!(
            "on the clock `{}` times of two nights are not comparable: name that kernel together with tonight's to boot both",
            study.plan.clock
        ));
    }
    let differences = now.differences(&then);
    if !differences.is_empty() {
        return Err(format!("measured differently then: {}", differences.join(", ")));
    }
    if !then.failures.is_empty() {
        return Err(format!("{} of that night's boots failed: {}", then.failures.len(), then.failures[0]));
    }
    let records = records(&study.plan, row, arm, &then);
    let pairs = pairs(study, &records);
    if pairs.len() < study.plan.design.pairs as usize {
        return Err("that night's boots used other seeds".to_owned());
    }
    let designs = Designs::new(study.plan.flips(), study.plan.design.seed);
    let metrics = study.plan.workloads.iter().filter(|w| w.name == row.workload).flat_map(|w| &w.metrics);
    let mut lines: Vec<Line> =
        metrics.map(|def| line::line(&study.plan, &designs, &row.workload, def, &pairs)).collect();
    lines.sort_by_key(|l| !l.metric.primary);
    Ok(GridCell { lines, verdict: None })
}

/// The stored boots as records of tonight's plan, in those slots of `arm` that have the same workload seeds.
fn records(plan: &Plan, row: &Row, arm: usize, then: &EntryRow) -> Vec<Record> {
    let slots = plan.slots.iter().filter(|s| s.arm == arm);
    let of = |slot: &bigiron_model::plan::Slot| {
        let boot = then.boots.iter().position(|b| b.workload_seed == slot.workload_seed)?;
        let mut metrics = Values::default();
        for measured in &then.metrics {
            metrics.insert(&row.workload, &measured.metric.name, measured.values[boot]);
        }
        Some(Record {
            schema: SCHEMA,
            slot: slot.slot,
            pair: slot.pair,
            position: slot.position,
            arm: plan.arms[arm].name.clone(),
            machine: None,
            attempt: 0,
            outcome: Outcome::Completed,
            guest: None,
            image_sha256: String::new(),
            config_sha256: None,
            metrics,
            facts: Default::default(),
            environment: Default::default(),
            counters: None,
            changes: Vec::new(),
            complaints: Vec::new(),
            host: HostCost::default(),
            artifacts: Vec::new(),
        })
    };
    slots.filter_map(of).collect()
}

/// Pairs that night's boots with tonight's of the same seeds. The order within a pair is tonight's: it is random and, on a clock
/// that is independent of order, has no effect.
fn pairs<'a>(study: &'a Studied, then: &'a [Record]) -> Vec<Pair<'a>> {
    let standings = standing::standings(&study.plan, &study.records).slots;
    let first = |pair: u32| study.plan.slots.iter().find(|s| s.pair == pair && s.arm == 0).map_or(0, |s| s.position);
    let of = |then: &'a Record| {
        let now: SlotStanding<'a> = *standings.get(then.slot as usize)?;
        let order = if first(then.pair) < then.position { Order::Ab } else { Order::Ba };
        Some(Pair { pair: then.pair, machine: 0, order, a: SlotStanding::Completed(then), b: now })
    };
    then.iter().filter_map(of).collect()
}

/// Corrects over all rows and kernels by the rule of the night's plans, and sets each cell's verdict.
fn adjust(plan: &Plan, all: &mut [Previous]) {
    let cells = || all.iter().flat_map(|p| &p.rows).filter_map(|r| r.cell.as_ref().ok());
    let mut pooled: Vec<Comparison> = cells()
        .map(|c| Comparison { arm: 1, pairs: 0, lines: c.lines.clone(), families: Vec::new(), suite: None })
        .collect();
    line::adjust(plan, &mut pooled);
    let cells = all.iter_mut().flat_map(|p| &mut p.rows).filter_map(|r| r.cell.as_mut().ok());
    for (cell, adjusted) in cells.zip(pooled) {
        cell.lines = adjusted.lines;
        cell.verdict = cell.primary().map(|l| l.verdict);
    }
}
