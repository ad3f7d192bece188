//! `memory.*`: how much memory the workload may use, and on which NUMA nodes.

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};

/// Smallest limit with which a trial's process can start.
const LEAST: u64 = 16 << 20;

const fn lever(name: &'static str, takes: AcceptedValues, summary: &'static str) -> Lever {
    Lever { name, place: LeverTarget::Workload, takes, touches: SideEffects::Nothing, since: None, summary }
}

pub const LEVERS: &[Lever] = &[
    lever(
        "memory.limit",
        AcceptedValues::Bytes { least: LEAST },
        "maximum memory of the workload's processes, page cache included (cgroup v2)",
    ),
    lever("memory.policy", AcceptedValues::Policy, "the NUMA nodes that the workload's memory comes from"),
];
