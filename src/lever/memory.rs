//! `memory.limit`: the workload in a cgroup that may use so much memory.

use super::runtime::{Lever, Place, Touches};
use super::takes::Takes;

/// Least that a trial's process can begin with.
const LEAST: u64 = 16 << 20;

pub const LEVERS: &[Lever] = &[Lever {
    name: "memory.limit",
    place: Place::Workload,
    takes: Takes::Bytes { least: LEAST },
    touches: Touches::Nothing,
    since: None,
    summary: "most memory that the workload's processes may use, page cache included (cgroup v2)",
}];
