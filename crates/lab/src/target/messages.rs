//! What the orchestrator and the target say to each other: JSON on standard input and output of `bigiron target VERB`.
//!
//! Invariant: both ends are the same executable, so the format needs no versions. Only what stays on the target's disk may come from another one.

use std::collections::BTreeMap;

use bigiron_model::identity::Identity;
use bigiron_model::plan::Plan;
use bigiron_model::purpose::Purpose;
use bigiron_model::setting::Setting;
use serde::{Deserialize, Serialize};

use super::allow::{Allow, Demands};
use crate::host::TrialResult;
use crate::host::foundation::Foundation;

/// Prefix of a line on standard error that reports a verb's progress.
pub const PROGRESS: &str = "bigiron: ";

/// One trial of one study. The name is unique: what ran under it never runs again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialKey {
    pub study: String,
    pub slot: u32,
    pub attempt: u32,
    pub purpose: Purpose,
    /// Counts what was broken off before it gave anything.
    pub again: u32,
}

impl TrialKey {
    /// Its folder's name.
    pub fn name(&self) -> String {
        format!("{}-{}-{}-{}", self.slot, self.attempt, u8::from(self.purpose), self.again)
    }
}

/// What follows a study's name in the name of its dry boot.
pub const DRY: &str = "-dry";

/// A trial to run.
#[derive(Serialize, Deserialize)]
pub struct Job {
    pub key: TrialKey,
    pub plan: Plan,
    pub demands: Demands,
    /// The word that its boot has on the command line; `None` if it runs on the kernel that is running.
    pub nonce: Option<String>,
}

/// Asks for the foundations of a study's arms on the target; newer parts do not replace those in the plan.
#[derive(Serialize, Deserialize)]
pub struct FoundationRequest {
    pub study: String,
    pub plan: Plan,
    pub demands: Demands,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoundationAnswer {
    /// The foundation of each arm.
    Found(Vec<Foundation>),
    /// A part differs from the plan's: its name and both values.
    Changed(String),
}

/// How far a trial is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialState {
    /// It has not been started.
    Unknown,
    Running,
    Done(Box<FinishedOnTarget>),
    /// It ended without a result; whether the machine has rebooted since it was started.
    Died {
        rebooted: bool,
    },
}

/// How far a trial's boot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootState {
    /// It was not asked for.
    Unknown,
    /// It was asked for moments ago, and the machine is still up.
    GoingDown,
    /// It was asked for, and the machine has not rebooted.
    Pending,
    /// The kernel of the trial's boot is running.
    Up,
    /// The machine has rebooted, and something else is running.
    Other,
}

/// The state of the machine and of one trial.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    pub release: String,
    pub version: String,
    pub cmdline: String,
    pub boot: BootState,
    pub trial: TrialState,
    /// What the kernel before this one left in pstore; or what the trial's process wrote before it ended without a result.
    pub crash: Option<String>,
}

/// A trial's result, as kept on the target.
#[derive(Debug, Serialize, Deserialize)]
pub struct FinishedOnTarget {
    pub end: TrialEnd,
    /// Names of its artefacts.
    pub artifacts: Vec<String>,
}

/// What a trial gave; see [`crate::host::HostError`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialEnd {
    Ran(Box<TrialResult>),
    Void(String),
    Fatal(String),
    Cancelled,
}

/// How a kernel is booted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootMethod {
    Kexec,
    Bootctl,
    Grub,
}

impl BootMethod {
    /// In the order of preference.
    pub const ALL: [Self; 3] = [Self::Kexec, Self::Bootctl, Self::Grub];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kexec => "kexec",
            Self::Bootctl => "bootctl set-oneshot",
            Self::Grub => "grub-reboot",
        }
    }
}

/// A kernel to boot once.
#[derive(Debug, Serialize, Deserialize)]
pub struct BootRequest {
    pub key: TrialKey,
    pub demands: Demands,
    pub nonce: String,
    pub method: BootMethod,
    pub kernel: Identity,
    /// The arm's words for the command line.
    pub words: String,
}

/// A process that listens for connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listener {
    pub process: String,
    pub port: u16,
}

/// A boot method, and why it is not used here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodReport {
    pub method: BootMethod,
    pub refused: Option<String>,
}

/// The allow file, as found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllowFile {
    Missing,
    Wrong(String),
    Read(Allow),
}

/// A target, looked at without changing anything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Look {
    pub name: String,
    pub uid: u32,
    pub release: String,
    pub version: String,
    pub cmdline: String,
    pub boot_id: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// bigiron's folder.
    pub folder: String,
    /// The type of the file system that holds it.
    pub filesystem: String,
    pub free_bytes: u64,
    pub root_filesystem: String,
    pub boot_free_bytes: u64,
    /// The running kernel, without and with its image.
    pub running: Identity,
    pub image: Option<Identity>,
    pub methods: Vec<MethodReport>,
    pub allow: AllowFile,
    /// Minutes since midnight, UTC.
    pub minute: u32,
    pub reboots_today: u32,
    pub listening: Vec<Listener>,
    pub users: Vec<String>,
    pub network_mounts: Vec<String>,
    pub on_battery: bool,
    pub watchdogs: Vec<String>,
    /// Settings that a killed bigiron left changed.
    pub left_over: Vec<String>,
    /// The trials that run, and the settings that they have changed.
    pub trials: Vec<String>,
    pub of_trials: Vec<String>,
    /// Kernels that bigiron brought and has not removed.
    pub brought: Vec<String>,
    /// The boot methods that need no dry boot.
    pub proved: Vec<BootMethod>,
    /// The kernel that is to be booted in the end, if another one is running.
    pub to_return: Option<String>,
}

/// Whether levers can be set.
#[derive(Debug, Serialize, Deserialize)]
pub struct LeverQuery {
    pub setting: Setting,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct LeverAnswer {
    pub refused: Option<String>,
    pub is_set: bool,
}

/// The state of a machine as far as bigiron may change it: names and hashes of files, values of settings.
pub type Snapshot = BTreeMap<String, String>;

/// A request for the way back.
#[derive(Debug, Serialize, Deserialize)]
pub struct Return {
    pub study: String,
    /// Whether the trials of other studies are ended for it; otherwise it is refused while there are any.
    pub ends_others: bool,
}

/// A step of the way back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WayBack {
    /// The original kernel is running, or nothing was booted.
    There,
    /// A boot was asked for moments ago, and the machine may still go down for it.
    GoingDown,
    /// The machine reboots now, to this release.
    Rebooting(String),
}

/// The end of the way back.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CleanedUp {
    /// Releases of removed kernels.
    pub removed: Vec<String>,
    /// What is not as before; `None` if there is no state to compare with.
    pub differences: Option<Vec<String>>,
    /// Number of compared files and settings.
    pub compared: usize,
}
