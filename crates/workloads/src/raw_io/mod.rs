//! `raw-io`: a matrix of plain requests to raw disks: their places, operations, engines, sizes and numbers of processes.
//!
//! Invariant: the requests of a cell depend only on the options, the seed and the clock's name.

mod block_sequence;
mod cell;
mod disk;
mod options;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::OFlags;

use self::block_sequence::shares;
use self::cell::CellProcess;
use self::options::{Cell, Matrix, OPTIONS, Pattern};
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::{Options, Window};
use bigiron_probe::counters::span;
use bigiron_sys::load::files::{file_system, open_direct};
use bigiron_sys::load::worker_group::{GroupBoard, GroupWork, Member, MemberKind, StageCost, WorkerGroup};
use bigiron_sys::segment::{PAGE, Segment};
use bigiron_workload::{
    ByClock, Configured, Context, Needs, OptionDef, Progress, RawNeeds, Running, Workload, WorkloadResult, limits,
};

/// The primary metric's name.
const PRIMARY: &str = bigiron_model::metric::MEAN;

/// The workload `raw-io`.
pub struct RawIo;

impl Workload for RawIo {
    fn name(&self) -> &'static str {
        "raw-io"
    }

    fn summary(&self) -> &'static str {
        "Plain direct I/O on raw disks: sequential and random, read and write, by every engine, size and number of processes"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(ByClock::read(|clock| Matrix::parse(options, clock))?))
    }
}

impl Configured for Matrix {
    fn needs(&self) -> Needs {
        let buffers = self.cells.iter().map(|c| c.processes * c.engine.depth * c.block).max().unwrap_or(0);
        Needs {
            storage_bytes: Some(self.disks as u64 * self.bytes + (16 << 20)),
            memory_bytes: (16 << 20) + buffers as u64 + self.processes() as u64 * (1 << 20) + self.bytes / 512,
            modules: Vec::new(),
        }
    }

    fn raw_disks(&self) -> Option<RawNeeds> {
        Some(RawNeeds { count: self.disks, bytes: self.bytes })
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let primary = MetricDef {
            name: PRIMARY.to_owned(),
            unit: Unit::OperationsPerSecond,
            better: Better::Higher,
            kind: Kind::Throughput,
            primary: true,
            summary: "Geometric mean of all cells, each in requests per second".to_owned(),
        };
        std::iter::once(primary).chain(self.cells.iter().map(declare)).collect()
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let prepared = PreparedMatrix::of(self, cx)?;
        for (n, path) in prepared.paths.iter().enumerate() {
            (cx.progress)(Progress { step: "lay out", done: n as u32, of: self.disks as u32 });
            disk::lay_out(path, &disk::stamp(cx.seed, n), self.bytes)?;
        }
        Ok(Box::new(prepared))
    }
}

/// A matrix with its disks.
struct PreparedMatrix<'a> {
    matrix: &'a Matrix,
    /// Of the disks, or of the files in their place.
    paths: Vec<PathBuf>,
}

impl<'a> PreparedMatrix<'a> {
    fn of(matrix: &'a Matrix, cx: &Context<'_>) -> Result<Self> {
        Ok(Self { matrix, paths: disk::paths(cx.devices, &cx.dir, matrix.disks)? })
    }
}

