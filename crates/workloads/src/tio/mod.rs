//! `tio`: threads that write and read their own files, one phase after the other: sequential and random writes, then sequential
//! and random reads.
//!
//! Invariant: the work of each phase depends only on the options and the clock's name; a write phase ends when its data are on
//! the device.

mod file;
mod options;
mod row;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use self::file::{Draws, ThreadFile, drop_from_cache, first_generation, generation};
use self::options::{Access, OPTIONS, Phase, Settings};
use self::row::Row;
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::{Options, Window};
use bigiron_probe::counters::span;
use bigiron_sys::load::files::file_system;
use bigiron_sys::load::stamp::Stamp;
use bigiron_sys::load::worker_group::{GroupBoard, GroupWork, Member, MemberKind, StageCost, WorkerGroup};
use bigiron_sys::load::{ShardedHistogram, now_ns};
use bigiron_sys::segment::{PAGE, Segment};
use bigiron_workload::silence::BESIDE_LOAD;
use bigiron_workload::{
    ByClock, Configured, Context, Needs, NightlyRow, OptionDef, Progress, Running, Workload, WorkloadResult, limits,
};

/// The primary metric's name.
const PRIMARY: &str = bigiron_model::metric::MEAN;
/// A slow disk's bytes per second, and the longest mean time of its operations: of random ones or, without a cache, of all.
const DISK: u64 = 10_000_000;
const OPERATION: Duration = Duration::from_millis(20);
/// The same for an emulated guest, in its CPU time.
const EMULATED: u64 = 2_000_000;
const EMULATED_OPERATION: Duration = Duration::from_millis(1);

/// The workload `tio`.
pub struct Tio;

impl Workload for Tio {
    fn name(&self) -> &'static str {
        "tio"
    }

    fn summary(&self) -> &'static str {
        "Threads on their own files: sequential and random writes, then reads, with latencies and CPU time"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const ROWS: &[NightlyRow] = &[NightlyRow::on("ext4"), NightlyRow::on("xfs")];
        ROWS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(ByClock::read(|clock| Settings::parse(options, clock))?))
    }
}

