//! `memory.*`: how much memory the workload may use, and from which NUMA nodes it comes.

use super::runtime::{Lever, LeverTarget, Touches};
use super::takes::Takes;

/// Least that a trial's process can begin with.
const LEAST: u64 = 16 << 20;

const fn lever(name: &'static str, takes: Takes, summary: &'static str) -> Lever {
    Lever { name, place: LeverTarget::Workload, takes, touches: Touches::Nothing, since: None, summary }
}

pub const LEVERS: &[Lever] = &[
    lever(
        "memory.limit",
        Takes::Bytes { least: LEAST },
        "most memory that the workload's processes may use, page cache included (cgroup v2)",
    ),
    lever("memory.policy", Takes::Policy, "the NUMA nodes that the workload's memory comes from"),
];
