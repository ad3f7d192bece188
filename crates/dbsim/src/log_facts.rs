//! Facts about the log for the record: how redo is made durable, and the work of log writer, switches and archiver.
//!
//! Invariant: a fact is an event in the window or a setting of the job; nothing here is compared.

use super::instance::Instance;
use super::job::{Job, LogSync, Wake};
use super::log::LogCounts;

/// The facts, by name.
pub fn of(instance: &Instance<'_>, log: &LogCounts) -> Vec<(String, String)> {
    let turns = &log.turns;
    let mut facts = vec![
        ("redo-durability", durability(instance.job).to_owned()),
        ("redo-writes", log.flushes.to_string()),
        ("redo-bytes", log.flushed_bytes.to_string()),
        ("redo-write-mean-ns", ns(instance.redo_write.read().mean())),
        ("commit-mean-ns", ns(instance.commits.whole().mean())),
        ("log-switches", turns.switches.to_string()),
        ("log-space-waits", log.space_waits.to_string()),
        ("log-switch-waits-for-checkpoint", turns.checkpoint_waits.to_string()),
        ("log-switch-wait-for-checkpoint-ns", turns.checkpoint_wait_ns.to_string()),
    ];
    if instance.log.wake() == Wake::Poll {
        facts.push(("wake-up", "log writer and foregrounds poll".to_owned()));
    }
    if instance.log.turns.archives() {
        facts.extend([
            ("log-switch-waits-for-archiving", turns.archive_waits.to_string()),
            ("log-switch-wait-for-archiving-ns", turns.archive_wait_ns.to_string()),
            ("journals-archived", turns.archived.to_string()),
            ("archived-bytes", turns.archived_bytes.to_string()),
        ]);
    }
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
    facts.chain(instance.commits.facts()).collect()
}

fn ns(value: Option<f64>) -> String {
    value.map_or_else(|| "none".to_owned(), |v| format!("{v:.1}"))
}

/// How redo is made durable.
pub fn durability(job: &Job) -> &'static str {
    match job.journal.sync {
        LogSync::Dsync => "journals opened O_DSYNC",
        LogSync::RwfDsync => "RWF_DSYNC on every redo write",
        LogSync::Fdatasync => "fdatasync after every redo write",
        LogSync::Fsync => "fsync after every redo write",
        LogSync::Linked => "fdatasync linked to every redo write",
    }
}
