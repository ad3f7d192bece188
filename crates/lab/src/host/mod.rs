//! Hosts: where trials run. A host knows nothing of what a workload does.

mod artifacts;
pub mod foundation;
pub mod local;
mod received_events;
mod samples;
pub mod sim;
pub mod vm;
mod waits;
mod window_sums;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use bigiron_model::counters::TrialCounters;
use bigiron_model::evidence::Evidence;
use bigiron_model::plan::{Arm, Plan, Slot};
use bigiron_model::purpose::Purpose;
use bigiron_model::record::FileChange;
use bigiron_model::record::{Complaint, Failure, GuestIdentity, HostCost};
use bigiron_model::values::Values;
use bigiron_model::waits::TrialWaits;

/// One trial to be run.
pub struct Trial<'a> {
    pub plan: &'a Plan,
    pub slot: &'a Slot,
    pub arm: &'a Arm,
    pub purpose: Purpose,
    /// 0 for the first try of the slot; a void trial is tried again.
    pub attempt: u32,
    /// A directory of this trial's own (exists, empty): what is left there is kept as its artefacts.
    pub artifacts: &'a Path,
    /// Set when the user interrupts: the trial is to end soon, its guest killed.
    pub cancel: &'a AtomicBool,
}

/// What a trial reports while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// QEMU has been started.
    Booting,
    /// The agent has spoken: the kernel is up.
    Up,
    /// A workload's step begins.
    Step { workload: String, step: String, done: u32, of: u32 },
}

/// What a finished trial hands over: everything that a guest did is here, failure included.
#[derive(Clone, Debug)]
pub struct TrialResult {
    /// `None` if every workload completed and verified.
    pub failure: Option<(Failure, String)>,
    pub guest: Option<GuestIdentity>,
    pub metrics: Values,
    pub facts: BTreeMap<String, String>,
    /// What the kernel counted in the windows.
    pub counters: Option<TrialCounters>,
    /// What levers changed in the running kernel.
    pub changes: Vec<FileChange>,
    pub complaints: Vec<Complaint>,
    pub cost: HostCost,
    /// What the trial was run for, if that was not to be judged.
    pub evidence: Option<TrialEvidence>,
}

/// Evidence from a trial that was run for it.
#[derive(Clone, Debug)]
pub enum TrialEvidence {
    Executed(Evidence),
    Waited(TrialWaits),
}

/// The host could not run the trial: its own fault, not the guest's.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Worth another try: the slot is void.
    #[error("{0}")]
    Void(String),
    /// Would fail again for every slot (no QEMU, disk full, a guest reports another release than the plan's): the session stops.
    #[error("{0}")]
    Fatal(String),
    /// The user interrupted.
    #[error("Interrupted")]
    Cancelled,
}

/// A place where trials run.
pub trait Host: Sync {
    /// How many trials may run side by side without changing each other's result.
    fn parallel(&self) -> usize;
    /// Whether trials can be run here for `purpose`.
    ///
    /// # Errors
    /// Why not.
    fn supports(&self, purpose: Purpose) -> Result<(), String> {
        match purpose {
            Purpose::Judge => Ok(()),
            Purpose::Profile | Purpose::Locks => {
                Err("evidence comes from guests and from this machine itself".to_owned())
            }
        }
    }
    /// Runs one trial to its end. A purpose that [`Host::supports`] refuses is [`HostError::Fatal`].
    ///
    /// # Errors
    /// What the host, not the guest, did wrong. Evidence that came to nothing is [`HostError::Void`].
    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError>;
}
