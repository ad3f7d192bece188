//! Checkpoints: those requested, and the progress of each database writer.
//!
//! Invariant: a checkpoint counts only when every database writer has passed it (each cleans its own buffers) and their writes
//! are durable; the checkpoint that counts never moves back.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use anyhow::Result;

use bigiron_sys::latch::{EventCount, Latch};
use bigiron_sys::segment::{Segment, shared_struct};

use super::job::{ClassKind, Job};

shared_struct! {
    struct Control {
        /// The requested checkpoint: all changes before this LSN must reach the data files.
        asked: AtomicU64,
        /// The checkpoint that some process is about to publish.
        claimed: AtomicU64,
        /// The last one that counts, and the number of them.
        published: AtomicU64,
        count: AtomicU64,
        /// The checkpointer wakes when redo is durable up to here.
        alarm: AtomicU64,
        /// The checkpointer sleeps here.
        checkpointer: EventCount,
        publishing: Latch,
        unused: [std::sync::atomic::AtomicU32; 1],
    }
}

/// The state of checkpoints, as every process sees it.
pub struct Checkpoints<'s> {
    control: &'s Control,
    /// By database writer: the last checkpoint it has passed.
    passed: &'s [AtomicU64],
    /// Whether a checkpointer publishes checkpoints; otherwise the last writer to pass does.
    checkpointer: bool,
}

impl<'s> Checkpoints<'s> {
    /// Bytes of segment for a job's checkpoints.
    pub fn bytes(job: &Job) -> usize {
        size_of::<Control>() + writers(job) * 8 + 2 * 64
    }

    pub fn new(segment: &'s Segment, job: &Job) -> Self {
        let checkpointer = job.classes.iter().any(|c| matches!(c.kind, ClassKind::Checkpointer { .. }));
        let made = Self { control: segment.one(), passed: segment.many(writers(job)), checkpointer };
        made.control.alarm.store(u64::MAX, SeqCst);
        made
    }

    /// Requests a checkpoint at `lsn`. The caller must wake the writers.
    pub fn ask(&self, lsn: u64) {
        self.control.asked.fetch_max(lsn, SeqCst);
    }

    /// The checkpoint that `writer` must pass next, if any. `needed` is requested by a log switch.
    pub fn due(&self, writer: usize, needed: Option<u64>) -> Option<u64> {
        let lsn = self.control.asked.load(SeqCst).max(needed.unwrap_or(0));
        (lsn > self.passed[writer].load(SeqCst)).then_some(lsn)
    }

    /// Records that `writer` has written all its changes from before `lsn`. Returns the checkpoint that the caller must publish,
    /// if it is the last to pass and there is no checkpointer.
    pub fn pass(&self, writer: usize, lsn: u64) -> Option<u64> {
        self.passed[writer].fetch_max(lsn, SeqCst);
        if self.checkpointer {
            if self.reached().is_some() {
                self.control.checkpointer.signal();
            }
            return None;
        }
        self.reached().filter(|lsn| self.control.claimed.fetch_max(*lsn, SeqCst) < *lsn)
    }

    /// The checkpoint that all writers have passed, if it does not count yet.
    pub fn reached(&self) -> Option<u64> {
        let lsn = self.passed.iter().map(|p| p.load(SeqCst)).min()?;
        (lsn > self.control.published.load(SeqCst)).then_some(lsn)
    }

    /// Makes the checkpoint at `lsn` count by calling `publish`, unless a later one already does. The writers' writes must be
    /// durable.
    pub fn publish(&self, lsn: u64, publish: impl FnOnce() -> Result<()>) -> Result<()> {
        let _held = self.control.publishing.lock();
        if lsn > self.control.published.load(SeqCst) {
            publish()?;
            self.control.published.store(lsn, SeqCst);
            self.control.count.fetch_add(1, SeqCst);
        }
        Ok(())
    }

    /// The last checkpoint that counts.
    pub fn published(&self) -> u64 {
        self.control.published.load(SeqCst)
    }

