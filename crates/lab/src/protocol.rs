//! The protocol between host and guest: a job file in the initramfs one way, NDJSON events over the debug console the other. Both
//! ends are the same executable, so the version serves only to detect a mix-up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lever::Fault;
use crate::lever::apply::Placement;
use crate::lever::vm::MachineShape;
use bigiron_model::clock::Clock;
use bigiron_model::counters::TrialCounters;
use bigiron_model::environment::Environment;
use bigiron_model::purpose::Purpose;
use bigiron_model::record::FileChange;
use bigiron_model::record::{Complaint, Failure, GuestIdentity};
use bigiron_model::setting::Setting;
use bigiron_model::storage::Spindle;
use bigiron_model::waits::{LockStat, Traced, WindowWaits};
use bigiron_model::workload::Program;
use bigiron_model::workload::{Options, Window};
use bigiron_probe::sampled::profile::Profiles;

/// Version of the job and of the events.
pub const PROTOCOL: u32 = 3;

/// Path of the job in the guest.
pub const JOB_PATH: &str = "/job.json";

/// I/O port of QEMU's isa-debugcon: every byte written there is appended to a file on the host.
pub const EVENT_PORT: u16 = 0xe9;

/// I/O port of a second isa-debugcon, for acknowledgements in a guest that will lose its power.
pub const ACK_PORT: u16 = 0xea;

/// I/O port of QEMU's isa-debug-exit: writing `v` ends QEMU with status `2v + 1`.
pub const EXIT_PORT: u16 = 0xf4;

/// Written to [`EXIT_PORT`] after the agent's last event: tells an orderly end from a crash or a power-off.
pub const EXIT_DONE: u8 = 0x21;

/// QEMU's exit status after [`EXIT_DONE`].
pub const EXIT_DONE_STATUS: i32 = EXIT_DONE as i32 * 2 + 1;

/// One trial's work, for the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestJob {
    pub protocol: u32,
    pub clock: Clock,
    /// Idle seconds of the guest's clock before the first workload, in which background work after boot ends.
    pub settle_seconds: u32,
    /// Iterations of a user-space loop before the first workload: shifts the phase of the timer tick.
    pub jitter: u32,
    pub seed: u64,
    /// Modules to load, in order.
    pub modules: Vec<Module>,
    /// Words of levers on the command line, read back before anything is measured.
    pub cmdline: Vec<String>,
    pub fault: Option<Fault>,
    /// Only if the machine will lose its power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// Levers of the running kernel, set once the devices exist and read back before anything is measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levers: Vec<Setting>,
    /// Modules for these levers, loaded after the devices are created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lever_modules: Vec<Module>,
    /// Options with which the workloads' disks are mounted, as typed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mount: String,
    /// Where the workloads' processes run, according to the levers.
    #[serde(default, skip_serializing_if = "Placement::is_anywhere")]
    pub placement: Placement,
    /// The machine shape that the kernel must see.
    #[serde(default, skip_serializing_if = "MachineShape::is_plain")]
    pub shape: MachineShape,
    /// Disks that the guest creates in addition to those with file systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_disks: Option<RawDisks>,
    /// Whether to find out the file system's features, after the last workload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub features: bool,
    /// Whether to note the environment, after the last workload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub environment: bool,
    pub purpose: Purpose,
    /// Whether others use the machine, so that the trial's own processes must be counted separately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    pub workloads: Vec<WorkloadJob>,
}

impl GuestJob {
    /// An empty job whose results will be judged, without changes to the machine.
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            protocol: PROTOCOL,
            clock,
            settle_seconds: 0,
            jitter: 0,
            seed,
            modules: Vec::new(),
            cmdline: Vec::new(),
            fault: None,
            crash: None,
            levers: Vec::new(),
            lever_modules: Vec::new(),
            mount: String::new(),
            placement: Placement::default(),
            shape: MachineShape::default(),
            raw_disks: None,
            features: false,
            environment: false,
            purpose: Purpose::Judge,
            shared: false,
            workloads: Vec::new(),
        }
    }

    /// Whether QEMU counts the trial's instructions: the symbols to attribute them are sent at the end.
    pub fn is_counted(&self) -> bool {
        self.clock.is_exact() && self.purpose == Purpose::Profile
    }

    /// Whether the guest or this machine records something while the trial runs: marks are then kept with their times and sent at
    /// the end.
    pub fn is_recorded(&self) -> bool {
        match self.clock {
            Clock::Exact | Clock::ExactParallel | Clock::Exact1 => self.purpose == Purpose::Locks,
            Clock::Wall | Clock::None => self.purpose != Purpose::Judge,
        }
    }
}

/// A power cycle of a machine: from a boot to the next loss of power.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// The acknowledgements of earlier cycles, a path in the initramfs; `None` in the first cycle.
    pub acknowledged: Option<String>,
    /// Whether the cycle ends after the verification of these.
    pub proves_only: bool,
}

/// SCSI disks without a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawDisks {
    pub count: u32,
    /// Size of each disk.
    pub size_mib: u64,
    pub block_bytes: u32,
    /// `scsi_debug` with its parameters, and its dependencies.
    pub modules: Vec<Module>,
}