impl Running for PreparedMatrix<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let Self { matrix, paths } = self;
        let processes = matrix.processes();
        limits::check(processes)?;
        let segment = Segment::new(GroupBoard::bytes(processes) + PAGE).context("Cannot map the shared segment")?;
        let board = GroupBoard::new(&segment, processes)?;
        let work = Cells { matrix, seed: cx.seed, paths };
        let mut outcome = WorkloadResult::default();
        let mut logs = 0.0;
        let mut worker_group = WorkerGroup::start(&board, MemberKind::Processes, &work)?;
        for (n, cell) in matrix.cells.iter().enumerate() {
            (cx.progress)(Progress { step: &cell.name, done: n as u32, of: matrix.cells.len() as u32 });
            // The engine is opened and warmed up in a separate stage.
            worker_group.stage()?;
            span::open(|| ());
            let stage = worker_group.stage()?;
            span::close(|| ());
            span::cut();
            let rate = rate(matrix, cell, stage)?;
            logs += rate.ln();
            let value = if cell.pattern == Pattern::Sequential { rate * cell.block as f64 } else { rate };
            outcome.values.insert(cell.name.clone(), value);
            let requests = requests(matrix, cell);
            outcome.windows.push(Window::of(&*cell.name, requests, stage.ns));
            let cpu = stage.cpu_ns as f64 / requests as f64 / 1e3;
            let megabytes = rate * cell.block as f64 / 1e6;
            let text =
                format!("{requests} requests, {rate:.0} per second, {megabytes:.1} MB/s, {cpu:.2} us of CPU time each");
            outcome.facts.insert(format!("cell.{}", cell.name), text);
        }
        worker_group.leave()?;
        outcome.values.insert(PRIMARY.to_owned(), (logs / matrix.cells.len() as f64).exp());
        let on = if cx.devices.is_empty() { format!("files on {}", file_system(&cx.dir)) } else { "raw".to_owned() };
        let fact = |name: &str, value: String| (name.to_owned(), value);
        outcome.facts.extend([
            fact("disks", format!("{} {on}", matrix.disks)),
            fact("data-bytes", (matrix.bytes * matrix.disks as u64).to_string()),
            fact("page-cache", "bypassed (O_DIRECT)".to_owned()),
            fact("durability", "no write is synced".to_owned()),
        ]);
        Ok(outcome)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> Result<()> {
        let last = block_sequence::last_writes(self.matrix, cx.seed);
        for (n, path) in self.paths.iter().enumerate() {
            disk::verify(path, &disk::stamp(cx.seed, n), &last[n])?;
        }
        Ok(())
    }
}

fn declare(cell: &Cell) -> MetricDef {
    let (unit, what) = match cell.pattern {
        Pattern::Sequential => (Unit::BytesPerSecond, "bytes"),
        Pattern::Random => (Unit::OperationsPerSecond, "requests"),
    };
    let summary = format!("Cell `{}`: {what} per second of all its processes", cell.name);
    MetricDef { name: cell.name.clone(), unit, better: Better::Higher, kind: Kind::Throughput, primary: false, summary }
}

/// Measured requests of a cell, all processes together.
fn requests(matrix: &Matrix, cell: &Cell) -> u64 {
    shares(matrix, cell).1 * (cell.processes * cell.engine.depth) as u64
}

/// Requests per second.
fn rate(matrix: &Matrix, cell: &Cell, stage: StageCost) -> Result<f64> {
    ensure!(stage.ns > 0, "The clock did not advance in cell `{}`", cell.name);
    Ok(requests(matrix, cell) as f64 * 1e9 / stage.ns as f64)
}

/// All cells, as a process runs them.
struct Cells<'a> {
    matrix: &'a Matrix,
    seed: u64,
    paths: &'a [PathBuf],
}

impl GroupWork for Cells<'_> {
    fn run_member(&self, member: &mut Member<'_>) -> Result<()> {
        let (process, number) = (member.number, member.number % self.matrix.disks);
        let (file, stamp) = (open_direct(&self.paths[number], OFlags::RDWR)?, disk::stamp(self.seed, number));
        let mut part: Option<CellProcess<'_>> = None;
        while let Some(stage) = member.next_stage()? {
            let cell = stage as usize / 2;
            let (warm_up, measured) = shares(self.matrix, &self.matrix.cells[cell]);
            if process >= self.matrix.cells[cell].processes {
                continue;
            }
            match &mut part {
                Some(part) if stage % 2 == 1 => part.requests(measured)?,
                _ => {
                    // The last cell's engine is closed before the next is opened.
                    part = None;
                    let part = part.insert(CellProcess::new((self.matrix, cell), self.seed, process, &file, &stamp)?);
                    part.requests(warm_up)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
