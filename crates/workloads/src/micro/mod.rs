//! `micro`: the latency table of the field. The cost of a kernel's single operations, one metric each.
//!
//! Invariant: the measurements depend only on the options, the seed and the clock's name; no count is found by measuring.

mod bench;
mod blocks;
mod calls;
mod catalogue;
mod copy;
mod files;
mod ipc;
mod memory;
mod process;
mod selection;
mod switch;

use anyhow::{Context as _, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::bench::{Bench, DATA_BYTES, Window};
use self::block::{BLOCK, Stamp};
use self::catalogue::{Measure, Storage, Test};
use self::selection::Selection;
use bigiron_model::clock::Clock;
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::{Options, Window as Marked};
use bigiron_probe::counters::span;
use bigiron_sys::load::{rng, stamp as block};
use bigiron_sys::net::interface_up;
use bigiron_workload::{
    Configured, Context, Needs, NightlyRow, OptionDef, Progress, Running, Workload, WorkloadResult,
};

pub(super) use self::bench::file_system;
pub use self::process::EXIT_ARGUMENTS;

/// The primary metric's name.
const PRIMARY: &str = bigiron_model::metric::MEAN;

/// The workload of single operations.
pub struct Micro;

const OPTIONS: &[OptionDef] = &[
    OptionDef {
        name: "only",
        default: "all",
        allowed: &[],
        summary: "Metrics and groups of metrics to measure, separated by commas",
    },
    OptionDef {
        name: "scale",
        default: "1",
        allowed: &[],
        summary: "Multiplies every count of operations, 0.0001 to 100",
    },
];

impl Workload for Micro {
    fn name(&self) -> &'static str {
        "micro"
    }

    fn summary(&self) -> &'static str {
        "What the kernel's single operations cost: calls, signals, switches, processes, faults, files, I/O"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const ROWS: &[NightlyRow] = &[NightlyRow::PLAIN.quick(&[("scale", "0.5")])];
        ROWS
    }

    fn alone(&self, metric: &str) -> Option<(&'static str, String)> {
        (metric != PRIMARY).then(|| ("only", metric.to_owned()))
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Selection::parse(options)?))
    }
}

impl Configured for Selection {
    fn needs(&self) -> Needs {
        let on_disk = self.tests.iter().filter(|t| t.storage > Storage::None);
        let bytes = on_disk.map(|t| if t.name == blocks::APPEND { log_bytes(self.ops(t, Clock::Wall)) } else { 0 });
        Needs {
            // The data file, the log on the clock that makes it longer, a hundred small files and what a file system wants for
            // itself.
            storage_bytes: bytes.max().map(|log| DATA_BYTES + log + (48 << 20)),
            memory_bytes: 64 << 20,
            modules: Vec::new(),
        }
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let primary = MetricDef {
            name: PRIMARY.to_owned(),
            unit: Unit::Ns,
            better: Better::Lower,
            kind: Kind::Cost,
            primary: true,
            summary:
                "Geometric mean of all operations measured; on the wall clock a bandwidth counts as the time of 4 KiB"
                    .to_owned(),
        };
        std::iter::once(primary).chain(self.tests.iter().copied().map(declare)).collect()
    }

