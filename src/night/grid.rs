//! The grid: for every row and every kernel but the first, whether its boots passed, what improved, what regressed, and the two
//! results.
//!
//! Invariant: a row's lines and verdict are those of its study, whose report therefore says the same; a failed boot is always in the grid, and so is
//! every row of the night, whether or not its study has begun.

use bigiron_stats::Verdict;

use super::rows::Row;
use bigiron_judge::line::Line;
use bigiron_judge::survival::Survival;
use bigiron_judge::{Judgement, State, suite};
use bigiron_model::plan::Plan;
use bigiron_model::record::Record;

/// A study of the night.
pub struct Studied {
    /// Below the night's folder.
    pub folder: String,
    pub rows: Vec<Row>,
    pub plan: Plan,
    pub records: Vec<Record>,
    pub judgement: Judgement,
    /// Whether its rows were run again one by one because a shared boot failed: the study then only reports that failure.
    pub split: bool,
    /// Whether it is such a run of one row.
    pub alone: bool,
    /// Whether none of its trials is left to run. The judge does not tell: it already counts a failed boot that is still to run again.
    pub is_finished: bool,
}

/// The whole grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Names of the kernels; the first is the baseline.
    pub arms: Vec<String>,
    pub rows: Vec<GridRow>,
    /// One for each kernel but the first; `None` while the night is unfinished, unless the kernel is already `worse`.
    pub verdicts: Vec<Option<Verdict>>,
    /// Whether a gate may rely on every study of the night.
    is_decided: bool,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct GridRow {
    pub name: String,
    /// The study's folder, below the night's; empty if the study has not begun.
    pub folder: String,
    /// Several rows in one boot, one of which failed: the row reports only that.
    pub together: bool,
    pub state: State,
    /// One for each kernel.
    pub fates: Vec<BootCounts>,
    /// One for each kernel but the first.
    pub cells: Vec<GridCell>,
}

/// How the boots of one kernel ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BootCounts {
    pub boots: u32,
    pub failed: u32,
    /// `panicked in 2 of 4 boots: …`, for each kind of failure.
    pub failures: Vec<String>,
    /// Classes of kernel complaints that count against a kernel because the baseline did not have them.
    pub complaints: Vec<String>,
}

/// One kernel against the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GridCell {
    /// The row's metrics, the primary first.
    pub lines: Vec<Line>,
    /// `None` while unfinished, or without anything to judge.
    pub verdict: Option<Verdict>,
}

impl GridCell {
    pub fn primary(&self) -> Option<&Line> {
        self.lines.iter().find(|l| l.metric.primary)
    }

    /// Metrics that are better: beyond their margin and past the correction, or the primary in any case.
    pub fn improved(&self) -> Vec<&Line> {
        self.lines.iter().filter(|l| counts(l, Verdict::Better, Verdict::SlightlyBetter)).collect()
    }

    /// The mirror image.
    pub fn regressed(&self) -> Vec<&Line> {
        self.lines.iter().filter(|l| counts(l, Verdict::Worse, Verdict::SlightlyWorse)).collect()
    }
}

fn counts(line: &Line, beyond: Verdict, slightly: Verdict) -> bool {
    match line.metric.primary {
        true => line.verdict == beyond || line.verdict == slightly,
        false => line.verdict == beyond && line.discovery(),
    }
}

impl GridRow {
    /// Whether all boots of all kernels completed.
    pub fn passed(&self) -> bool {
        self.fates.iter().all(|f| f.failed == 0)
    }
}

impl Grid {
    /// The grid of `studies`, whose kernels are `arms`; the studies of the rows `waiting` have not begun.
    pub fn new(arms: &[String], studies: &[Studied], waiting: &[Row]) -> Grid {
        let mut rows = Vec::new();
        for study in studies {
            if study.split {
                rows.push(together(study));
            } else {
                rows.extend(study.rows.iter().map(|row| of(study, row)));
            }
        }
        rows.extend(waiting.iter().map(|row| not_begun(row, arms.len())));
        // A night without any study has not begun.
        let is_finished = waiting.is_empty() && !studies.is_empty() && studies.iter().all(|study| study.is_finished);
        let verdicts = (0..arms.len().saturating_sub(1)).map(|arm| verdict(studies, is_finished, arm)).collect();
        let is_decided = studies.iter().all(|study| study.judgement.decision().is_some());
        Grid { arms: arms.to_vec(), rows, verdicts, is_decided }
    }

    /// The verdict over all kernels; `None` while unfinished, unless a kernel is already `worse`.
    pub fn verdict(&self) -> Option<Verdict> {
        over(&self.verdicts)
    }

