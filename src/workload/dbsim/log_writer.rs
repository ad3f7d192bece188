//! The log writer: one redo write for all commits that have come in since the last (group commit), into the journals in turn.
//!
//! Invariant: a journal is overwritten only after the checkpoint that makes its redo superfluous.

use std::path::Path;

use anyhow::Result;

use crate::sys::async_io::Engine;

use super::acks::Stream;
use super::files::{self, Journals};
use super::instance::{Instance, Milestone, Phase};
use super::job::{Engine as EngineSpec, Job};
use super::journal::{self, JOURNAL_HEADER, JournalHeader};

struct LogWriter<'a> {
    instance: &'a Instance<'a>,
    journals: Journals,
    engine: Box<dyn Engine>,
    /// Number of the current journal's turn, from 1.
    sequence: u64,
    acks: Option<Stream>,
}

/// Runs the log writer until the end.
pub fn run(instance: &Instance<'_>, engine: &EngineSpec) -> Result<()> {
    let (job, dir): (&Job, &Path) = (instance.job, instance.dir);
    let mut w = LogWriter {
        instance,
        journals: Journals::open(job, dir)?,
        engine: files::engine(engine, job.log_buffer_bytes())?,
        sequence: 1,
        acks: job.run.acks.as_ref().map(|to| to.open().map(Stream::new)).transpose()?,
    };
    instance.arrive(Milestone::Ready)?;
    let log = &instance.log;
    loop {
        log.writer().wait_until(|| log.flush_due() || log.switch_due() || instance.reached(Phase::End));
        if log.flush_due() {
            w.flush()?;
        } else if log.switch_due() {
            w.switch()?;
        } else if instance.reached(Phase::End) {
            return Ok(());
        }
    }
}

impl LogWriter<'_> {
    fn journal(&self) -> usize {
        ((self.sequence - 1) % self.instance.job.journal.files as u64) as usize
    }

    fn flush(&mut self) -> Result<()> {
        let log = &self.instance.log;
        let buffer = self.engine.buffer(0);
        if let Some(closed) = log.close(buffer) {
            journal::seal_chunk(&mut buffer[..closed.len], closed.used, closed.lsn, self.sequence);
            self.write(log.journal_offset(closed.lsn), closed.len)?;
            if let Some(acks) = &mut self.acks {
                let chunk = &self.engine.buffer(0)[..closed.len];
                acks.send(self.instance.job, chunk, closed.lsn, self.sequence, log.checkpoint())?;
            }
            self.instance.ledger.flushed(closed.lsn + closed.len as u64);
            log.publish_flushed(&closed);
            self.instance.checkpoints.redo_at(log.flushed());
        }
        Ok(())
    }

    fn switch(&mut self) -> Result<()> {
        let log = &self.instance.log;
        let needed = log.journal_start();
        log.checkpointed().wait_until(|| log.checkpoint() >= needed || self.instance.reached(Phase::Leave));
        if log.checkpoint() < needed {
            // The database writer has gone; nobody will need the next journal.
            self.instance.wait_for(Phase::End);
            return Ok(());
        }
        self.sequence += 1;
        JournalHeader { sequence: self.sequence, start: log.switch_lsn() }.encode(self.engine.buffer(0));
        self.instance.ledger.switching(self.sequence);
        self.write(0, JOURNAL_HEADER)?;
        self.instance.ledger.switched(self.sequence);
        log.switched();
        self.instance.cache.writer().signal();
        Ok(())
    }

    fn write(&mut self, offset: u64, len: usize) -> Result<()> {
        let journal = self.journal();
        self.journals.write(self.instance.job, self.engine.as_mut(), journal, offset, len)
    }
}