    fn prepare(&self, cx: &Context<'_>) -> anyhow::Result<Box<dyn Running + '_>> {
        if self.tests.iter().any(|t| t.loopback) {
            loopback_up()?;
        }
        if self.tests.iter().any(|t| t.storage == Storage::Data) {
            blocks::lay_out(&cx.dir, &Stamp::new(cx.seed))?;
        }
        Ok(Box::new(self))
    }
}

impl Running for &Selection {
    fn run(&mut self, cx: &Context<'_>) -> anyhow::Result<WorkloadResult> {
        let selection: &Selection = self;
        let stamp = Stamp::new(cx.seed);
        let pinned = Pinned::to_one_cpu()?;
        let mut outcome = WorkloadResult::default();
        let (mut logs, of) = (Vec::new(), selection.tests.len());
        for (done, test) in selection.tests.iter().enumerate() {
            (cx.progress)(Progress { step: test.name, done: done as u32, of: of as u32 });
            let window = (test.run)(&bench(cx, selection, test, &stamp))
                .and_then(
                    |w| if w.ns > 0 { Ok(w) } else { Err(anyhow!("The clock did not move in {} operations", w.ops)) },
                )
                .with_context(|| format!("Cannot measure `{}`", test.name))?;
            span::cut();
            outcome.windows.push(Marked::of(test.name, window.ops, window.ns));
            outcome.values.insert(test.name.to_owned(), value(test, window));
            if counted(test, selection, cx.clock) {
                logs.push(cost_ns(test, window).ln());
            }
        }
        outcome.values.insert(PRIMARY.to_owned(), (logs.iter().sum::<f64>() / logs.len() as f64).exp());
        let fact = |name: &str, value: String| (name.to_owned(), value);
        outcome.facts.extend([
            fact("scale", selection.scale.to_string()),
            fact("cpu", pinned.cpu.to_string()),
            fact(
                "operations",
                selection
                    .tests
                    .iter()
                    .map(|t| format!("{}={}", t.name, selection.ops(t, cx.clock)))
                    .collect::<Vec<_>>()
                    .join(" "),
            ),
        ]);
        if selection.needs().storage_bytes.is_some() {
            outcome.facts.insert("file-system".to_owned(), bench::file_system(&cx.dir));
        }
        outcome.facts.extend(durability(selection).map(|(name, value)| fact(name, value)));
        Ok(outcome)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> anyhow::Result<()> {
        let selection: &Selection = *self;
        let stamp = Stamp::new(cx.seed);
        let writes = |test: &&'static Test| {
            let b = bench(cx, selection, test, &stamp);
            bench::with_warm_up(b.ops)
        };
        if selection.tests.iter().any(|t| t.storage == Storage::Data) {
            let writers = selection.tests.iter().filter(|t| blocks::WRITERS.contains(&t.name));
            let last = blocks::last_writes(cx.seed, writers.map(|t| (t.name, writes(t))));
            blocks::verify_data(&cx.dir, &stamp, &last)?;
        }
        if let Some(test) = selection.tests.iter().find(|t| t.name == blocks::APPEND) {
            blocks::verify_log(&cx.dir, &stamp, writes(test))?;
        }
        Ok(())
    }
}

/// What the operations selected do to files: nothing is synced unless its name says so.
fn durability(selection: &Selection) -> impl Iterator<Item = (&'static str, String)> {
    let on = |storage| selection.tests.iter().any(|t| t.storage >= storage);
    let appends = selection.tests.iter().any(|t| t.name == blocks::APPEND);
    let durability = match (on(Storage::Directory), appends) {
        (_, true) => "fdatasync after every append of append-8k-fdatasync; no other write is synced",
        (true, false) => "no write is synced",
        (false, false) => "no file is written",
    };
    let data = on(Storage::Data).then(|| {
        let cache = "bypassed (O_DIRECT) or used, as the metric's name says".to_owned();
        [("data-bytes", DATA_BYTES.to_string()), ("page-cache", cache)]
    });
    [("durability", durability.to_owned())].into_iter().chain(data.into_iter().flatten())
}

/// Bytes of the log after `ops` measured appends.
fn log_bytes(ops: u64) -> u64 {
    bench::with_warm_up(ops) * blocks::RECORD as u64
}

/// Bit 0 of an interface's flags (net/if.h).
const IFF_UP: u32 = 1;

/// Brings the loopback interface up if it is not: the kernel then gives it 127.0.0.1.
pub fn loopback_up() -> anyhow::Result<()> {
    let flags = std::fs::read_to_string("/sys/class/net/lo/flags").unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    if flags & IFF_UP != 0 {
        return Ok(());
    }
    interface_up("lo").context("The loopback interface `lo` is down, and cannot be brought up but by root")
}

fn bench<'a>(cx: &'a Context<'_>, selection: &Selection, test: &Test, stamp: &'a Stamp) -> Bench<'a> {
    Bench {
        name: test.name,
        ops: selection.ops(test, cx.clock),
        seed: cx.seed,
        dir: &cx.dir,
        executable: &cx.executable,
        stamp,
    }
}

fn declare(test: &Test) -> MetricDef {
    let (unit, better, kind) = match test.measure {
        Measure::Latency => (Unit::Ns, Better::Lower, Kind::Cost),
        Measure::Bandwidth { .. } => (Unit::BytesPerSecond, Better::Higher, Kind::Throughput),
    };
    MetricDef { name: test.name.to_owned(), unit, better, kind, primary: false, summary: test.summary.to_owned() }
}

/// The metric's value: nanoseconds of one operation, or bytes per second.
fn value(test: &Test, window: Window) -> f64 {
    let (ops, ns) = (window.ops as f64, window.ns as f64);
    match test.measure {
        Measure::Latency => ns / ops,
        Measure::Bandwidth { bytes } => bytes as f64 * ops / (ns / 1e9),
    }
}

/// Whether a test counts in the geometric mean. Bandwidths do not under the exact clock, unless nothing else was asked for: it sees no memory, and what
/// it counts of a copy depends on whether a kernel copies with a loop or with `rep` (docs/concepts/clocks.md).
fn counted(test: &Test, selection: &Selection, clock: Clock) -> bool {
    let is_latency = |test: &Test| matches!(test.measure, Measure::Latency);
    clock == Clock::Wall || is_latency(test) || !selection.tests.iter().any(|t| is_latency(t))
}

/// What the test contributes to the geometric mean: nanoseconds of one operation, or of 4 KiB moved.
fn cost_ns(test: &Test, window: Window) -> f64 {
    match test.measure {
        Measure::Latency => value(test, window),
        Measure::Bandwidth { .. } => BLOCK as f64 * 1e9 / value(test, window),
    }
}

/// This thread, and with it every child it makes, kept on one CPU; undone when dropped. A round trip between two CPUs measures
/// the idle states and the distance of whichever two the scheduler picked, which differs from boot to boot.
struct Pinned {
    cpu: usize,
    former: CpuSet,
}

impl Pinned {
    /// Takes the highest CPU that is allowed: the first is the one that devices interrupt.
    fn to_one_cpu() -> anyhow::Result<Self> {
        let former = sched_getaffinity(None)?;
        let cpu = (0..CpuSet::MAX_CPU).rev().find(|n| former.is_set(*n)).context("No CPU is allowed")?;
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one)?;
        Ok(Self { cpu, former })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.former);
    }
}

#[cfg(test)]
mod tests;
