//! Levers: one thing each that can be set on an arm.

use serde::{Deserialize, Serialize};

/// A failure that the guest is told to have, to rehearse the survival verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The kernel crashes (sysrq `c`).
    Panic,
    /// The workload spins for ever.
    Hang,
    /// The process that runs the workload is killed.
    KillAgent,
    /// PID 1 goes away.
    KillInit,
}
