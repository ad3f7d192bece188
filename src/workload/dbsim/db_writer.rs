//! The database writer: dirty blocks to the data files in batches, for free buffers and for checkpoints.
//!
//! Invariant: a block is written only after the redo of its last change is durable (write-ahead).

use anyhow::{Context as _, Result};

use crate::sys::async_io::{Completion, Engine};

use super::block::{self, BLOCK};
use super::files::{self, DataFiles};
use super::instance::{Counters, Instance, Milestone, Phase};
use super::job::Engine as EngineSpec;

struct DatabaseWriter<'a> {
    instance: &'a Instance<'a>,
    process: usize,
    files: DataFiles,
    engine: Box<dyn Engine>,
    /// Blocks written at once, at most.
    batch: usize,
    done: Vec<Completion>,
}

/// Runs the database writer, as process number `process`, until the window has closed. What is dirty then stays so: the data
/// files are left as a crash would leave them, and verification has to make them whole from the journals.
pub fn run(instance: &Instance<'_>, process: usize, engine: &EngineSpec, batch: usize) -> Result<()> {
    let mut w = DatabaseWriter {
        instance,
        process,
        files: DataFiles::open(instance.job, instance.dir)?,
        engine: files::engine(engine, BLOCK)?,
        batch,
        done: Vec::with_capacity(batch),
    };
    instance.arrive(Milestone::Ready)?;
    let (cache, log) = (&instance.cache, &instance.log);
    let mut served = 0;
    while !instance.reached(Phase::Leave) {
        cache.writer().wait_until(|| {
            cache.free_waits() != served
                || cache.too_dirty()
                || log.checkpoint_due().is_some()
                || instance.reached(Phase::Leave)
        });
        served = cache.free_waits();
        match log.checkpoint_due() {
            Some(lsn) => w.checkpoint(lsn)?,
            None => w.clean()?,
        }
        // Also after a round that found nothing to write: who asked for a free buffer is to look again.
        cache.batch_done();
    }
    Ok(())
}

impl DatabaseWriter<'_> {
    /// Writes all blocks with changes from before `lsn`. One pass is enough: what becomes dirty behind it has a later LSN.
    fn checkpoint(&mut self, lsn: u64) -> Result<()> {
        let cache = &self.instance.cache;
        let mut due: Vec<_> = (0..cache.len())
            .filter(|b| cache.wants_writing(*b, lsn, false))
            .map(|buffer| (cache.block_of(buffer), buffer))
            .collect();
        due.sort_unstable();
        for batch in due.chunks(self.batch) {
            if self.instance.reached(Phase::Leave) {
                return Ok(());
            }
            self.write(batch)?;
        }
        self.files.sync(self.instance.job)?;
        self.instance.ledger.checkpoint(lsn);
        self.instance.log.publish_checkpoint(lsn);
        Ok(())
    }

    /// Writes one batch of what the clock hand will come to next; hot blocks only if there is nothing else.
    fn clean(&mut self) -> Result<()> {
        let cache = &self.instance.cache;
        let hand = cache.hand();
        for cold in [true, false] {
            let mut due: Vec<_> = (0..cache.len())
                .map(|i| (hand + i) % cache.len())
                .filter(|b| cache.wants_writing(*b, u64::MAX, cold))
                .take(self.batch)
                .map(|buffer| (cache.block_of(buffer), buffer))
                .collect();
            if !due.is_empty() {
                due.sort_unstable();
                return self.write(&due);
            }
        }
        Ok(())
    }

    fn write(&mut self, batch: &[(u32, usize)]) -> Result<()> {
        let Instance { job, cache, log, ledger, .. } = self.instance;
        let mut lsn = 0;
        let mut taken = Vec::with_capacity(batch.len());
        let mut requests = Vec::with_capacity(batch.len());
        for (slot, (_, buffer)) in batch.iter().enumerate() {
            let page = self.engine.buffer(slot);
            let (number, pin) = cache.take_dirty(*buffer, page);
            let stamp = block::stamp(page);
            block::seal(page);
            lsn = lsn.max(stamp.lsn);
            taken.push((number, stamp.version, pin));
            requests.push(self.files.request(slot, files::address(job, number), true));
        }
        log.wait_flushed(self.process, lsn);
        cache.batch_begins();
        for (number, version, _) in &taken {
            ledger.writing(*number, *version);
        }
        self.engine.submit(&requests).context("Cannot write blocks")?;
        self.done.clear();
        self.engine.wait(requests.len(), &mut self.done).context("Cannot wait for written blocks")?;
        files::finished(&self.done, BLOCK).context("Cannot write a block")?;
        for (number, version, _) in &taken {
            ledger.written(*number, *version);
            Counters::bump(&self.instance.counters[self.process].writes);
        }
        Counters::bump(&self.instance.counters[self.process].batches);
        // Unpinned first: who has waited for a free buffer is to find one.
        drop(taken);
        cache.batch_done();
        Ok(())
    }
}
