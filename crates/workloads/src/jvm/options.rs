//! The options of `jvm`, as text and as read.

use std::time::Duration;

use crate::java_program::{flag, options};
use bigiron_model::clock::Clock;
use bigiron_model::size::{parse_bytes, print_bytes};
use bigiron_model::workload::Options;
use bigiron_workload::run_control::RunLength;
use bigiron_workload::silence::EMULATED_SECOND;
use bigiron_workload::units::print_duration;
use bigiron_workload::{ByClock, OptionDef, OptionReader, choice, option, words_of};

pub const NAME: &str = "jvm";

pub const OPTIONS: &[OptionDef] = &[
    option(
        "warehouses",
        "auto",
        "N, the warehouses that the machine is expected to be busiest with: 1, 2, … 2N are measured; `auto`: its CPUs",
    ),
    option(
        "operations",
        "auto",
        "Measured operations of each warehouse, or a time such as `30s`; `auto`: 10s on the wall clock, else 10000",
    ),
    option(
        "warmup",
        "auto",
        "Operations of each warehouse, or a time, before them; `auto`: 5s on the wall clock, else 30000",
    ),
    option("data", "auto", "Live data of each warehouse; `auto`: 25M on the wall clock, else 4M"),
    choice("collector", &["serial", "parallel", "g1", "zgc"], "The garbage collector"),
    option(
        "heap",
        "auto",
        "Size of the heap, at least the live data at 2N; `auto`: 32M and twice that, twice as much for `zgc`",
    ),
    choice("thp", &["off", "on"], "Whether the JVM asks for transparent huge pages (`-XX:+UseTransparentHugePages`)"),
    choice("large-pages", &["off", "on"], "Whether heap and code are in reserved huge pages (`-XX:+UseLargePages`)"),
    option("compiler-threads", "auto", "Threads of the compilers, 2 to 64; `auto`: the JVM's own choice"),
];

/// The program's numbers for each byte of a warehouse's live data, measured: 20,000 items and 3,000 customers of each district make 17 MB.
const BYTES_OF_ITEM: u64 = 850;
const BYTES_OF_CUSTOMER: u64 = 5667;
/// Operations after which little is left to compile, measured.
const WARM: u64 = 30_000;
/// Memory of a JVM besides its heap: classes, code, the compilers, stacks.
pub const BESIDE_HEAP: u64 = 192 << 20;
/// Milliseconds of CPU time that an operation takes at most: 0.15 were measured where the machine is emulated and methods are still compiled.
const OPERATION_MS: u64 = 1;
/// Milliseconds for a MiB of data when it is loaded: 13 were measured, and emulation takes up to 20 times as long.
const LOAD_MS: u64 = 250;
const MOST_WAREHOUSES: u32 = 256;
/// What the JVM logs: collections and safepoints; whether it uses huge pages, and (`coops`) where it could not reserve them; each compiled method.
const LOGGED: &str = "gc,gc+init,gc+phases,safepoint,gc+heap+coops=debug,jit+compilation=debug";
/// The largest heap with which the JVM uses 32-bit references.
const MOST_HEAP: u64 = 1 << 40;

/// The garbage collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    Serial,
    Parallel,
    G1,
    Z,
}

words_of!(Collector: "serial" => Serial, "parallel" => Parallel, "g1" => G1, "zgc" => Z);

/// The options as read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// N; `None`: the machine's CPUs.
    pub warehouses: Option<u32>,
    pub length: RunLength,
    pub warmup: RunLength,
    /// Bytes of each warehouse.
    pub data: u64,
    pub collector: Collector,
    heap: Option<u64>,
    pub thp: bool,
    pub large_pages: bool,
    compiler_threads: Option<u32>,
    /// Whether code is compiled beside the program that needs it: where time is instructions, the program waits for it.
    background: bool,
}

impl Settings {
    /// Reads complete options.
    ///
    /// # Errors
    /// The fault, and what would be right.
    pub fn parse(options: &Options) -> Result<ByClock<Self>, String> {
        ByClock::read(|clock| Self::on(options, clock))
    }

