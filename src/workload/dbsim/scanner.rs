//! The scanner: reads the data files from end to end by large reads past the buffer cache, as a backup or a table scan does.
//!
//! Invariant: its work is a fixed share of the foregrounds' (one extent for so many transactions), whatever the speed of either, or
//! else as much as it can do.

use anyhow::{Context as _, Result};

use crate::sys::async_io::{Completion, Engine};
use crate::sys::segment::{Frames, Segment};

use super::block::{self, Address, BLOCK};
use super::files::{self, DataFiles};
use super::instance::{Counters, Instance, Milestone, Phase};
use super::job::{EXTENT, Engine as EngineSpec, Share};
use super::waits::{self, Event};

/// A block that is being written while it is read may come torn, as in any database that is copied while it runs. It is read
/// again after the batch that is on its way; torn this often it counts as broken.
const REREADS: usize = 100;

struct Scanner<'a> {
    instance: &'a Instance<'a>,
    counters: &'a Counters,
    files: DataFiles,
    engine: Box<dyn Engine>,
    /// By the engine's buffer: the extent that is being read into it.
    slots: Vec<Option<u64>>,
    work: Share,
    /// A page-aligned buffer for one block.
    page: Frames<'a>,
    /// Extents asked for, and extents read and checked.
    next: u64,
    checked: u64,
}

/// Runs the scanner, as process number `process`: its share of the ramp, then of the window.
pub fn run(instance: &Instance<'_>, process: usize, engine: &EngineSpec, request: usize, work: Share) -> Result<()> {
    let job = instance.job;
    let scratch = Segment::new(2 * BLOCK).context("Cannot allocate a buffer")?;
    let mut s = Scanner {
        instance,
        counters: &instance.counters[process],
        files: DataFiles::open(job, instance.dir)?,
        engine: files::engine(engine, request)?,
        slots: vec![None; engine.depth],
        work,
        page: scratch.frames(1, BLOCK),
        next: 0,
        checked: 0,
    };
    match work {
        Share::PerTransactions(_) if instance.by_time() => {
            instance.arrive(Milestone::Ready)?;
            s.scan(None)?;
            instance.arrive(Milestone::Done)?;
        }
        Share::PerTransactions(every) => {
            s.scan(Some(instance.ramp_scans(every)))?;
            instance.arrive(Milestone::Ready)?;
            instance.wait_for(Phase::Measure);
            s.scan(instance.scans_end(every))?;
            instance.arrive(Milestone::Done)?;
        }
        Share::Free => {
            instance.arrive(Milestone::Ready)?;
            s.scan(None)?;
        }
    }
    instance.wait_for(Phase::Leave);
    Ok(())
}

impl Scanner<'_> {
    /// Reads on, as the foregrounds go on or as fast as it can, until `end` extents have been read or the window closes.
    fn scan(&mut self, end: Option<u64>) -> Result<()> {
        let end = end.unwrap_or(u64::MAX);
        let mut done: Vec<Completion> = Vec::with_capacity(self.slots.len());
        while self.checked < end {
            // With a read under way there is something to do; without one, sleep until the next extent is due.
            let idle = self.engine.pending() == 0;
            let due = self.due(idle).min(end);
            let closed = end == u64::MAX && self.instance.reached(Phase::Close);
            while self.next < due && !closed {
                let Some(slot) = self.slots.iter().position(Option::is_none) else { break };
                let (file, extent) = self.place(self.next);
                self.engine.submit(&[self.files.read_extent(slot, file, extent)]).context("Cannot read an extent")?;
                self.slots[slot] = Some(self.next);
                self.next += 1;
            }
            if self.engine.pending() == 0 {
                return Ok(());
            }
            done.clear();
            waits::during(Event::DataFileScan, || self.engine.wait(1, &mut done))
                .context("Cannot wait for an extent")?;
            files::finished(&done, EXTENT).context("Cannot read an extent")?;
            for c in &done {
                let extent = self.slots[c.slot].take().context("An extent came that was not asked for")?;
                self.check(c.slot, extent)?;
                Counters::bump(&self.counters.reads);
                self.checked += 1;
            }
        }
        Ok(())
    }

    /// Extents that may have been asked for by now. If it is `idle`, sleeps until they are more than those that have been.
    fn due(&self, idle: bool) -> u64 {
        match self.work {
            Share::PerTransactions(every) if idle => {
                waits::during(Event::Idle, || self.instance.scan_due(every, Some(self.next)))
            }
            Share::PerTransactions(every) => self.instance.scan_due(every, None),
            Share::Free => u64::MAX,
        }
    }

    /// The file, and the extent within it, of the `n`th read.
    fn place(&self, n: u64) -> (usize, u64) {
        let per_file = u64::from(self.instance.job.blocks_per_file()) * BLOCK as u64 / EXTENT as u64;
        let n = n % (per_file * self.instance.job.data.files as u64);
        ((n / per_file) as usize, n % per_file)
    }

    fn check(&mut self, slot: usize, n: u64) -> Result<()> {
        let (file, extent) = self.place(n);
        for (i, block) in self.engine.buffer(slot).chunks_exact(BLOCK).enumerate() {
            let address = Address { file: file as u32, block: extent as u32 * (EXTENT / BLOCK) as u32 + i as u32 };
            let mut result = block::check(block, address);
            for _ in 0..REREADS {
                if result.is_ok() {
                    break;
                }
                self.instance.cache.wait_written();
                let mut page = self.page.exclusive(0);
                self.files.read(address, &mut page)?;
                result = block::check(&page, address);
            }
            result?;
        }
        Ok(())
    }
}
