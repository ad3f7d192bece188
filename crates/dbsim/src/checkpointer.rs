//! The checkpointer: requests a checkpoint from the database writers after a certain amount of redo since the last one, and
//! records the checkpoints reached in the control file.
//!
//! Invariant: a checkpoint counts for the log (whose journals it frees) only once it is durable in the control file: otherwise
//! recovery might start from redo that has been overwritten.
//! recovery might start from redo that has been overwritten.

use anyhow::Result;

use super::control_file::ControlFile;
use super::files::DataFiles;
use super::instance::{Instance, Milestone, Phase};
use super::waits::{self, WaitEvent};

/// Runs the checkpointer until the window has closed. `percent` is the share of a journal that may fill between checkpoints.
pub fn run(instance: &Instance<'_>, percent: u32) -> Result<()> {
    let Instance { job, cache, log, checkpoints, .. } = instance;
    let files = DataFiles::open(job, instance.dir)?;
    let mut control = ControlFile::create(instance.dir)?;
    let step = (job.journal.bytes * u64::from(percent) / 100).max(1);
    let mut asked = 0;
    instance.arrive(Milestone::Ready)?;
    while !instance.reached(Phase::Leave) {
        // Counted from the last checkpoint requested, by a log switch or from here.
        let due = checkpoints.published().max(asked) + step;
        checkpoints.set_alarm(due);
        checkpoints
            .checkpointer()
            .wait_until(|| log.flushed() >= due || checkpoints.reached().is_some() || instance.reached(Phase::Leave));
        if let Some(lsn) = checkpoints.reached() {
            waits::during(WaitEvent::DataFileSync, || files.sync(job))?;
            checkpoints.publish(lsn, || {
                waits::during(WaitEvent::DataFileWrite, || control.record(lsn))?;
                instance.ledger.checkpoint(lsn);
                log.publish_checkpoint(lsn);
                Ok(())
            })?;
        }
        if log.flushed() >= due && !instance.reached(Phase::Leave) {
            // No further than the redo on disk: recovery could not start beyond the end of the log.
            asked = log.flushed();
            checkpoints.ask(asked);
            cache.writer().signal();
        }
    }
    Ok(())
}
