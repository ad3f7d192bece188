//! One run of a job: creates the shared instance, starts the processes, and opens, watches and closes the window.
//!
//! Invariant: the window's figures are differences between the counts at its opening and its close; nothing before or after is
//! included.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use bigiron_model::clock::Clock;
use bigiron_probe::counters::span;
use bigiron_sys::mark;
use bigiron_sys::network::{Network, Wiring};
use bigiron_sys::segment::Segment;
use bigiron_workload::Progress;

use super::audit::Audit;
use super::cache::Cache;
use super::huge_pages::Permission;
use super::instance::{Instance, Phase};
use super::job::{ClassKind, Job, Wire};
use super::ledger::LedgerFile;
use super::memory::CacheMemory;
use super::nodes::Nodes;
use super::outcome::{ClassOutcome, Counts, JobOutcome, KindOutcome, PhaseOutcome};
use super::page_tables::{self, PageTables};
use super::plan::{Plan, Span, Stretch};
use super::series::{Sample, Series};
use super::verify::{AckSource, Verdict};
use super::waits::WaitTallies;
use super::worker_group::WorkerGroup;
use super::{block, files, honest_sync, loader, log_facts, pace, placing, requests, sideline};
use bigiron_workload::footprint::Footprint;

/// Part of the cache that is filled with the hottest blocks before the ramp: all except an eighth.
pub const PRELOAD: (usize, usize) = (7, 8);

/// Where and how a job runs.
pub struct JobContext<'a> {
    /// The directory of its files, except those that the job places elsewhere.
    pub dir: &'a Path,
    pub seed: u64,
    pub clock: Clock,
    /// The run's own network, if one was created for it.
    pub network: Option<&'a Network>,
    /// Called between the parts of a run, never inside the window.
    pub progress: &'a dyn Fn(Progress<'_>),
    /// Called inside the window, for every interval of the series: live progress, which perturbs the window.
    pub live: Option<&'a dyn Fn(&IntervalSample<'_>)>,
}

/// The events of the last interval of the window.
pub struct IntervalSample<'a> {
    /// Since the window opened.
    pub elapsed: Duration,
    pub interval: Duration,
    pub done: Sample,
    /// Empty for a window without phases.
    pub phase: &'a str,
}

/// Prepares the job's files.
pub fn prepare(job: &Job, cx: &JobContext<'_>) -> Result<()> {
    placing::link(job, cx.dir)?;
    files::lay_out(job, cx.dir, |f| {
        (cx.progress)(Progress { step: "lay out", done: f as u32, of: job.data.files as u32 });
    })
}

/// Checks the files of a run; an error is lost or wrong data.
pub fn verify(job: &Job, cx: &JobContext<'_>) -> Result<()> {
    examine(job, cx, AckSource::Ledger)?.into_result()
}

/// The same, reporting all errors of blocks and redo instead of the first. Files of other classes (plain requests, loaders) are
/// checked only if there are none, and their first fault is an error.
pub fn examine(job: &Job, cx: &JobContext<'_>, acks: AckSource<'_>) -> Result<Verdict> {
    (cx.progress)(Progress { step: "verify", done: 0, of: 1 });
    let verdict = if requests::alone(job) { Verdict::default() } else { super::verify::check(job, cx.dir, acks)? };
    if verdict.passed() {
        requests::verify(job, cx.dir)?;
        loader::verify(job, cx.dir)?;
    }
    Ok(verdict)
}

