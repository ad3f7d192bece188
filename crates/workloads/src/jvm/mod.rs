//! `jvm`: a business in one Java virtual machine, with a thread for each of its warehouses and all data in memory.
//!
//! Invariant: with a number of operations the work depends only on the options and the seed, and the program's own data are checked after each point.

mod log;
mod options;
mod process;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use self::log::Pauses;
use self::options::{BESIDE_HEAP, NAME, OPTIONS, Settings, words};
use self::process::{Jvm, Point};
use crate::java_program;
use bigiron_model::clock::Clock;
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::workload::{Options, Window};
use bigiron_probe::symbols;
pub use bigiron_service::java::install;
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, NightlyRow, OptionDef, Progress, Running, Workload,
    WorkloadResult, limits,
};

/// The primary metric's name.
const PRIMARY: &str = "operations";
/// The JVM's log.
const STORAGE: u64 = 16 << 20;
/// The CPUs of the largest of the usual guests, up to which all have the same memory.
const USUAL_CPUS: u32 = 4;
/// Threads of a JVM on a CPU, and besides: collectors, compilers, timers.
const THREADS: (usize, usize) = (4, 24);

/// The workload of a JVM.
pub struct JavaBusiness;

impl Workload for JavaBusiness {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "A business in one Java virtual machine: threads, allocation, garbage collection"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const ROWS: &[NightlyRow] =
            &[NightlyRow::PLAIN.quick(&[("operations", "2000"), ("warmup", "2000"), ("data", "1M")])];
        ROWS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Settings::parse(options)?))
    }
}

impl Configured for Settings {
    fn needs(&self) -> Needs {
        let memory_bytes = self.heap(USUAL_CPUS) + BESIDE_HEAP;
        Needs { storage_bytes: Some(STORAGE), memory_bytes, modules: Vec::new() }
    }

    fn memory_on(&self, cpus: u32, _: Clock) -> Option<u64> {
        Some(self.heap(cpus) + BESIDE_HEAP)
    }

    fn images(&self, cx: &ImageContext<'_>) -> Result<Images> {
        java_program::images(cx)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        let def = |name: String, unit, better, kind, summary: String| MetricDef {
            primary: name == PRIMARY,
            name,
            unit,
            better,
            kind,
            summary,
        };
        let per_second = |name: String, summary: String| {
            def(name, Unit::OperationsPerSecond, Better::Higher, Kind::Throughput, summary)
        };
        let mut metrics =
            vec![per_second(PRIMARY.to_owned(), "Mean over N to 2N warehouses of transactions per second".to_owned())];
        let named = self.warehouses.map_or(0, |n| 2 * n);
        metrics.extend(
            (1..=named).map(|n| per_second(of_point(n), format!("Transactions per second with {n} warehouses"))),
        );
        let lower =
            |name: &str, unit, kind, summary: &str| def(name.to_owned(), unit, Better::Lower, kind, summary.to_owned());
        metrics.extend([
            lower("gc-pause-p50", Unit::Ns, Kind::Usage, "Median of the pauses of collections, from the JVM's log"),
            lower("gc-pause-p99", Unit::Ns, Kind::Usage, "Their 99th percentile"),
            lower("gc-pause-total", Unit::Ns, Kind::Usage, "Their sum in all windows"),
            lower(
                "safepoint-wait",
                Unit::Ns,
                Kind::Usage,
                "Time until all threads had stopped, of all safepoints together",
            ),
            def(
                "allocation-rate".to_owned(),
                Unit::BytesPerSecond,
                Better::Higher,
                Kind::Throughput,
                "Bytes that the warehouses' threads allocated per second of the windows".to_owned(),
            ),
            lower(
                "heap-live",
                Unit::Bytes,
                Kind::Amount,
                "Heap in use after a collection at the end of the last point",
            ),
            lower("max-rss", Unit::Bytes, Kind::Amount, "The largest resident memory of the JVM"),
            lower(
                "switches-per-1000-operations",
                Unit::named("switches"),
                Kind::Usage,
                "Context switches of all the JVM's threads per 1,000 transactions",
            ),
        ]);
        metrics
    }

    fn silence(&self) -> Duration {
        Settings::silence(self)
    }

    fn guest_silence(&self) -> Duration {
        Settings::guest_silence(self)
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let warehouses = self.warehouses(cx.cpus);
        limits::check(2 * warehouses as usize + THREADS.0 * cx.cpus as usize + THREADS.1)?;
        let programs = java_program::programs(cx)?;
        Ok(Box::new(Trial { settings: self, warehouses, jvm: Some(Jvm::start(self, &programs, cx)?) }))
    }
}

fn of_point(warehouses: u32) -> String {
    format!("{PRIMARY}-{warehouses}")
}

