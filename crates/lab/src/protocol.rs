//! What host and guest say to each other: a job file in the initramfs one way, NDJSON events over the debug console the other.
//! Both ends are the same executable, so the format has a version only to make a mix-up loud.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lever::Fault;
use crate::lever::apply::Placement;
use crate::lever::vm::MachineShape;
use bigiron_model::clock::Clock;
use bigiron_model::counters::TrialCounters;
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
pub const PROTOCOL: u32 = 2;

/// Where the job lies in the guest.
pub const JOB_PATH: &str = "/job.json";

/// I/O port of QEMU's isa-debugcon: every byte written there is appended to a file on the host.
pub const EVENT_PORT: u16 = 0xe9;

/// I/O port of a second isa-debugcon, in a guest that is going to lose its power: what is acknowledged there.
pub const ACK_PORT: u16 = 0xea;

/// I/O port of QEMU's isa-debug-exit: writing `v` ends QEMU with status `2v + 1`.
pub const EXIT_PORT: u16 = 0xf4;

/// Written to [`EXIT_PORT`] when the agent has said everything: tells an orderly end from a crash or a power-off.
pub const EXIT_DONE: u8 = 0x21;

/// QEMU's exit status after [`EXIT_DONE`].
pub const EXIT_DONE_STATUS: i32 = EXIT_DONE as i32 * 2 + 1;

/// One trial's work, as the guest needs to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestJob {
    pub protocol: u32,
    pub clock: Clock,
    /// Seconds of the guest's clock to idle before the first workload: background work after boot ends there.
    pub settle_seconds: u32,
    /// Iterations of a user loop before the first workload: shifts the phase of the timer tick.
    pub jitter: u32,
    pub seed: u64,
    /// Modules to load, in order.
    pub modules: Vec<Module>,
    /// Command-line words that levers put there: read back before anything is measured.
    pub cmdline: Vec<String>,
    pub fault: Option<Fault>,
    /// Only where the machine is going to lose its power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// Levers of the running kernel, set when the devices are there and read back before anything is measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levers: Vec<Setting>,
    /// Modules that they need, loaded after the devices were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lever_modules: Vec<Module>,
    /// Options with which the workloads' disks are mounted, as typed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mount: String,
    /// Where the workloads' processes are to be: what levers came to.
    #[serde(default, skip_serializing_if = "Placement::is_anywhere")]
    pub placement: Placement,
    /// What the kernel has to see.
    #[serde(default, skip_serializing_if = "MachineShape::is_plain")]
    pub shape: MachineShape,
    /// Disks that the guest makes besides those with file systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_disks: Option<RawDisks>,
    /// Whether what the file system can do is found out, after the last workload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub features: bool,
    pub purpose: Purpose,
    /// Whether others work on the machine, so that what the trial's own processes do is counted by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    pub workloads: Vec<WorkloadJob>,
}

impl GuestJob {
    /// A job to be judged that runs nothing yet, on a machine as it is.
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
            purpose: Purpose::Judge,
            shared: false,
            workloads: Vec::new(),
        }
    }

    /// Whether QEMU counts the trial's instructions: what they belong to is told at the end.
    pub fn is_counted(&self) -> bool {
        self.clock == Clock::Exact && self.purpose == Purpose::Profile
    }

    /// Whether something is recorded while the trial runs, by the guest or this machine: marks are written down with their times and told at
    /// the end.
    pub fn is_recorded(&self) -> bool {
        match self.clock {
            Clock::Exact => self.purpose == Purpose::Locks,
            Clock::Wall | Clock::None => self.purpose != Purpose::Judge,
        }
    }
}

/// A power cycle of a machine: from a boot to the next loss of power.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// What was acknowledged in the cycles before, a path in the initramfs; `None` in the first one.
    pub acknowledged: Option<String>,
    /// Whether it is over when that has been proved.
    pub proves_only: bool,
}

/// SCSI disks without a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawDisks {
    pub count: u32,
    /// Of each.
    pub size_mib: u64,
    pub block_bytes: u32,
    /// `scsi_debug` with its parameters, and what it needs.
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
    /// It may refuse to load: a variant for CPU features that the machine may lack.
    pub optional: bool,
}

/// A workload to run, in the order of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadJob {
    pub name: String,
    pub options: Options,
    pub storage: Option<Storage>,
    /// Trees that are mounted read-only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<PmemFileSystem>,
    /// The name of the image that the storage starts from, if it does not start empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<String>,
    /// What the plan says that it starts from.
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