/// Runs the job on files from [`prepare`].
pub fn run(job: &Job, cx: &JobContext<'_>) -> Result<JobOutcome> {
    let plan = Plan::new(job, cx.clock);
    check(job, &plan)?;
    let private = page_tables::of_process("self")?;
    let segment = Segment::new(Instance::bytes(job)).context("Cannot map the shared segment")?;
    let memory = CacheMemory::new(job.cache.memory, Cache::bytes(job), Permission::of_this_machine())?;
    let (hear, tell) = std::io::pipe().context("Cannot create a pipe")?;
    let ledger_file = LedgerFile::open(job, cx.dir)?;
    let mut instance = Instance::new(&segment, memory.segment(), job, &ledger_file, cx.seed, plan, tell)?;
    instance.wire = Wiring::of(job.run.network == Wire::Veth, cx.network)?;
    let progress = |step, done| (cx.progress)(Progress { step, done, of: 4 });
    progress("fill the cache", 0);
    let honesty = if job.writes() { Some(honest_sync::test(job, cx.dir)?) } else { None };
    preload(&instance)?;
    let mut facts: BTreeMap<_, _> = memory.facts()?.into_iter().collect();
    facts.extend(requests::engines(job)?);
    progress("ramp", 1);
    let alone = Footprint::now()?;
    let begin = pace::now();
    let mut worker_group = WorkerGroup::start(&instance, hear)?;
    worker_group.wait_milestone()?;
    let started = pace::now() - begin;
    if let Span::Time(time) = instance.plan.ramp {
        worker_group.wait(Some(pace::now() + nanoseconds(time)))?;
    }
    progress("window", 2);
    let (wire, nodes) = (instance.wire.traffic()?, Nodes::now());
    let window = Window::watch(&instance, &mut worker_group, cx)?;
    span::cut();
    facts.extend(instance.wire.facts(wire)?);
    facts.extend(alone.facts_since(window.page_tables.len())?);
    if let Some(nodes) = nodes {
        facts.extend(nodes.facts_since(&memory.segment().memory().addresses())?);
    }
    let page_tables = PageTables::new(&instance, &memory, private, &window.page_tables)?;
    progress("shut down", 3);
    let end = pace::now();
    instance.enter(Phase::Leave);
    worker_group.wait_gone(|kind| !matches!(kind, ClassKind::LogWriter { .. }))?;
    instance.enter(Phase::End);
    worker_group.wait_gone(|_| true)?;
    // A ramp of transactions is part of the start time.
    facts.insert("start-ns".to_owned(), started.to_string());
    facts.insert("stop-ns".to_owned(), (pace::now() - end).to_string());
    ledger_file.close(&instance.ledger)?;
    loader::save(&instance)?;
    facts.extend(sideline::facts(&instance));
    instance.requests.save(cx.dir)?;
    facts.extend(page_tables.facts);
    facts.extend(honesty.iter().map(|h| ("sync-honesty".to_owned(), h.to_string())));
    if job.log_writer().is_some() {
        facts.extend(log_facts::of(&instance, &window.after.counts.log.since(window.before.counts.log)));
    }
    facts.insert("checkpoints".to_owned(), instance.checkpoints.count().to_string());
    Ok(JobOutcome { page_table_bytes: page_tables.total, sync: honesty, facts, ..window.outcome(&instance) })
}

/// Refuses jobs that would wait forever.
fn check(job: &Job, plan: &Plan) -> Result<()> {
    requests::check(job).map_err(anyhow::Error::msg)?;
    ensure!(
        job.transactors() > 0 || !plan.counts_transactions() || requests::counted(job),
        "No process of the job executes transactions, so its length must be a time, such as `time = \"30s\"`"
    );
    ensure!(job.log_writer().is_some() || !job.writes(), "The job's transactions write redo, but it has no log-writer");
    let writers = job.classes.iter().any(|c| matches!(c.kind, ClassKind::DatabaseWriter { .. }));
    ensure!(writers || !job.changes(), "The job's transactions change blocks, but it has no database-writer");
    Ok(())
}

