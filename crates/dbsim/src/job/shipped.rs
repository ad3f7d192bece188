//! The jobs that come with bigiron.
//!
//! Invariant: each of them is a job: the tests build every one.

use bigiron_workload::library::{Library, shipped};

pub const LIBRARY: Library = Library {
    what: "job",
    file: "job file",
    shipped: shipped!("../../jobs/", ".toml":
        "orasim-2004",
        "oltp",
        "oltp-cached",
        "oltp-uncached",
        "batch-writer",
        "dss-scan",
        "mixed",
        "redo-only",
        "large-io",
        "read-under-write",
        "read-during-stream",
        "users",
    ),
    besides: "or a file",
};
