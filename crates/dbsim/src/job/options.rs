//! The levers `dbsim.NAME`: the job, and shorthands for its most frequently changed keys.

use super::source::AS_JOB;
use bigiron_workload::OptionDef;

/// A shorthand, which defaults to the job's own value.
const fn shorthand(name: &'static str, allowed: &'static [&'static str], summary: &'static str) -> OptionDef {
    OptionDef { name, default: AS_JOB, allowed, summary }
}

/// The options, as levers `dbsim.NAME`.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef {
        name: "job",
        default: "orasim-2004",
        allowed: &[],
        summary: "The work to do: the name of a shipped job, or a job file",
    },
    shorthand(
        "io",
        &["job", "sync", "vectored", "threads", "libaio", "uring"],
        "Engine of every process that has one; foreground reads are always pread",
    ),
    shorthand("direct", &["job", "on", "off"], "Whether data files and journals bypass the page cache (O_DIRECT)"),
    shorthand(
        "sync",
        &["job", "dsync", "fdatasync"],
        "How writes are made durable: files opened O_DSYNC, or fdatasync after each redo write and at each checkpoint",
    ),
    shorthand("processes", &[], "Processes that execute transactions"),
    shorthand(
        "transactions",
        &[],
        "Transactions in the measured window, all processes together; `auto`: 3000, or 60000 by the wall clock",
    ),
    shorthand("data", &[], "Bytes of all data files together"),
    shorthand("cache", &[], "Bytes of the shared buffer cache"),
    shorthand("journal", &[], "Bytes of each journal"),
    shorthand("write", &[], "Percentage of block gets that change the block, 1 to 100"),
    shorthand("scan", &["job", "on", "off"], "Whether a scanner reads the data files"),
];