/// Reads the hottest blocks into the cache, the coldest of them first, so that the window does not begin with an empty cache.
pub(super) fn preload(instance: &Instance<'_>) -> Result<()> {
    if instance.job.transactors() == 0 {
        return Ok(());
    }
    let files = files::DataFiles::open(instance.job, instance.dir)?;
    let ranks = (instance.cache.len() * PRELOAD.0 / PRELOAD.1).min(instance.job.blocks() as usize);
    for rank in (0..ranks).rev() {
        let number = instance.choosers.popular(rank);
        let address = files::address(instance.job, number);
        instance.cache.get(number, |page| {
            files.read(address, page)?;
            Ok(block::check_unmeasured(page, address)?)
        })?;
    }
    Ok(())
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// The cumulative counts, at one moment.
struct Totals {
    /// Nanoseconds of the monotonic clock.
    at: u64,
    ended: u64,
    counts: Counts,
    /// By worker.
    waits: Vec<WaitTallies>,
}

impl Totals {
    /// When the window opens: what takes longest to be read is read first, so that the clock is last.
    fn opening(instance: &Instance<'_>) -> Self {
        let waits = waits(instance);
        Self { waits, counts: Counts::of(instance), ended: instance.ended(), at: pace::now() }
    }

    /// When it closes, at the time and with the transactions that were read just now.
    fn closing(instance: &Instance<'_>, (at, ended): (u64, u64)) -> Self {
        let counts = Counts::of(instance);
        Self { at, ended, counts, waits: waits(instance) }
    }
}

fn waits(instance: &Instance<'_>) -> Vec<WaitTallies> {
    (0..instance.roles.len()).map(|w| instance.waits.read(w)).collect()
}

/// The processes of a run, as far as a window is concerned with them; see [`WorkerGroup`].
trait Processes {
    fn wait(&mut self, deadline: Option<u64>) -> Result<bool>;
    fn cpu_time(&self) -> Result<Duration>;
    fn page_table_bytes(&self) -> Result<Vec<(usize, u64)>>;
}

impl Processes for WorkerGroup<'_> {
    fn wait(&mut self, deadline: Option<u64>) -> Result<bool> {
        self.wait(deadline)
    }

    fn cpu_time(&self) -> Result<Duration> {
        self.cpu_time()
    }

    fn page_table_bytes(&self) -> Result<Vec<(usize, u64)>> {
        self.page_table_bytes()
    }
}

/// CPU time of all processes so far. Reading thousands of clocks takes time, in which the processes continue.
#[derive(Clone, Copy)]
struct CpuTime {
    /// When the reading began: nanoseconds of the monotonic clock.
    at: u64,
    total: Duration,
}

impl CpuTime {
    fn of(worker_group: &impl Processes) -> Result<Self> {
        Ok(Self { at: pace::now(), total: worker_group.cpu_time()? })
    }

    /// CPU time used in a window of `elapsed` that was open between the two readings. Both read the clocks in the same order, so
    /// each clock covers the time between their beginnings, which is longer than the window by the duration of the first reading.
    fn in_window(self, before: Self, elapsed: Duration) -> Duration {
        let between = Duration::from_nanos(self.at - before.at);
        let used = self.total - before.total;
        if between.is_zero() { used } else { used.mul_f64(elapsed.as_secs_f64() / between.as_secs_f64()) }
    }
}

fn sample(instance: &Instance<'_>) -> Sample {
    let counts = Counts::of(instance);
    Sample {
        transactions: instance.ended(),
        commits: counts.commits,
        reads: counts.reads,
        redo_writes: counts.log.flushes,
    }
}

/// The window, as the parent sees it.
struct Window {
    before: Totals,
    after: Totals,
    cpu: Duration,
    /// By process: bytes.
    page_tables: Vec<(usize, u64)>,
    series: Series,
    /// Duration and transactions, by stretch.
    stretches: Vec<(Duration, u64)>,
}

