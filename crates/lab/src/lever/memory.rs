//! `memory.*`: how much memory the workload may use, and from which NUMA nodes it comes.

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};

/// Least that a trial's process can begin with.
const LEAST: u64 = 16 << 20;

const fn lever(name: &'static str, takes: AcceptedValues, summary: &'static str) -> Lever {
    Lever { name, place: LeverTarget::Workload, takes, touches: SideEffects::Nothing, since: None, summary }
}

pub const LEVERS: &[Lever] = &[
    lever(
        "memory.limit",
        AcceptedValues::Bytes { least: LEAST },
        "most memory that the workload's processes may use, page cache included (cgroup v2)",
    ),
    lever("memory.policy", AcceptedValues::Policy, "the NUMA nodes that the workload's memory comes from"),
];
