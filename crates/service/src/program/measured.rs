//! What is measured of every run, whatever the command says of itself.
//!
//! Invariant: every name is declared with the workload and delivered by every run.

use serde::{Deserialize, Serialize};

use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_sys::launch::Usage;

/// One run as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// From before the process is made until its end is known.
    pub wall_ns: u64,
    pub ended: RunEnd,
    /// CPU time.
    pub user_ns: u64,
    pub system_ns: u64,
    /// Of any one of its processes.
    pub max_rss_bytes: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// From and to block devices.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Of the control group: all processes together, page cache included.
    pub peak_bytes: Option<u64>,
    /// Where CPU time and block I/O come from.
    pub accounting: String,
    /// Processes that it had left running and that were killed.
    pub left: u32,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunEnd {
    Status(i32),
    Signal(i32),
    /// It took longer than it may, and was killed.
    Limit,
}

/// What the control group of a run counted; `None` where its controller is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// User and system.
    pub cpu_ns: Option<(u64, u64)>,
    /// Read and written.
    pub io_bytes: Option<(u64, u64)>,
    pub peak_bytes: Option<u64>,
}

impl MeasuredRun {
    /// Joins what was seen of the processes with what their control group counted, which knows also of those that nobody waited for.
    pub fn new(wall_ns: u64, ended: RunEnd, usage: Usage, counted: Counted, left: u32) -> Self {
        let (user_ns, system_ns) = counted.cpu_ns.unwrap_or((usage.user_ns, usage.system_ns));
        let (read_bytes, written_bytes) = counted.io_bytes.unwrap_or((usage.read_bytes, usage.written_bytes));
        let accounting = match (counted.cpu_ns, counted.io_bytes) {
            (Some(_), Some(_)) => "CPU time and block I/O of the control group, all else of the processes (wait4)",
            (Some(_), None) => "CPU time of the control group, all else of the processes (wait4)",
            (None, _) => "of the processes (wait4)",
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

/// Name, unit, kind, what it is, and its value.
const ALL: [(&str, Unit, Kind, &str, Value); 10] = [
    (WALL, Unit::Ns, Kind::Cost, "From before the process is made until its end is known", |r| r.wall_ns),
    ("user", Unit::Ns, Kind::Usage, "CPU time in user mode, of all its processes", |r| r.user_ns),
    ("system", Unit::Ns, Kind::Usage, "CPU time in the kernel, of all its processes", |r| r.system_ns),
    ("max-rss", Unit::Bytes, Kind::Amount, "The most memory that any one of its processes had resident", |r| {
        r.max_rss_bytes
    }),
    ("voluntary-switches", Unit::Count, Kind::Usage, "Context switches of a process that waited", |r| {
        r.voluntary_switches
    }),
    ("involuntary-switches", Unit::Count, Kind::Usage, "Context switches of a process that could have gone on", |r| {
        r.involuntary_switches
    }),
    ("minor-faults", Unit::Count, Kind::Usage, "Page faults without I/O", |r| r.minor_faults),
    ("major-faults", Unit::Count, Kind::Usage, "Page faults with I/O", |r| r.major_faults),
    ("block-read", Unit::Bytes, Kind::Usage, "Read from block devices", |r| r.read_bytes),
    ("block-write", Unit::Bytes, Kind::Usage, "Written to block devices, or to the page cache for them", |r| {
        r.written_bytes
    }),
];

/// Names that a declared metric cannot have.
pub const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut i = 0;
    while i < ALL.len() {
        names[i] = ALL[i].0;
        i += 1;
    }
    names
};

/// The declarations; the wall time is primary if nothing else is.
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