impl Configured for Settings {
    fn needs(&self) -> Needs {
        let most = self.threads.last().copied().unwrap_or(1);
        Needs {
            storage_bytes: Some(self.bytes + self.bytes / 16 + (32 << 20)),
            memory_bytes: (48 << 20) + (most * (self.block + (1 << 20))) as u64,
            modules: Vec::new(),
        }
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let def = |name, unit, better, kind, summary: String| MetricDef {
            primary: name == PRIMARY,
            name,
            unit,
            better,
            kind,
            summary,
        };
        let mut metrics = vec![def(
            PRIMARY.to_owned(),
            Unit::BytesPerSecond,
            Better::Higher,
            Kind::Throughput,
            "Geometric mean of all phases' throughputs".to_owned(),
        )];
        for (phase, threads) in rows(&self.threads) {
            let what = phase.name().replace('-', " ");
            let rate = format!("Throughput of phase {what}, threads: {threads}");
            let mean = format!("Mean time of an operation of phase {what}, threads: {threads}");
            metrics.push(def(phase.rate(threads), Unit::BytesPerSecond, Better::Higher, Kind::Throughput, rate));
            metrics.push(def(phase.latency(threads), Unit::Ns, Better::Lower, Kind::Cost, mean));
        }
        metrics
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn silence(&self) -> Duration {
        let waits = self.sync || self.access == Access::Direct;
        BESIDE_LOAD + self.longest(DISK, self.random + if waits { self.blocks(1) } else { 0 }, OPERATION)
    }

    fn guest_silence(&self) -> Duration {
        self.longest(EMULATED, self.random + self.blocks(1), EMULATED_OPERATION)
    }

    fn prepare(&self, _cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        Ok(Box::new(self))
    }
}

impl Settings {
    /// The duration of a phase that moves all bytes at `rate` bytes per second, with `operations` operations that wait for `each`.
    fn longest(&self, rate: u64, operations: u64, each: Duration) -> Duration {
        let waits = each.saturating_mul(u32::try_from(operations).unwrap_or(u32::MAX));
        Duration::from_secs(self.bytes / rate).saturating_add(waits)
    }
}

impl Running for &Settings {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let settings: &Settings = self;
        let most = settings.threads.last().copied().unwrap_or(1);
        limits::check(most)?;
        let all: Vec<_> = rows(&settings.threads).collect();
        let bytes = GroupBoard::bytes(most) + all.len() * (ShardedHistogram::bytes(most) + PAGE) + PAGE;
        let segment = Segment::new(bytes).context("Cannot map the shared segment")?;
        let board = GroupBoard::new(&segment, most)?;
        let latencies: Vec<_> = all.iter().map(|(_, threads)| ShardedHistogram::new(&segment, *threads)).collect();
        let stamp = Stamp::new(cx.seed);
        let script = script(settings);
        let work =
            Threads { settings, dir: &cx.dir, seed: cx.seed, stamp: &stamp, script: &script, latencies: &latencies };
        let mut worker_group = WorkerGroup::start(&board, MemberKind::Threads, &work)?;
        let mut took = vec![StageCost::default(); all.len()];
        for step in &script {
            match *step {
                Step::Make { .. } => drop(worker_group.stage()?),
                Step::Phase { row, turn, .. } => {
                    let (phase, threads) = all[row];
                    if turn.is_none_or(|turn| turn == 0) {
                        (cx.progress)(Progress { step: &phase.rate(threads), done: row as u32, of: all.len() as u32 });
                        if settings.cold && !phase.writes() {
                            (0..threads).try_for_each(|t| drop_from_cache(&file::path(&cx.dir, t)))?;
                        }
                    }
                    span::open(|| ());
                    let stage = worker_group.stage()?;
                    span::close(|| ());
                    if turn.is_none_or(|turn| turn + 1 == threads) {
                        span::cut();
                    }
                    took[row].ns += stage.ns;
                    took[row].cpu_ns += stage.cpu_ns;
                }
            }
        }
        worker_group.leave()?;
        let mut outcome = WorkloadResult::default();
        let mut logs = 0.0;
        for (((phase, threads), stage), latency) in all.iter().zip(&took).zip(&latencies) {
            let row = Row { settings, stage: *stage, latency: latency.read() };
            ensure!(stage.ns > 0, "The clock did not advance in phase {}", phase.name());
            logs += row.bytes_per_second().ln();
            outcome.windows.push(Window::of(phase.rate(*threads), row.latency.count(), stage.ns));
            outcome.values.insert(phase.rate(*threads), row.bytes_per_second());
            outcome.values.insert(phase.latency(*threads), row.latency.mean().context("A phase without operations")?);
            outcome.facts.insert(format!("row.{}", phase.rate(*threads)), row.to_string());
        }
        outcome.values.insert(PRIMARY.to_owned(), (logs / all.len() as f64).exp());
        outcome.facts.extend(facts(settings, &cx.dir));
        Ok(outcome)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> Result<()> {
        let settings: &Settings = *self;
        let stamp = Stamp::new(cx.seed);
        // The remaining files are those of the last number of threads.
        let threads = settings.threads.last().copied().unwrap_or(1);
        for thread in 0..threads {
            let mut last = vec![first_generation(); settings.blocks(threads) as usize];
            let mut draws = draws(settings, cx.seed, Phase::RandomWrite, threads, thread);
            for n in 0..settings.random_each(threads) {
                last[(draws.take() / settings.block as u64) as usize] = generation(n);
            }
            file::verify(&file::path(&cx.dir, thread), &stamp, thread, settings.block, &last)?;
        }
        Ok(())
    }
}

fn facts(settings: &Settings, dir: &Path) -> impl Iterator<Item = (String, String)> {
    let cache = match (settings.access, settings.cold) {
        (Access::Direct, _) => "bypassed (O_DIRECT)",
        (_, true) => "used; the files are dropped from it before each read phase",
        (_, false) => "used",
    };
    let durability = if settings.sync { "every write with O_SYNC" } else { "fsync at the end of each write phase" };
    [
        ("file-system", file_system(dir)),
        ("page-cache", cache.to_owned()),
        ("durability", durability.to_owned()),
        ("data-bytes", settings.bytes.to_string()),
        ("block-bytes", settings.block.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
}

/// All rows of the table, in order.
fn rows(threads: &[usize]) -> impl Iterator<Item = (Phase, usize)> {
    threads.iter().flat_map(|threads| Phase::ALL.into_iter().map(move |phase| (phase, *threads)))
}

fn draws(settings: &Settings, seed: u64, phase: Phase, threads: usize, thread: usize) -> Draws {
    Draws::new(seed, &phase.rate(threads), thread, settings.blocks(threads), settings.block)
}

/// A stage of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Creates empty files, one for each of this many threads; the other threads remove theirs.
    Make { threads: usize },
    /// A phase, or one thread's part of it.
    Phase { phase: Phase, threads: usize, row: usize, turn: Option<usize> },
}

/// All stages.
fn script(settings: &Settings) -> Vec<Step> {
    let mut script = Vec::new();
    for (row, (phase, threads)) in rows(&settings.threads).enumerate() {
        if phase == Phase::Write {
            script.push(Step::Make { threads });
        }
        if settings.in_turn && phase.writes() {
            script.extend((0..threads).map(|turn| Step::Phase { phase, threads, row, turn: Some(turn) }));
        } else {
            script.push(Step::Phase { phase, threads, row, turn: None });
        }
    }
    script
}

/// The threads' shared data.
struct Threads<'a> {
    settings: &'a Settings,
    dir: &'a Path,
    seed: u64,
    stamp: &'a Stamp,
    script: &'a [Step],
    /// By row.
    latencies: &'a [ShardedHistogram<'a>],
}

