//! `block.*`: the queues of the disks that the study's data lies on.

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};

const fn queue(name: &'static str, file: &'static str, takes: AcceptedValues, summary: &'static str) -> Lever {
    Lever { name, place: LeverTarget::Disk(file), takes, touches: SideEffects::Nothing, since: None, summary }
}

const COUNT: AcceptedValues = AcceptedValues::Number { least: 0, most: i64::MAX };
const SWITCH: AcceptedValues = AcceptedValues::Switch { on: "1", off: "0" };

pub const LEVERS: &[Lever] = &[
    Lever {
        name: "block.scheduler",
        place: LeverTarget::Disk("scheduler"),
        takes: AcceptedValues::Offered,
        touches: SideEffects::Queue,
        since: None,
        summary: "I/O scheduler: none, mq-deadline, kyber, bfq",
    },
    queue("block.iosched.NAME", "iosched/NAME", AcceptedValues::Text, "a tunable of the scheduler that is chosen"),
    queue("block.nr-requests", "nr_requests", COUNT, "requests that the scheduler, or without one the device, holds"),
    Lever {
        name: "block.read-ahead",
        place: LeverTarget::Device("read_ahead_kb"),
        takes: AcceptedValues::Kib,
        touches: SideEffects::Nothing,
        since: None,
        summary: "most that is read ahead of a sequential reader",
    },
    queue("block.max-sectors-kb", "max_sectors_kb", AcceptedValues::Kib, "largest request that is sent to the device"),
    queue(
        "block.wbt-lat-us",
        "wbt_lat_usec",
        COUNT,
        "target latency of reads, to which write-back is throttled; 0 is off",
    ),
    queue(
        "block.write-cache",
        "write_cache",
        AcceptedValues::Words(&[("back", "write back"), ("through", "write through")]),
        "whether the kernel believes the device's write cache volatile, and flushes it",
    ),
    queue(
        "block.nomerges",
        "nomerges",
        AcceptedValues::Number { least: 0, most: 2 },
        "0 all merges of requests, 1 simple ones, 2 none",
    ),
    queue(
        "block.rq-affinity",
        "rq_affinity",
        AcceptedValues::Number { least: 0, most: 2 },
        "completion on any CPU (0), in the group (1) or on the very CPU (2) that asked",
    ),
    queue("block.rotational", "rotational", SWITCH, "whether the kernel takes the device for a spinning disk"),
    queue("block.add-random", "add_random", SWITCH, "whether its interrupts feed the random number generator"),
    queue("block.iostats", "iostats", SWITCH, "whether I/O is counted"),
];

/// The modules that schedulers may come in.
pub const SCHEDULER_MODULES: &[&str] = &["mq_deadline", "kyber_iosched", "bfq"];