/// A trial with its JVM, which ends with it.
struct Trial<'a> {
    settings: &'a Settings,
    /// N.
    warehouses: u32,
    /// `None` once it has ended.
    jvm: Option<Jvm>,
}

impl Running for Trial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let mut jvm = self.jvm.take().context("The JVM has ended")?;
        let points = self.points(&mut jvm, cx);
        // While it is still visible.
        let mut programs = symbols::running();
        // Also if a point failed.
        let kept = jvm.keep_log();
        let points = points?;
        kept?;
        let version = jvm.program.version();
        let rss = points.iter().filter_map(|point| point.memory).max().unwrap_or_else(|| jvm.program.max_rss());
        programs.extend(jvm.program.end()?);
        let mut outcome = self.outcome(&points, rss)?;
        outcome.facts.insert("jvm".to_owned(), version);
        outcome.facts.insert("heap-bytes".to_owned(), self.settings.heap(cx.cpus).to_string());
        outcome.programs = programs;
        Ok(outcome)
    }

    fn verify(self: Box<Self>, _: &Context<'_>) -> Result<()> {
        // The program checks its data after each point; a point with wrong data has failed.
        Ok(())
    }
}

impl Trial<'_> {
    /// Measures one point after the other.
    fn points(&self, jvm: &mut Jvm, cx: &Context<'_>) -> Result<Vec<Point>> {
        let of = 4 * self.warehouses;
        let mut points = Vec::new();
        for n in 0..2 * self.warehouses {
            (cx.progress)(Progress { step: "warm-up", done: 2 * n, of });
            jvm.load()?;
            (cx.progress)(Progress { step: "window", done: 2 * n + 1, of });
            points.push(jvm.measure()?);
        }
        Ok(points)
    }

    fn outcome(&self, points: &[Point], rss: u64) -> Result<WorkloadResult> {
        let (mut outcome, mut pauses) = (WorkloadResult::default(), Pauses::default());
        let mut sum = 0.0;
        let (mut curve, mut compiled) = (Vec::new(), Vec::new());
        for point in points {
            let n = point.warehouses;
            ensure!(point.ns > 0, "The clock did not advance while {n} warehouses worked");
            let rate = point.operations as f64 * 1e9 / point.ns as f64;
            let scored = n >= self.warehouses;
            sum += if scored { rate } else { 0.0 };
            curve.push(format!("{n}={rate:.0}"));
            let methods = if point.compiled == 1 { "method" } else { "methods" };
            compiled.push(format!("{n}: {} {methods}", point.compiled));
            let named = self.settings.warehouses.map(|_| of_point(n));
            outcome.values.extend(named.clone().map(|name| (name, rate)));
            let metrics = named.into_iter().chain(scored.then(|| PRIMARY.to_owned())).collect();
            outcome.windows.push(Window { metrics, operations: point.operations, ns: point.ns });
            pauses.collections.extend(&point.pauses.collections);
            pauses.reaching += point.pauses.reaching;
        }
        let total = |of: fn(&Point) -> u64| points.iter().map(of).sum::<u64>();
        let operations = total(|point| point.operations);
        let live = points.last().map_or(0, |point| point.live);
        // Later points also depend on the order in which their threads work.
        let digest = points.first().map_or_else(String::new, |point| point.digest.clone());
        let values = [
            (PRIMARY, sum / f64::from(self.warehouses + 1)),
            ("gc-pause-p50", pauses.quantile(0.5) as f64),
            ("gc-pause-p99", pauses.quantile(0.99) as f64),
            ("gc-pause-total", pauses.collections.iter().sum::<u64>() as f64),
            ("safepoint-wait", pauses.reaching as f64),
            ("allocation-rate", total(|point| point.allocated) as f64 * 1e9 / total(|point| point.ns) as f64),
            ("heap-live", live as f64),
            ("max-rss", rss as f64),
            ("switches-per-1000-operations", 1000.0 * total(|point| point.switches) as f64 / operations as f64),
        ];
        outcome.values.extend(values.map(|(name, value)| (name.to_owned(), value)));
        let facts: BTreeMap<&str, String> = BTreeMap::from([
            ("warehouses", self.warehouses.to_string()),
            ("length", words(self.settings.length)),
            ("warm-up", words(self.settings.warmup)),
            ("curve", curve.join(" ")),
            ("compiled-in-windows", compiled.join("; ")),
            ("transactions", operations.to_string()),
            ("allocated-bytes", total(|point| point.allocated).to_string()),
            ("collections", pauses.collections.len().to_string()),
            ("points-checked", points.len().to_string()),
            ("digest", digest),
        ]);
        outcome.facts.extend(facts.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(outcome)
    }
}