    fn on(options: &Options, clock: Clock) -> Result<Self, String> {
        let read = OptionReader { workload: NAME, definitions: OPTIONS, options };
        let wall = clock == Clock::Wall;
        let is_on = |name| read.text(name) == "on";
        // `auto`, or a number within bounds.
        let number = |name: &str, least: u32, most: u32| match read.text(name) {
            "auto" => Ok(None),
            text => match text.parse().ok().filter(|n| (least..=most).contains(n)) {
                Some(n) => Ok(Some(n)),
                None => Err(read.wrong(name, &format!("{least} to {most}, or `auto`"))),
            },
        };
        let bytes = |name: &str, least: u64, most: u64, unit: &str| match read.text(name) {
            "auto" => Ok(None),
            text => match parse_bytes(text).ok().filter(|n| (least..=most).contains(n)) {
                Some(n) => Ok(Some(n)),
                None => Err(read.wrong(name, &format!("{unit}, or `auto`"))),
            },
        };
        let length = |name: &str, seconds: u64, operations: u64| match RunLength::parse(read.text(name)) {
            Some(None) if wall => Ok(RunLength::Time(Duration::from_secs(seconds))),
            Some(None) => Ok(RunLength::Operations(operations)),
            Some(Some(length)) => Ok(length),
            None => Err(read.wrong(name, "a number of operations, a time such as `30s`, or `auto`")),
        };
        let data = bytes("data", 1 << 20, 1 << 30, "an amount from `1M` to `1G`")?;
        let settings = Self {
            warehouses: number("warehouses", 1, MOST_WAREHOUSES / 2)?,
            length: length("operations", 10, 10_000)?,
            warmup: length("warmup", 5, WARM)?,
            data: data.unwrap_or(if wall { 25 << 20 } else { 4 << 20 }),
            collector: read.word("collector").ok_or_else(|| read.wrong("collector", "serial, parallel, g1 or zgc"))?,
            heap: bytes("heap", 16 << 20, MOST_HEAP, "an amount from `16M` to `1T`")?,
            thp: is_on("thp"),
            large_pages: is_on("large-pages"),
            compiler_threads: number("compiler-threads", 2, 64)?,
            background: wall,
        };
        if matches!(settings.length, RunLength::Operations(0) | RunLength::Time(Duration::ZERO)) {
            return Err(read.wrong("operations", "a number of operations above 0, a time such as `30s`, or `auto`"));
        }
        // If the number of warehouses is not known yet, N is at least 1. `auto` data are not checked: they differ by clock.
        let least = 2 * u64::from(settings.warehouses(1)) * data.unwrap_or(0);
        if settings.heap.is_some_and(|heap| heap < least) {
            let right = format!("at least `{}` (2N times `{NAME}.data`), or `auto`", print_bytes(least));
            return Err(read.wrong("heap", &right));
        }
        if settings.thp && settings.large_pages {
            return Err(format!("`{NAME}.thp` and `{NAME}.large-pages` exclude each other; omit one"));
        }
        Ok(settings)
    }

    /// N on a machine.
    pub fn warehouses(&self, cpus: u32) -> u32 {
        self.warehouses.unwrap_or(cpus).clamp(1, MOST_WAREHOUSES / 2)
    }

    /// Bytes of the heap on a machine.
    pub fn heap(&self, cpus: u32) -> u64 {
        let live = 2 * u64::from(self.warehouses(cpus)) * self.data;
        let factor = if self.collector == Collector::Z { 2 } else { 1 };
        self.heap.unwrap_or(factor * ((32 << 20) + 2 * live))
    }

    /// The arguments of `java`: those of the JVM, whose log of collections goes to `log`, and those of the program.
    pub fn arguments(&self, cpus: u32, seed: u64, jar: &str, log: &str) -> Vec<String> {
        let collector = match self.collector {
            Collector::Serial => "Serial",
            Collector::Parallel => "Parallel",
            Collector::G1 => "G1",
            Collector::Z => "Z",
        };
        let mut arguments = options(self.heap(cpus), collector, self.background);
        // Transparent huge pages are a kind of large pages: `-UseLargePages` would switch them off again.
        arguments.extend([
            flag(self.thp, "UseTransparentHugePages"),
            flag(self.thp || self.large_pages, "UseLargePages"),
            format!("-Xlog:{LOGGED}:file={log}:none:filecount=0"),
        ]);
        arguments.extend(self.compiler_threads.map(|n| format!("-XX:CICompilerCount={n}")));
        arguments.extend(["-cp", jar, "bigiron.Main", "steps=stdin"].map(str::to_owned));
        let points: Vec<String> = (1..=2 * self.warehouses(cpus)).map(|n| n.to_string()).collect();
        arguments.extend([
            format!("points={}", points.join(",")),
            format!("warmup={}", of_program(self.warmup)),
            format!("length={}", of_program(self.length)),
            format!("items={}", self.data / BYTES_OF_ITEM),
            format!("customers={}", self.data / BYTES_OF_CUSTOMER),
            format!("seed={seed}"),
        ]);
        arguments
    }

    /// The longest time without a sign of life.
    pub fn silence(&self) -> Duration {
        self.longest_step(1)
    }

    /// The same in CPU time of a guest, which may be emulated.
    pub fn guest_silence(&self) -> Duration {
        self.longest_step(EMULATED_SECOND)
    }

    /// A point's load with its warm-up, or its window, if a second of a length takes `second` CPU seconds. Each of up to 2N warehouses does the work; an
    /// N that is the number of CPUs counts as 1, because trials may take this time on each CPU.
    fn longest_step(&self, second: u32) -> Duration {
        let most = 2 * u64::from(self.warehouses.unwrap_or(1));
        let step = |length| match length {
            RunLength::Operations(n) => Duration::from_millis(OPERATION_MS.saturating_mul(n).saturating_mul(most)),
            RunLength::Time(time) => time.saturating_mul(second),
        };
        let load = Duration::from_millis(LOAD_MS * (self.data >> 20) * most);
        load.saturating_add(step(self.warmup)).max(step(self.length))
    }
}

/// A length as the program reads it.
fn of_program(length: RunLength) -> String {
    match length {
        RunLength::Operations(n) => n.to_string(),
        RunLength::Time(time) => format!("{}ns", time.as_nanos()),
    }
}

/// A length for people.
pub fn words(length: RunLength) -> String {
    match length {
        RunLength::Operations(n) => format!("{n} operations"),
        RunLength::Time(time) => print_duration(time),
    }
}
