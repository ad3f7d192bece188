//! `block.*`: the queues of the disks that hold the study's data.

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
        takes: AcceptedValues::Offered(&["none", "mq-deadline", "kyber", "bfq"]),
        touches: SideEffects::Queue,
        since: None,
        summary: "I/O scheduler",
    },
    queue("block.iosched.NAME", "iosched/NAME", AcceptedValues::Text, "a tunable of the chosen scheduler"),
    queue(
        "block.nr-requests",
        "nr_requests",
        COUNT,
        "number of requests that the scheduler (or the device, without one) queues",
    ),
    Lever {
        name: "block.read-ahead",
        place: LeverTarget::Device("read_ahead_kb"),
        takes: AcceptedValues::Kib,
        touches: SideEffects::Nothing,
        since: None,
        summary: "maximum read-ahead for a sequential reader",
    },
    queue("block.max-sectors-kb", "max_sectors_kb", AcceptedValues::Kib, "largest request sent to the device"),
    queue(
        "block.wbt-lat-us",
        "wbt_lat_usec",
        COUNT,
        "target latency of reads, for which write-back is throttled; 0 is off",
    ),
    queue(
        "block.write-cache",
        "write_cache",
        AcceptedValues::Words(&[("back", "write back"), ("through", "write through")]),
        "whether the kernel treats the device's write cache as volatile and flushes it",
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
        "completion on any CPU (0), in the group (1) or on the CPU (2) that submitted the request",
    ),
    queue("block.rotational", "rotational", SWITCH, "whether the kernel treats the device as a spinning disk"),
    queue("block.add-random", "add_random", SWITCH, "whether its interrupts feed the random number generator"),
    queue("block.iostats", "iostats", SWITCH, "whether I/O is counted"),
];

/// The modules that may contain schedulers.
pub const SCHEDULER_MODULES: &[&str] = &["mq_deadline", "kyber_iosched", "bfq"];
