//! The log writer: one redo write for all commits that arrived since the last one (group commit), into the journals in turn.
//!
//! Invariant: a journal is overwritten only after the checkpoint that makes its redo superfluous, and after the archiver, if
//! there is one, has a durable copy of it.

use anyhow::Result;

use bigiron_sys::async_io::Engine;
use bigiron_sys::load::{Recorder, now_ns};

use super::acks::AckStream;
use super::files::{self, Journals};
use super::instance::{Instance, Milestone, Phase};
use super::job::Engine as EngineSpec;
use super::journal::{self, JOURNAL_HEADER, JournalHeader};
use super::waits::{self, WaitEvent};

struct LogWriter<'a> {
    instance: &'a Instance<'a>,
    journals: Journals,
    engine: Box<dyn Engine>,
    /// Redo writes, from their submission until they are durable.
    writes: Recorder<'a>,
    acks: Option<AckStream>,
}

/// Runs the log writer until the end.
pub fn run(instance: &Instance<'_>, engine: &EngineSpec) -> Result<()> {
    let log = &instance.log;
    let mut w = LogWriter {
        instance,
        journals: Journals::open(instance.job, instance.dir)?,
        engine: files::engine(engine, buffer_bytes(log.chunk_bytes()))?,
        writes: instance.redo_write.recorder(),
        acks: instance.job.run.acks.as_ref().map(|to| to.open().map(AckStream::new)).transpose()?,
    };
    instance.arrive(Milestone::Ready)?;
    loop {
        waits::during(WaitEvent::Idle, || {
            log.sleep_until(|| log.flush_due() || log.switch_due() || instance.reached(Phase::End));
        });
        if log.flush_due() {
            let gather = log.gather();
            if !gather.is_zero() {
                waits::during(WaitEvent::Pace, || std::thread::sleep(gather));
            }
            w.flush()?;
        } else if log.switch_due() {
            w.switch()?;
        } else if instance.reached(Phase::End) {
            return Ok(());
        }
    }
}

/// Bytes of a buffer for chunks and headers: whole pages.
fn buffer_bytes(chunk: usize) -> usize {
    chunk.next_multiple_of(JOURNAL_HEADER)
}

impl LogWriter<'_> {
    /// Writes the oldest chunk of the log buffer.
    fn flush(&mut self) -> Result<()> {
        let log = &self.instance.log;
        let buffer = self.engine.buffer(0);
        if let Some(closed) = log.take(buffer) {
            journal::seal_chunk(&mut buffer[..closed.len], closed.used, closed.lsn, log.turns.turn());
            let start = now_ns();
            self.write(log.turns.journal(), log.journal_offset(closed.lsn), closed.len)?;
            if self.instance.reached(Phase::Measure) {
                self.writes.record(now_ns() - start);
            }
            if let Some(acks) = &mut self.acks {
                let chunk = &self.engine.buffer(0)[..closed.len];
                acks.send(self.instance.job, chunk, closed.lsn, log.turns.turn(), log.turns.checkpoint())?;
            }
            self.instance.ledger.flushed(closed.lsn + closed.len as u64);
            log.publish_flushed(&closed);
            self.instance.checkpoints.redo_at(log.flushed());
        }
        Ok(())
    }

    /// Continues in the next journal, once it may be overwritten.
    fn switch(&mut self) -> Result<()> {
        let log = &self.instance.log;
        let turns = &log.turns;
        let reuse = turns.reuse();
        let left = || self.instance.reached(Phase::Leave);
        let mut waited = [0; 2];
        if turns.checkpoint() < reuse.checkpoint {
            let start = now_ns();
            let _waiting = waits::enter(WaitEvent::LogSwitchCheckpoint);
            turns.checkpointed().wait_until(|| turns.checkpoint() >= reuse.checkpoint || left());
            waited[0] = (now_ns() - start).max(1);
        }
        if turns.archived() < reuse.archive {
            let start = now_ns();
            let _waiting = waits::enter(WaitEvent::LogSwitchArchiving);
            turns.copied().wait_until(|| turns.archived() >= reuse.archive || left());
            waited[1] = (now_ns() - start).max(1);
        }
        if turns.checkpoint() < reuse.checkpoint || turns.archived() < reuse.archive {
            // The database writer or archiver has ended; nobody will need the next journal.
            self.instance.wait_for(Phase::End);
            return Ok(());
        }
        turns.waited(waited);
        let turn = turns.turn() + 1;
        JournalHeader { sequence: turn, start: log.switch_lsn() }.encode(self.engine.buffer(0));
        self.instance.ledger.switching(turn);
        self.write(turns.journal_of(turn), 0, JOURNAL_HEADER)?;
        self.instance.ledger.switched(turn);
        log.switched();
        self.instance.cache.writer().signal();
        Ok(())
    }

    fn write(&mut self, journal: usize, offset: u64, len: usize) -> Result<()> {
        let _waiting = waits::enter(WaitEvent::LogFileParallelWrite);
        self.journals.write(self.instance.job, self.engine.as_mut(), journal, offset, len)
    }
}
