//! The measurements of every run, independent of the command's own output.
//!
//! Invariant: the workload declares every name, and every run delivers it.

use serde::{Deserialize, Serialize};

use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_sys::launch::Usage;

/// The measurements of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// From before the process is created until its end is known.
    pub wall_ns: u64,
    pub ended: RunEnd,
    /// CPU time.
    pub user_ns: u64,
    pub system_ns: u64,
    /// The largest of any one process.
    pub max_rss_bytes: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Bytes read from and written to block devices.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// From the control group: all processes together, including page cache.
    pub peak_bytes: Option<u64>,
    /// The source of CPU time and block I/O.
    pub accounting: String,
    /// Processes that it left running and that were killed.
    pub left: u32,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunEnd {
    Status(i32),
    Signal(i32),
    /// It exceeded its time limit and was killed.
    Limit,
}

/// The counts of a run's control group; `None` where its controller is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// User and system.
    pub cpu_ns: Option<(u64, u64)>,
    /// Bytes read and written.
    pub io_bytes: Option<(u64, u64)>,
    pub peak_bytes: Option<u64>,
}

impl MeasuredRun {
    /// Combines the processes' resource use with the counts of their control group, which also includes processes that no parent waited for.
    pub fn new(wall_ns: u64, ended: RunEnd, usage: Usage, counted: Counted, left: u32) -> Self {
        let (user_ns, system_ns) = counted.cpu_ns.unwrap_or((usage.user_ns, usage.system_ns));
        let (read_bytes, written_bytes) = counted.io_bytes.unwrap_or((usage.read_bytes, usage.written_bytes));
        let accounting = match (counted.cpu_ns, counted.io_bytes) {
            (Some(_), Some(_)) => {
                "CPU time and block I/O from the control group, everything else from the processes (wait4)"
            }
            (Some(_), None) => "CPU time from the control group, everything else from the processes (wait4)",
            (None, _) => "from the processes (wait4)",
        };
        Self {
            wall_ns,
            ended,
            user_ns,
            system_ns,
            max_rss_bytes: usage.max_rss_bytes,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
            voluntary_switches: usage.voluntary_switches,
            involuntary_switches: usage.involuntary_switches,
            read_bytes,
            written_bytes,
            peak_bytes: counted.peak_bytes,
            accounting: accounting.to_owned(),
            left,
        }
    }
}

type Value = fn(&MeasuredRun) -> u64;

pub const WALL: &str = "wall";

/// Name, unit, kind, summary, and value.
const ALL: [(&str, Unit, Kind, &str, Value); 10] = [
    (WALL, Unit::Ns, Kind::Cost, "From before the process is created until its end is known", |r| r.wall_ns),
    ("user", Unit::Ns, Kind::Usage, "CPU time in user mode, of all its processes", |r| r.user_ns),
    ("system", Unit::Ns, Kind::Usage, "CPU time in the kernel, of all its processes", |r| r.system_ns),
    ("max-rss", Unit::Bytes, Kind::Amount, "The largest resident memory of any of its processes", |r| r.max_rss_bytes),
    ("voluntary-switches", Unit::Count, Kind::Usage, "Context switches of processes that waited", |r| {
        r.voluntary_switches
    }),
    (
        "involuntary-switches",
        Unit::Count,
        Kind::Usage,
        "Context switches of processes that could have continued",
        |r| r.involuntary_switches,
    ),
    ("minor-faults", Unit::Count, Kind::Usage, "Page faults without I/O", |r| r.minor_faults),
    ("major-faults", Unit::Count, Kind::Usage, "Page faults with I/O", |r| r.major_faults),
    ("block-read", Unit::Bytes, Kind::Usage, "Read from block devices", |r| r.read_bytes),
    ("block-write", Unit::Bytes, Kind::Usage, "Written to block devices, or to the page cache for them", |r| {
        r.written_bytes
    }),
];

/// Names that user-declared metrics cannot have.
pub const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut i = 0;
    while i < ALL.len() {
        names[i] = ALL[i].0;
        i += 1;
    }
    names
};

/// The declarations; the wall time is primary if no other metric is.
pub fn defs(primary: bool) -> impl Iterator<Item = MetricDef> {
    ALL.iter().map(move |(name, unit, kind, summary, _)| MetricDef {
        name: (*name).to_owned(),
        unit: *unit,
        better: Better::Lower,
        kind: *kind,
        primary: primary && *name == WALL,
        summary: (*summary).to_owned(),
    })
}

/// Name and value of everything measured of a run, in the base unit.
pub fn values(run: &MeasuredRun) -> impl Iterator<Item = (&'static str, f64)> {
    ALL.iter().map(|(name, .., value)| (*name, value(run) as f64))
}