    /// The verdict on which a gate may rely, as [`Judgement::decision`].
    pub fn decision(&self) -> Option<Verdict> {
        match self.verdict() {
            Some(Verdict::Worse) => Some(Verdict::Worse),
            verdict => verdict.filter(|_| self.is_decided),
        }
    }
}

/// The row for several rows in one boot, some of which failed.
fn together(study: &Studied) -> GridRow {
    let names: Vec<&str> = study.rows.iter().map(|r| r.name.as_str()).collect();
    let mut row = bare(study, format!("{} together", names.join("+")));
    row.together = true;
    for (cell, arm) in row.cells.iter_mut().zip(1..) {
        // Where nothing fails here, its rows have their own verdicts, because they ran alone.
        cell.verdict = (study.judgement.state != State::Unfinished).then(|| judged(study, arm, Verdict::Same));
    }
    row
}

/// The verdict of a row: that of its `speed`, unless survival decides.
fn judged(study: &Studied, arm: usize, speed: Verdict) -> Verdict {
    let Studied { plan, judgement, .. } = study;
    let (a, b) = (&judgement.survival[0], &judgement.survival[arm]);
    match suite::without_speed(plan, judgement.state == State::Spoilt, a, b) {
        Some(suite) => suite.verdict,
        None if suite::unreliable(plan, speed, a, b).is_some() => Verdict::Inconclusive,
        None => speed,
    }
}

fn of(study: &Studied, row: &Row) -> GridRow {
    let mut grid_row = bare(study, row.name.clone());
    for (cell, comparison) in grid_row.cells.iter_mut().zip(&study.judgement.comparisons) {
        let mine = comparison.lines.iter().filter(|l| l.workload == row.workload).cloned();
        let (primary, others): (Vec<Line>, Vec<Line>) = mine.partition(|l| l.metric.primary);
        cell.lines = primary.into_iter().chain(others).collect();
    }
    for (cell, arm) in grid_row.cells.iter_mut().zip(1..) {
        let speed = cell.primary().map_or(Verdict::Inconclusive, |line| line.verdict);
        cell.verdict = (study.judgement.state != State::Unfinished).then(|| judged(study, arm, speed));
    }
    grid_row
}

/// A row whose study has not begun.
fn not_begun(row: &Row, arms: usize) -> GridRow {
    GridRow {
        name: row.name.clone(),
        folder: String::new(),
        together: false,
        state: State::Unfinished,
        fates: vec![BootCounts::default(); arms],
        cells: vec![GridCell::default(); arms.saturating_sub(1)],
    }
}

/// A row without lines.
fn bare(study: &Studied, name: String) -> GridRow {
    let judgement = &study.judgement;
    let baseline = judgement.survival.first();
    let fates: Vec<BootCounts> = judgement.survival.iter().map(|s| fate(&study.plan, s, baseline)).collect();
    GridRow {
        name,
        folder: study.folder.clone(),
        together: false,
        state: judgement.state,
        cells: vec![GridCell::default(); judgement.comparisons.len()],
        fates,
    }
}

fn fate(plan: &Plan, survival: &Survival, baseline: Option<&Survival>) -> BootCounts {
    let of = |f: &bigiron_judge::survival::Failures| {
        let message = f.trials.first().map_or("", |t| t.message.as_str());
        format!("{} in {} of {} {}: {message}", f.failure.verb(), f.trials.len(), survival.boots, plan.trials())
    };
    let complaints = baseline.into_iter().flat_map(|b| survival.new_complaints(b)).filter(|c| c.decides());
    BootCounts {
        boots: survival.boots,
        failed: survival.failed(),
        failures: survival.failures.iter().map(of).collect(),
        complaints: complaints.map(|c| c.class.clone()).collect(),
    }
}

/// The verdict on one kernel over all studies of a night; `None` while one of them has none, unless another is already `worse`.
fn verdict(studies: &[Studied], is_finished: bool, arm: usize) -> Option<Verdict> {
    let of = |study: &Studied| {
        if study.split {
            let row = together(study);
            return row.cells.get(arm)?.verdict;
        }
        Some(study.judgement.comparisons.get(arm)?.suite.as_ref()?.verdict)
    };
    let mut all: Vec<Option<Verdict>> = studies.iter().map(of).collect();
    if !is_finished {
        all.push(None);
    }
    over(&all)
}

/// One verdict for several, of which some may still be open: `worse` stands whatever these will be, anything else does not.
fn over(verdicts: &[Option<Verdict>]) -> Option<Verdict> {
    let known = suite::combine(verdicts.iter().copied().flatten());
    (known == Verdict::Worse || !verdicts.contains(&None)).then_some(known)
}
