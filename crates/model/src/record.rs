//! A record: one trial, as stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counters::TrialCounters;
use super::environment::Environment;
use crate::store::line::LineContent;
use crate::values::Values;

/// Version of the record's format. Format 1 repeated each metric's declaration beside its value.
pub const SCHEMA: u32 = 2;
/// The oldest format that can be read.
pub const OLDEST: u32 = 1;

/// One trial: what ran in a slot, and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub schema: u32,
    /// The slot's number, pair, position and arm (name), as in the plan.
    pub slot: u32,
    pub pair: u32,
    pub position: u32,
    pub arm: String,
    /// The machine on which it ran, if the plan has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// 0 for the first try; a void trial is tried again.
    pub attempt: u32,
    pub outcome: Outcome,
    /// What the guest reported about itself; `None` if it did not get that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestIdentity>,
    pub image_sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// Empty unless the trial completed.
    pub metrics: Values,
    /// Facts from the workloads (`workload.name` → value): recorded, shown, not compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// What the machine and its kernel were like; empty in older records, and if the trial did not get that far.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: Environment,
    /// The kernel's counters in the windows; `None` in older records, and if nothing was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<TrialCounters>,
    /// Kernel files that levers changed, with their content before and after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// Lines of a relevant class in the guest's kernel log (BUG, WARNING, oops, hung task, RCU stall, OOM, I/O error).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<Complaint>,
    /// The cost of the trial on this host; varies between runs and is never compared.
    pub host: HostCost,
    /// Files kept in `artifacts/`, relative to the study's folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
}

impl LineContent for Record {
    const NAME: &'static str = "record";
    const SCHEMA: u32 = SCHEMA;
    const OLDEST: u32 = OLDEST;
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// All workloads ran, delivered every metric and verified their data.
    Completed,
    /// Caused by the guest: evidence, never dropped.
    Failed { failure: Failure, message: String },
    /// Caused by the host (QEMU would not start, disk full, interrupted): says nothing about the arm; the slot is run again.
    Void { cause: String },
}

/// How a guest failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The kernel panicked.
    Panic,
    /// No progress within the allowed CPU time.
    Hang,
    /// The guest ended without a panic and without finishing.
    EarlyExit,
    /// The kernel ran but the agent never reported.
    NoAgent,
    /// The process that ran the workload was killed or crashed.
    AgentDied,
    /// Memory was too little for the workload.
    OutOfMemory,
    /// The file system was too small for the workload.
    NoSpace,
    /// The workload reported an error.
    WorkloadError,
    /// The workload's data were lost or wrong.
    VerifyFailed,
    /// The kernel's own work after boot did not end, so nothing could be measured.
    NeverQuiet,
    /// A file system that bigiron had made for the guest was not mounted.
    MountFailed,
    /// The agent, or the process that ran the workload, sent something that is not an event.
    BadEvent,
    /// It wrote more than it may, to its console or of events.
    Flooded,
}

impl Failure {
    /// As used in "B crashed in 3 of 12 boots".
    pub fn verb(self) -> &'static str {
        match self {
            Failure::Panic => "panicked",
            Failure::Hang => "hung",
            Failure::EarlyExit => "exited early",
            Failure::NoAgent => "never started its agent",
            Failure::AgentDied => "lost its agent",
            Failure::OutOfMemory => "ran out of memory",
            Failure::NoSpace => "ran out of disk space",
            Failure::WorkloadError => "failed its workload",
            Failure::VerifyFailed => "lost or corrupted data",
            Failure::NeverQuiet => "never became quiet",
            Failure::MountFailed => "failed to mount a file system",
            Failure::BadEvent => "sent a malformed event",
            Failure::Flooded => "wrote without end",
        }
    }
}

/// What the guest's kernel reported about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestIdentity {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// /proc/cmdline.
    pub cmdline: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub clocksource: String,
}

/// A relevant line of the guest's kernel log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    /// `bug`, `warning`, `oops`, `hung-task`, `rcu-stall`, `oom`, `io-error`.
    pub class: String,
    pub line: String,
}

/// The cost of a trial for the host, in seconds of its wall and CPU time, not of the guest's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCost {
    /// `kvm` or `tcg`, and QEMU's version.
    pub accelerator: String,
    pub qemu: String,
    /// Under the exact clock: whether QEMU's threads were seen to take turns, which bit-identity requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lockstep: Option<bool>,
    /// Of the whole trial.
    pub wall_s: f64,
    /// QEMU's CPU time.
    pub cpu_s: f64,
    /// QEMU's CPU time until the guest was ready for its first workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_cpu_s: Option<f64>,
    /// bigiron's own share of `wall_s`: before QEMU starts, after it ends, and the agent's set-up inside the guest.
    pub overhead_s: f64,
}

/// The fact that a record contains if its trial was disturbed; its value says by what.
pub const DISTURBED_FACT: &str = "host.disturbed";

/// A file of the kernel before and after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    pub path: String,
    pub before: String,
    pub after: String,
}
