//! A database writer: writes dirty blocks to the data files in batches, for free buffers and for checkpoints.
//!
//! Invariant: a block is written only after the redo of its last change is durable (write-ahead), and only by the writer that
//! owns its buffer.

use anyhow::{Context as _, Result};

use bigiron_sys::async_io::{Completion, Engine};

use super::block::{self, BLOCK};
use super::cache::Pin;
use super::files::{self, DataFiles};
use super::instance::{Instance, Milestone, Phase, ProcessCounters};
use super::job::Engine as EngineSpec;
use super::waits::{self, WaitEvent};

struct DatabaseWriter<'a> {
    instance: &'a Instance<'a>,
    process: usize,
    /// Its number among the database writers.
    number: usize,
    files: DataFiles,
    engine: Box<dyn Engine>,
    /// By engine buffer: the block being written from it, its version, and its pin on the cache's buffer.
    slots: Vec<Option<(u32, u32, Pin<'a>)>>,
    /// Maximum number of blocks per batch.
    batch: usize,
    /// Whether they are written in the order of their addresses.
    sorted: bool,
    done: Vec<Completion>,
}

/// Runs a database writer, as process number `process`, until the window has closed. Dirty buffers then stay dirty: the data
/// files are left as after a crash, and verification must complete them from the journals.
pub fn run(instance: &Instance<'_>, process: usize, engine: &EngineSpec, batch: usize, sorted: bool) -> Result<()> {
    let mut w = DatabaseWriter {
        instance,
        process,
        number: instance.writer_number(process),
        files: DataFiles::open(instance.job, instance.dir)?,
        engine: files::engine(engine, BLOCK)?,
        slots: (0..engine.depth).map(|_| None).collect(),
        batch,
        sorted,
        done: Vec::with_capacity(engine.depth),
    };
    instance.arrive(Milestone::Ready)?;
    let (cache, number) = (&instance.cache, w.number);
    let due = || instance.checkpoints.due(number, instance.log.checkpoint_due());
    let mut served = 0;
    while !instance.reached(Phase::Leave) {
        waits::during(WaitEvent::Idle, || {
            cache.wait_work(number, served, || due().is_some() || instance.reached(Phase::Leave));
        });
        served = cache.free_waits();
        match due() {
            Some(lsn) => w.checkpoint(lsn)?,
            None => w.clean()?,
        }
        // Also after a round without writes: a process that requested a free buffer must look again.
        cache.cleaned(0);
    }
    Ok(())
}

impl DatabaseWriter<'_> {
    /// Writes all blocks with changes from before `lsn`. One pass suffices: buffers dirtied behind it have a later LSN.
    fn checkpoint(&mut self, lsn: u64) -> Result<()> {
        let Instance { cache, log, checkpoints, .. } = self.instance;
        let mut due = self.places(cache.dirty_before(self.number, lsn));
        for batch in due.chunks_mut(self.batch) {
            if self.instance.reached(Phase::Leave) {
                return Ok(());
            }
            self.write(batch)?;
        }
        if let Some(lsn) = checkpoints.pass(self.number, lsn) {
            waits::during(WaitEvent::DataFileSync, || self.files.sync(self.instance.job))?;
            checkpoints.publish(lsn, || {
                self.instance.ledger.checkpoint(lsn);
                log.publish_checkpoint(lsn);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes one batch of the blocks that replacement reaches next.
    fn clean(&mut self) -> Result<()> {
        let due = self.instance.cache.coldest_dirty(self.number, self.batch);
        let due = self.places(due.into_iter());
        if due.is_empty() { Ok(()) } else { self.write(&due) }
    }

    /// Blocks and their buffers, in the order of writing.
    fn places(&self, buffers: impl Iterator<Item = usize>) -> Vec<(u32, usize)> {
        let mut due: Vec<_> = buffers.map(|buffer| (self.instance.cache.block_of(buffer), buffer)).collect();
        if self.sorted {
            due.sort_unstable();
        }
        due
    }

    /// Writes a batch: as many blocks in parallel as the engine has buffers, and the next as soon as one is free.
    fn write(&mut self, mut rest: &[(u32, usize)]) -> Result<()> {
        let cache = &self.instance.cache;
        cache.batch_begins(self.number);
        while !rest.is_empty() || self.engine.pending() > 0 {
            let free = self.slots.len() - self.engine.pending();
            let (now, later) = rest.split_at(free.min(rest.len()));
            rest = later;
            if !now.is_empty() {
                self.submit(now)?;
            }
            // After the last one there is no hurry.
            let min = if rest.is_empty() { self.engine.pending() } else { 1 };
            self.reap(min)?;
        }
        cache.batch_ends(self.number);
        ProcessCounters::bump(&self.instance.counters[self.process].batches);
        Ok(())
    }

    fn submit(&mut self, blocks: &[(u32, usize)]) -> Result<()> {
        let Instance { job, cache, log, ledger, .. } = self.instance;
        let mut lsn = 0;
        let mut requests = Vec::with_capacity(blocks.len());
        let mut free = (0..self.slots.len()).filter(|s| self.slots[*s].is_none()).collect::<Vec<_>>().into_iter();
        for ((_, buffer), slot) in blocks.iter().zip(&mut free) {
            let page = self.engine.buffer(slot);
            let (number, pin) = cache.take_dirty(*buffer, page);
            let stamp = block::stamp(page);
            block::seal(page);
            lsn = lsn.max(stamp.lsn);
            ledger.writing(number, stamp.version);
            self.slots[slot] = Some((number, stamp.version, pin));
            requests.push(self.files.request(slot, files::address(job, number), true));
        }
        if log.flushed() < lsn {
            waits::during(WaitEvent::WriteAhead, || log.wait_flushed(lsn));
        }
        // Submitting counts as a wait: some engines write in this call.
        waits::during(WaitEvent::DataFileWrite, || self.engine.submit(&requests)).context("Cannot write blocks")
    }

    fn reap(&mut self, min: usize) -> Result<()> {
        self.done.clear();
        let waited = waits::during(WaitEvent::DataFileWrite, || self.engine.wait(min, &mut self.done));
        waited.context("Cannot wait for written blocks")?;
        files::finished(&self.done, BLOCK).context("Cannot write a block")?;
        for completion in &self.done {
            let (number, version, pin) =
                self.slots[completion.slot].take().context("A block was written that was not to be")?;
            self.instance.ledger.written(number, version);
            ProcessCounters::bump(&self.instance.counters[self.process].writes);
            // Unpinned first: a process that waits for a free buffer must find one.
            drop(pin);
        }
        self.instance.cache.cleaned(self.done.len());
        Ok(())
    }
}