impl RawDisks {
    /// Bytes of each disk.
    pub fn bytes(&self) -> u64 {
        self.size_mib << 20
    }
}

/// A kernel module in the initramfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    pub path: String,
    pub parameters: String,
    /// Loading may fail: a variant for CPU features that the machine may lack.
    pub optional: bool,
}

/// A workload to run, in the order of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadJob {
    pub name: String,
    pub options: Options,
    pub storage: Option<Storage>,
    /// Trees mounted read-only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<PmemFileSystem>,
    /// The name of the image that the storage starts from, unless it starts empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<String>,
    /// The foundation in the plan.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foundation: BTreeMap<String, String>,
}

/// A read-only file system on persistent memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmemFileSystem {
    pub name: String,
    /// Slot of the pmem device.
    pub pmem: usize,
    pub filesystem: String,
}

/// A workload's file system and the device below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    pub device: Device,
    pub filesystem: String,
    /// The empty file system as packed extents, a path in the initramfs; `None` if the device already contains it.
    pub image: Option<String>,
    /// The file system on a pmem device, to be copied to `device`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Copy>,
    /// Files to copy to the empty file system after mounting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<PmemFileSystem>,
    /// The disk of its journal, if separate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalDisk>,
}

/// A disk with the journal of a file system on another disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalDisk {
    /// The name of the requested storage.
    pub storage: String,
    pub device: Device,
    /// The empty journal as packed extents, a path in the initramfs; `None` if the device already contains it.
    pub image: Option<String>,
}

/// Bytes to copy from persistent memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Slot of the pmem device.
    pub pmem: usize,
    /// (offset, length) of the parts that are not holes.
    pub extents: Vec<(u64, u64)>,
}

/// A block device in the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Device {
    /// null_blk with memory backing, created through configfs; each request completes after `completion_ns` by a timer.
    NullBlk { size_mib: u64, completion_ns: u64, queues: u32 },
    /// Network block device number `index`, served from the guest's memory with the timing of a spinning disk.
    Rotational { index: usize, size_mib: u64, spindle: Spindle },
    /// Persistent memory number `index`: a file of the host, private to the guest, without a model of completion time.
    Pmem { index: usize },
    /// brd: RAM disk number `index`, without a model of completion time.
    Ram { index: usize },
    /// A virtio disk of the VM with this serial number.
    Virtio { serial: String },
}

/// The guest's events, in order: `hello`, `ready`, `quiet`, then per workload `step`…, `result` or `failed`, last `done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum GuestEvent {
    /// The agent runs: the kernel is up.
    Hello { protocol: u32, guest: GuestIdentity },
    /// What levers changed in the running kernel.
    Applied { changes: Vec<FileChange> },
    /// Modules are loaded, devices created, levers read back: the guest now idles.
    Ready,
    /// The kernel's own work after boot is over: the workloads start.
    Quiet { clocksource: String },
    /// A step of a workload begins.
    Step { workload: String, step: String, done: u32, of: u32 },
    /// A workload's values, by metric, and its facts.
    Result { workload: String, values: Vec<(String, f64)>, facts: Vec<(String, String)> },
    /// The windows that the workload has marked, in order.
    Windows { workload: String, windows: Vec<Window> },
    /// The counters of all windows of the trial.
    Counters { counters: TrialCounters },
    /// A part of the marks: their numbers and times, in nanoseconds of `CLOCK_MONOTONIC`.
    Marks { marks: Vec<(u8, u64)> },
    /// The waits by window, in order, on this many CPUs.
    Waits { cpus: u32, traced: Traced, windows: Vec<WindowWaits> },
    /// The samples, or why there are none.
    Samples { taken: Result<Profiles, String> },
    /// The kernel's own account of its locks while a workload ran.
    LockStat { stat: LockStat },
    /// Programs that ran in the windows.
    Programs { programs: Vec<Program> },
    /// The kernel's functions: a part of the lines of [`bigiron_probe::symbols::compact`].
    Symbols { text: String },
    /// The file system's features, by [`bigiron_probe::filesystem`]'s names.
    Features { found: Vec<(String, String)> },
    /// What the machine and the kernel are like.
    Environment { facts: Environment },
    /// Everything acknowledged before the power loss is there; the facts say what was checked.
    Proved { workload: String, facts: Vec<(String, String)> },
    /// The trial's failure, as seen from inside.
    Failed { failure: Failure, message: String },
    /// bigiron itself failed in this guest (a module that does not load, a lever that did not take): this says nothing about
    /// performance, and the next slot would fail too.
    Unfit { message: String },
    /// Relevant lines of the kernel's log.
    Complaints { lines: Vec<Complaint> },
    /// A file that a workload left for keeping; only its end if it is long.
    Artifact { name: String, text: String },
    /// The last event.
    Done,
}

/// Characters of a malformed line that are shown.
const SHOWN: usize = 200;

impl GuestEvent {
    /// Parses the event on a line.
    ///
    /// # Errors
    /// If there is none; the message shows the beginning of the line.
    pub fn of_line(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|_| String::from_utf8_lossy(line).escape_debug().take(SHOWN).collect())
    }
}