    /// Number of checkpoints that have counted so far.
    pub fn count(&self) -> u64 {
        self.control.count.load(SeqCst)
    }

    /// Must be called by the log writer when redo has become durable: wakes the checkpointer if its alarm is due.
    pub fn redo_at(&self, lsn: u64) {
        let alarm = self.control.alarm.load(SeqCst);
        if lsn >= alarm {
            // An alarm set meanwhile stays.
            let _ = self.control.alarm.compare_exchange(alarm, u64::MAX, SeqCst, SeqCst);
            self.control.checkpointer.signal();
        }
    }

    /// Sets the checkpointer's alarm: it wakes when redo is durable up to `lsn`.
    pub fn set_alarm(&self, lsn: u64) {
        self.control.alarm.store(lsn, SeqCst);
    }

    /// Where the checkpointer sleeps.
    pub fn checkpointer(&self) -> &EventCount {
        &self.control.checkpointer
    }
}

/// Number of database writers of a job.
pub fn writers(job: &Job) -> usize {
    let of = |kind: &ClassKind| matches!(kind, ClassKind::DatabaseWriter { .. });
    job.classes.iter().filter(|c| of(&c.kind)).map(|c| c.count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dbsim;
    use bigiron_workload::testing;
    use bigiron_workload::units::Pace;

    fn job(writers: usize, checkpointer: bool) -> Job {
        let mut job = Job::parse(&testing::options(&Dbsim, []).unwrap()).unwrap();
        for class in &mut job.classes {
            if matches!(class.kind, ClassKind::DatabaseWriter { .. }) {
                class.count = writers;
            }
        }
        if checkpointer {
            job.classes.push(super::super::job::ClassSpec {
                name: "checkpointer".to_owned(),
                count: 1,
                threads: false,
                pace: Pace::Closed { think: std::time::Duration::ZERO },
                kind: ClassKind::Checkpointer { percent: 50 },
            });
        }
        job
    }

    #[test]
    fn a_checkpoint_counts_when_the_last_writer_has_passed() {
        let job = job(3, false);
        let segment = Segment::new(4096).unwrap();
        let c = Checkpoints::new(&segment, &job);
        assert_eq!((c.due(0, None), c.due(0, Some(50))), (None, Some(50)));
        c.ask(100);
        assert_eq!((c.due(1, Some(50)), c.due(2, Some(120))), (Some(100), Some(120)));
        assert_eq!((c.pass(0, 100), c.due(0, None)), (None, None));
        assert_eq!(c.pass(1, 120), None);
        // The last one publishes it, once.
        assert_eq!((c.pass(2, 100), c.pass(2, 100), c.reached()), (Some(100), None, Some(100)));
        let told = std::cell::RefCell::new(Vec::new());
        for lsn in [100, 90] {
            let tell = || {
                told.borrow_mut().push(lsn);
                Ok(())
            };
            c.publish(lsn, tell).unwrap();
        }
        assert_eq!((told.into_inner(), c.published(), c.count(), c.reached()), (vec![100], 100, 1, None));
        // A late writer must not move it back.
        assert_eq!((c.pass(0, 120), c.pass(2, 110)), (None, Some(110)));
    }

    #[test]
    fn with_a_checkpointer_no_writer_makes_it_count() {
        let job = job(2, true);
        let segment = Segment::new(4096).unwrap();
        let c = Checkpoints::new(&segment, &job);
        let ticket = c.checkpointer().ticket();
        assert_eq!((c.pass(0, 100), c.reached()), (None, None));
        assert_eq!(c.checkpointer().ticket(), ticket);
        assert_eq!((c.pass(1, 100), c.reached()), (None, Some(100)));
        assert_ne!(c.checkpointer().ticket(), ticket, "the checkpointer is woken");
        let ticket = c.checkpointer().ticket();
        c.set_alarm(500);
        c.redo_at(499);
        assert_eq!(c.checkpointer().ticket(), ticket);
        c.redo_at(500);
        c.redo_at(501);
        assert_eq!(c.checkpointer().ticket(), ticket + 1, "once");
    }
}