impl Window {
    fn watch(instance: &Instance<'_>, worker_group: &mut impl Processes, cx: &JobContext<'_>) -> Result<Self> {
        let (cpu, before) = span::open(|| CpuTime::of(worker_group).map(|cpu| (cpu, Totals::opening(instance))))?;
        instance.enter(Phase::Measure);
        let mut series = Series::begin(instance.plan.time(), sample(instance));
        let mut next_tick = before.at + nanoseconds(series.every());
        let mut stretches = Vec::new();
        let (mut at, mut ended) = (before.at, before.ended);
        // Whether all processes with a share of the work completed it before the time was up.
        let mut done = false;
        let mut closed = None;
        for (i, stretch) in instance.plan.stretches.iter().enumerate() {
            if i > 0 {
                instance.next_stretch();
            }
            let end = match stretch.span {
                Span::Time(time) => Some(at + nanoseconds(time)),
                Span::Transactions(_) => None,
            };
            while !Self::step(worker_group, end, next_tick, &mut done)? {
                if pace::now() >= next_tick {
                    let done = series.tick(sample(instance));
                    next_tick += nanoseconds(series.every());
                    tell(cx, stretch, &series, done, pace::now() - before.at);
                }
            }
            let now = (pace::now(), instance.ended());
            stretches.push((Duration::from_nanos(now.0 - at), now.1 - ended));
            mark::end();
            if i + 1 < instance.plan.stretches.len() {
                mark::begin();
            } else {
                // Before anything that takes time: processes of a timed window go on, and that is not the window's.
                closed = Some(Totals::closing(instance, now));
            }
            // By the plan, not by the clock, so that one delay does not delay everything after it.
            (at, ended) = (end.unwrap_or(now.0), now.1);
        }
        let cpu_after = CpuTime::of(worker_group)?;
        span::after();
        let after = closed.expect("a window has a stretch");
        let cpu = if instance.by_time() {
            cpu_after.in_window(cpu, Duration::from_nanos(after.at - before.at))
        } else {
            // They waited for the window, and after their shares they wait again.
            cpu_after.total - cpu.total
        };
        // Before the page tables, which take long to be read: until then plain requests and latencies still count.
        if instance.by_time() {
            instance.enter(Phase::Close);
        }
        let page_tables = worker_group.page_table_bytes()?;
        if instance.by_time() && instance.with_share() > 0 && !done {
            worker_group.wait(None)?;
        }
        Ok(Self { before, after, cpu, page_tables, series, stretches })
    }

    /// Waits until the stretch ends, by its time or by the processes' milestone, or until `next_tick`; returns whether it has
    /// ended. `done` is set if the milestone comes in a stretch of time.
    /// set if the word comes while it is the time that counts.
    fn step(worker_group: &mut impl Processes, end: Option<u64>, next_tick: u64, done: &mut bool) -> Result<bool> {
        match end {
            Some(end) => {
                *done |= worker_group.wait(Some(end.min(next_tick)))?;
                Ok(pace::now() >= end)
            }
            None => worker_group.wait(Some(next_tick)),
        }
    }

    fn outcome(self, instance: &Instance<'_>) -> JobOutcome {
        let Self { before, after, cpu, series, stretches, .. } = self;
        let job = instance.job;
        let worker_waits = |w: usize| after.waits[w].since(&before.waits[w]);
        let classes = job.classes.iter().enumerate().map(|(class, spec)| {
            let workers = (0..instance.roles.len()).filter(|w| instance.roles[*w].class == class);
            let mut outcome = ClassOutcome {
                name: spec.name.clone(),
                kind: spec.kind.word(),
                workers: 0,
                waits: WaitTallies::default(),
                audit: Audit::default(),
                requests: requests::outcome(instance, class),
            };
            for w in workers {
                outcome.workers += 1;
                outcome.waits = outcome.waits.plus(&worker_waits(w));
                outcome.audit = outcome.audit.plus(&instance.waits.audit(w));
            }
            outcome
        });
        let kinds = job.transactions.iter().zip(&instance.kind_latency);
        let phases = instance.plan.stretches.iter().zip(&instance.stretch_latency).zip(&stretches);
        JobOutcome {
            elapsed: Duration::from_nanos(after.at - before.at),
            transactions: after.ended - before.ended,
            cpu,
            page_table_bytes: 0,
            processes: instance.roles.len(),
            counts: after.counts.since(&before.counts),
            commits: instance.commits.whole(),
            stages: instance.commits.means().collect(),
            reads: instance.read_latency.read(),
            classes: classes.collect(),
            kinds: kinds.map(|(t, parts)| KindOutcome { name: t.name.clone(), latency: parts.read() }).collect(),
            phases: phases
                .map(|((stretch, parts), (elapsed, transactions))| PhaseOutcome {
                    name: stretch.name.clone(),
                    elapsed: *elapsed,
                    transactions: *transactions,
                    latency: parts.read(),
                })
                .collect(),
            series,
            sync: None,
            facts: BTreeMap::new(),
        }
    }
}