impl GroupWork for Threads<'_> {
    fn run_member(&self, member: &mut Member<'_>) -> Result<()> {
        let thread = member.number;
        let mut file = None;
        while let Some(stage) = member.next_stage()? {
            match self.script[stage as usize] {
                Step::Make { threads } => {
                    file = None;
                    if thread < threads {
                        let bytes = self.settings.blocks(threads) * self.settings.block as u64;
                        file = Some(ThreadFile::make(self.dir, self.settings, self.stamp, thread, bytes)?);
                    }
                }
                Step::Phase { phase, threads, row, turn } => {
                    if let Some(file) = &mut file
                        && turn.is_none_or(|turn| turn == thread)
                    {
                        self.phase(file, (phase, threads, row), thread)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Threads<'_> {
    fn phase(
        &self,
        file: &mut ThreadFile<'_>,
        (phase, threads, row): (Phase, usize, usize),
        thread: usize,
    ) -> Result<()> {
        let (settings, recorder) = (self.settings, self.latencies[row].recorder(thread));
        let count = if phase.is_random() { settings.random_each(threads) } else { settings.blocks(threads) };
        let mut draws = draws(settings, self.seed, phase, threads, thread);
        let mut at = now_ns();
        for n in 0..count {
            let offset = if phase.is_random() { draws.take() } else { n * settings.block as u64 };
            match phase {
                Phase::Write => file.write(offset, first_generation()),
                Phase::RandomWrite => file.write(offset, generation(n)),
                Phase::Read | Phase::RandomRead => file.read(offset),
            }
            .with_context(|| format!("Thread {thread} in phase {}", phase.name()))?;
            let end = now_ns();
            recorder.record(end - at);
            at = end;
        }
        if phase.writes() { file.sync() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