/// The file system that a workload gets, and the device below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    pub device: Device,
    pub filesystem: String,
    /// The empty file system as packed extents, a path in the initramfs; `None` if the device comes with it.
    pub image: Option<String>,
    /// The file system as it lies on a pmem device, to be copied onto `device`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Copy>,
    /// Files that are laid onto the empty file system when it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<PmemFileSystem>,
    /// The disk of its journal, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalDisk>,
}

/// A disk that has the journal of a file system on another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalDisk {
    /// The storage that was asked for, by its name.
    pub storage: String,
    pub device: Device,
    /// The empty journal as packed extents, a path in the initramfs; `None` if the device comes with it.
    pub image: Option<String>,
}

/// Bytes to be copied from persistent memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Slot of the pmem device.
    pub pmem: usize,
    /// (offset, length) of what is not a hole.
    pub extents: Vec<(u64, u64)>,
}

/// A block device in the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Device {
    /// null_blk with memory backing, made through configfs; each request completes after `completion_ns` by a timer.
    NullBlk { size_mib: u64, completion_ns: u64, queues: u32 },
    /// Network block device number `index`, served from the guest's memory at the pace of a spinning disk.
    Rotational { index: usize, size_mib: u64, spindle: Spindle },
    /// Persistent memory number `index`: a file of the host, private to the guest, without a model of completion time.
    Pmem { index: usize },
    /// brd: RAM disk number `index`, without a model of completion time.
    Ram { index: usize },
    /// A virtio disk of the VM with this serial number.
    Virtio { serial: String },
}

/// What the guest says, in order: `hello`, `ready`, `quiet`, then per workload `step`…, `result` or `failed`, last `done`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum GuestEvent {
    /// The agent runs: the kernel is up.
    Hello { protocol: u32, guest: GuestIdentity },
    /// What levers changed in the running kernel.
    Applied { changes: Vec<FileChange> },
    /// Modules loaded, devices made, levers read back: the guest idles now.
    Ready,
    /// The kernel's own work after boot is over: the workloads begin.
    Quiet { clocksource: String },
    /// A step of a workload begins.
    Step { workload: String, step: String, done: u32, of: u32 },
    /// A workload's values, by the metrics' names, and its facts.
    Result { workload: String, values: Vec<(String, f64)>, facts: Vec<(String, String)> },
    /// What the workload has marked, in the order of its cuts.
    Windows { workload: String, windows: Vec<Window> },
    /// What was counted in all windows of the trial.
    Counters { counters: TrialCounters },
    /// When what was marked, a part: the marks' numbers and nanoseconds of `CLOCK_MONOTONIC`.
    Marks { marks: Vec<(u8, u64)> },
    /// What was waited for, by window in the order of the cuts, on this many CPUs.
    Waits { cpus: u32, traced: Traced, windows: Vec<WindowWaits> },
    /// What was sampled, or why nothing was.
    Samples { taken: Result<Profiles, String> },
    /// The kernel's own account of its locks while a workload ran.
    LockStat { stat: LockStat },
    /// Programs that ran in the windows.
    Programs { programs: Vec<Program> },
    /// The kernel's functions: a part of `/proc/kallsyms`, whole lines.
    Symbols { text: String },
    /// What the file system can do, by [`bigiron_probe::filesystem`]'s names.
    Features { found: Vec<(String, String)> },
    /// What was acknowledged before the machine lost its power is there; what was looked at.
    Proved { workload: String, facts: Vec<(String, String)> },
    /// The trial's failure, as seen from inside.
    Failed { failure: Failure, message: String },
    /// bigiron itself could not do its part in this guest (a module that does not load, a lever that did not take): nobody's
    /// performance, and no reason to try the next slot.
    Unfit { message: String },
    /// Lines of the kernel's log that matter.
    Complaints { lines: Vec<Complaint> },
    /// What a workload left for keeping: its end, where it is long.
    Artifact { name: String, text: String },
    /// Everything has been said.
    Done,
}

/// Characters of a malformed line that are shown.
const SHOWN: usize = 200;

impl GuestEvent {
    /// The event that a line holds.
    ///
    /// # Errors
    /// It holds none; how the line begins.
    pub fn of_line(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|_| String::from_utf8_lossy(line).escape_debug().take(SHOWN).collect())
    }
}
