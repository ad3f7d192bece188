//! `fault.inject`: makes a guest fail on purpose, to rehearse the survival verdict: would a gate detect a kernel that crashes?
//!
//! Invariant: a fault is injected only if an arm's settings name it, and plan and report show those settings.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::LeverError;
use bigiron_model::suggest;

/// The lever's name.
pub const INJECT: &str = "fault.inject";

/// Short description.
pub const SUMMARY: &str = "a deliberate failure, to rehearse the survival verdict: panic, hang, kill-agent, kill-init";

/// A failure that the guest performs, to rehearse the survival verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The kernel crashes (sysrq `c`).
    Panic,
    /// The workload spins for ever.
    Hang,
    /// The process that runs the workload is killed.
    KillAgent,
    /// PID 1 exits.
    KillInit,
}

impl Fault {
    pub const ALL: [Fault; 4] = [Fault::Panic, Fault::Hang, Fault::KillAgent, Fault::KillInit];

    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Panic => "panic",
            Fault::Hang => "hang",
            Fault::KillAgent => "kill-agent",
            Fault::KillInit => "kill-init",
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Fault::ALL
            .into_iter()
            .find(|f| f.name() == s)
            .ok_or_else(|| format!("it can be {}", suggest::list(Fault::ALL.iter().map(|f| f.name()))))
    }
}

/// Checks `fault.NAME=VALUE`.
pub(super) fn check(lever: &str, name: &str, value: &str) -> Result<Fault, LeverError> {
    if name != "inject" {
        return Err(LeverError::Unknown { lever: lever.to_owned(), right: format!("did you mean `{INJECT}`?") });
    }
    value.parse().map_err(|right| LeverError::Value { lever: lever.to_owned(), value: value.to_owned(), right })
}