fn tell(cx: &JobContext<'_>, stretch: &Stretch, series: &Series, done: Sample, elapsed: u64) {
    if let Some(live) = cx.live {
        let elapsed = Duration::from_nanos(elapsed);
        live(&IntervalSample { elapsed, interval: series.every(), done, phase: &stretch.name });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes that work on while they are looked at, which takes long.
    struct Busy<'a> {
        instance: &'a Instance<'a>,
        /// Transactions before the window, in it, and while it is looked at.
        looked: std::cell::Cell<u64>,
        worked: u64,
    }

    impl Busy<'_> {
        fn work(&self) {
            self.instance.transaction_ended();
            super::super::instance::ProcessCounters::bump(&self.instance.counters[0].commits);
        }

        fn look(&self) {
            (0..1000).for_each(|_| self.work());
            self.looked.set(self.looked.get() + 1000);
        }
    }

    impl Processes for Busy<'_> {
        fn wait(&mut self, deadline: Option<u64>) -> Result<bool> {
            self.work();
            self.worked += 1;
            std::thread::sleep(Duration::from_nanos(deadline.unwrap_or(0).saturating_sub(pace::now())));
            Ok(deadline.is_none())
        }

        fn cpu_time(&self) -> Result<Duration> {
            let now = pace::now();
            self.look();
            std::thread::sleep(Duration::from_millis(50));
            Ok(Duration::from_nanos(now))
        }

        fn page_table_bytes(&self) -> Result<Vec<(usize, u64)>> {
            self.look();
            assert!(self.instance.reached(Phase::Close), "requests that end meanwhile would count");
            Ok(Vec::new())
        }
    }

    #[test]
    fn what_is_done_while_a_timed_window_is_looked_at_is_not_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let settings = [("data", "20M"), ("cache", "10M"), ("journal", "16M"), ("scan", "off"), ("direct", "off")];
        let mut job = Job::parse(&bigiron_workload::testing::options(&crate::Dbsim, settings).unwrap()).unwrap();
        job.run.length = super::super::job::Length::Time(Duration::from_millis(100));
        let segment = Segment::new(Instance::bytes(&job)).unwrap();
        let cache = Segment::new(Cache::bytes(&job)).unwrap();
        let ledger_file = LedgerFile::open(&job, dir.path()).unwrap();
        let (_hear, tell) = std::io::pipe().unwrap();
        let plan = Plan::new(&job, Clock::Wall);
        let instance = Instance::new(&segment, &cache, &job, &ledger_file, 7, plan, tell).unwrap();
        let cx =
            JobContext { dir: dir.path(), seed: 7, clock: Clock::Wall, network: None, progress: &|_| {}, live: None };
        let mut busy = Busy { instance: &instance, looked: std::cell::Cell::new(0), worked: 0 };
        let window = Window::watch(&instance, &mut busy, &cx).unwrap();
        // The last one is waited for when the window is closed.
        let in_window = busy.worked - 1;
        assert!(in_window > 0 && busy.looked.get() == 3000, "{in_window}, {}", busy.looked.get());
        let outcome = window.outcome(&instance);
        assert_eq!((outcome.transactions, outcome.counts.commits), (in_window, in_window));
        assert!(outcome.elapsed >= Duration::from_millis(100));
        // One CPU was busy all the time.
        let cpu = outcome.cpu.as_secs_f64() / outcome.elapsed.as_secs_f64();
        assert!((cpu - 1.0).abs() < 0.2, "{cpu}");
    }

    #[test]
    fn what_is_used_while_the_clocks_are_read_is_not_the_windows() {
        // Ten processes that never wait, and clocks that take 10 ms each to read: 100 ms before a window of 1 s, and again after
        // it.
        let read = |at_ms: u64| CpuTime {
            at: at_ms * 1_000_000,
            total: (0..10).map(|process| Duration::from_millis(at_ms + process * 10)).sum(),
        };
        let (before, after) = (read(5000), read(6100));
        assert_eq!(after.total - before.total, Duration::from_secs(11));
        let cpu = after.in_window(before, Duration::from_secs(1));
        assert!((cpu.as_secs_f64() - 10.0).abs() < 1e-6, "{cpu:?}");
    }
}
