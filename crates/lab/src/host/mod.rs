//! Hosts: where trials run. A host knows nothing of what a workload does.

pub mod foundation;
mod heard;
mod kept;
pub mod local;
mod samples;
pub mod sim;
mod sums;
pub mod vm;
mod waits;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use bigiron_model::counters::Counters;
use bigiron_model::evidence::Evidence;
use bigiron_model::metric::Metric;
use bigiron_model::plan::{Arm, Plan, Slot};
use bigiron_model::record::Change;
use bigiron_model::record::{Complaint, Failure, GuestIdentity, HostCost};
use bigiron_model::waits::Waiting;

/// One trial to be run.
pub struct Trial<'a> {
    pub plan: &'a Plan,
    pub slot: &'a Slot,
    pub arm: &'a Arm,
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
    pub metrics: Vec<Metric>,
    pub facts: BTreeMap<String, String>,
    /// What the kernel counted in the windows.
    pub counters: Option<Counters>,
    /// What levers changed in the running kernel.
    pub changes: Vec<Change>,
    pub complaints: Vec<Complaint>,
    pub cost: HostCost,
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
    /// Runs one trial to its end.
    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError>;
    /// Whether [`Host::look`] can be had here, or why not.
    fn looks(&self) -> Result<(), String> {
        Err("only guests under the exact clock and this machine itself are looked into".to_owned())
    }
    /// Runs a trial again, counting or sampling what it executes.
    ///
    /// # Errors
    /// [`HostError::Void`] if it came to nothing, which says nothing about the trial that was judged.
    fn look(&self, _trial: &Trial<'_>, _phase: &dyn Fn(Phase)) -> Result<Evidence, HostError> {
        Err(HostError::Fatal(self.looks().err().unwrap_or_default()))
    }
    /// Whether [`Host::look_at_locks`] can be had here, or why not.
    fn looks_at_locks(&self) -> Result<(), String> {
        Err("locks are traced in guests and on this machine itself".to_owned())
    }
    /// Runs a trial again, recording what it waits for.
    ///
    /// # Errors
    /// As [`Host::look`].
    fn look_at_locks(&self, _trial: &Trial<'_>, _phase: &dyn Fn(Phase)) -> Result<Waiting, HostError> {
        Err(HostError::Fatal(self.looks_at_locks().err().unwrap_or_default()))
    }
}
