//! Hosts: where trials run. A host does not know what a workload does.

mod artifacts;
pub mod foundation;
#[cfg(test)]
mod fuzz;
pub mod local;
pub mod machines;
mod received_events;
mod samples;
pub mod sim;
pub mod ssh;
pub mod vm;
mod waits;
mod window_sums;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use bigiron_model::counters::TrialCounters;
use bigiron_model::environment::Environment;
use bigiron_model::evidence::Evidence;
use bigiron_model::plan::{Arm, Plan, Slot};
use bigiron_model::purpose::Purpose;
use bigiron_model::record::FileChange;
use bigiron_model::record::{Complaint, Failure, GuestIdentity, HostCost};
use bigiron_model::values::Values;
use bigiron_model::waits::TrialWaits;
use serde::{Deserialize, Serialize};

/// One trial to run.
pub struct Trial<'a> {
    pub plan: &'a Plan,
    pub slot: &'a Slot,
    pub arm: &'a Arm,
    pub purpose: Purpose,
    /// 0 for the first attempt at the slot; a void trial is run again.
    pub attempt: u32,
    /// This trial's own directory (exists, empty): files left there are kept as its artefacts.
    pub artifacts: &'a Path,
    /// Set when the user interrupts: the trial must end soon, and its guest is killed.
    pub cancel: &'a AtomicBool,
}

/// What a trial reports while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// QEMU has been started.
    Booting,
    /// The agent has sent its first event: the kernel is up.
    Up,
    /// A workload's step begins.
    Step { workload: String, step: String, done: u32, of: u32 },
}

/// The result of a trial: everything that a guest did, including failure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialResult {
    /// `None` if every workload completed and verified.
    pub failure: Option<(Failure, String)>,
    pub guest: Option<GuestIdentity>,
    pub metrics: Values,
    pub facts: BTreeMap<String, String>,
    pub environment: Environment,
    /// What the kernel counted in the windows.
    pub counters: Option<TrialCounters>,
    /// What levers changed in the running kernel.
    pub changes: Vec<FileChange>,
    pub complaints: Vec<Complaint>,
    pub cost: HostCost,
    /// The evidence that the trial was run for, if it was a rerun.
    pub evidence: Option<TrialEvidence>,
}

/// Evidence from a rerun.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TrialEvidence {
    Executed(Evidence),
    Waited(TrialWaits),
}

/// The host could not run the trial: its own fault, not the guest's.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Worth another attempt: the slot is void.
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
    /// How many trials may run in parallel without affecting each other's results.
    fn parallel(&self) -> usize;
    /// Whether trials can be run here for `purpose`.
    ///
    /// # Errors
    /// Why not.
    fn supports(&self, purpose: Purpose) -> Result<(), String> {
        match purpose {
            Purpose::Judge => Ok(()),
            Purpose::Profile | Purpose::Locks => Err("only guests and this machine itself give evidence".to_owned()),
        }
    }
    /// Runs one trial. A purpose that [`Host::supports`] refuses is [`HostError::Fatal`].
    ///
    /// # Errors
    /// A fault of the host, not of the guest. A rerun without evidence is [`HostError::Void`].
    fn run(&self, trial: &Trial<'_>, phase: &dyn Fn(Phase)) -> Result<TrialResult, HostError>;
    /// Ends the use of the host for now: a machine that was changed for the study is as before. `recorded`: no result is missing.
    ///
    /// # Errors
    /// What is not as before.
    fn close(&self, recorded: bool) -> anyhow::Result<()> {
        let _ = recorded;
        Ok(())
    }
}
