//! The scanner: reads the data files from end to end with large reads past the buffer cache, like a backup or a table scan.
//!
//! Invariant: its work is a fixed share of the foregrounds' (one extent per number of transactions), whatever the speed of
//! either, or else as much as possible.

use anyhow::{Context as _, Result};

use bigiron_sys::async_io::{Completion, Engine};
use bigiron_sys::segment::{Frames, Segment};

use super::block::{Address, BLOCK};
use super::files::{self, DataFiles};
use super::instance::{Instance, Milestone, Phase, ProcessCounters};
use super::job::{Engine as EngineSpec, Job, WorkShare};
use super::torn;
use super::waits::{self, WaitEvent};

/// One read of a scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ScanRead {
    file: usize,
    offset: u64,
    len: usize,
}

struct Scanner<'a> {
    instance: &'a Instance<'a>,
    counters: &'a ProcessCounters,
    files: DataFiles,
    engine: Box<dyn Engine>,
    /// By engine buffer: the read in progress.
    slots: Vec<Option<ScanRead>>,
    work: WorkShare,
    places: ScanOrder,
    /// A page-aligned buffer for one block.
    page: Frames<'a>,
    /// Number of requests submitted, and of requests completed and checked.
    next: u64,
    checked: u64,
}

/// Runs a scanner, as process number `process`: its share of the ramp, then of the window, with requests of `request` bytes.
pub fn run(
    instance: &Instance<'_>,
    process: usize,
    engine: &EngineSpec,
    request: usize,
    direct: bool,
    work: WorkShare,
) -> Result<()> {
    let job = instance.job;
    let scratch = Segment::new(2 * BLOCK).context("Cannot allocate a buffer")?;
    let mut s = Scanner {
        instance,
        counters: &instance.counters[process],
        files: DataFiles::open_for_scan(job, instance.dir, direct)?,
        engine: files::engine(engine, request)?,
        slots: vec![None; engine.depth],
        work,
        places: ScanOrder::new(job, request, (instance.roles[process].number, instance.class(process).count)),
        page: scratch.frames(1, BLOCK),
        next: 0,
        checked: 0,
    };
    match work {
        WorkShare::PerTransactions(_) if instance.by_time() => {
            instance.arrive(Milestone::Ready)?;
            s.scan(None)?;
            instance.arrive(Milestone::Done)?;
        }
        WorkShare::PerTransactions(every) => {
            s.scan(Some(instance.ramp_scans(every)))?;
            instance.arrive(Milestone::Ready)?;
            instance.wait_for(Phase::Measure);
            s.scan(instance.scans_end(every))?;
            instance.arrive(Milestone::Done)?;
        }
        WorkShare::Free => {
            instance.arrive(Milestone::Ready)?;
            s.scan(None)?;
        }
    }
    instance.wait_for(Phase::Leave);
    Ok(())
}

impl Scanner<'_> {
    /// Reads at the foregrounds' pace or as fast as possible, until `end` extents have been read or the window closes.
    fn scan(&mut self, end: Option<u64>) -> Result<()> {
        let end = end.unwrap_or(u64::MAX);
        let mut done: Vec<Completion> = Vec::with_capacity(self.slots.len());
        while self.checked < end {
            // With a read in progress there is something to do; without one, sleep until the next extent is due.
            let idle = self.engine.pending() == 0;
            let due = self.due(idle).min(end);
            let closed = end == u64::MAX && self.instance.reached(Phase::Close);
            while self.next < due && !closed {
                let Some(slot) = self.slots.iter().position(Option::is_none) else { break };
                let place = self.places.of(self.next);
                let request = self.files.read_range(slot, place.file, place.offset, place.len);
                self.engine.submit(&[request]).context("Cannot read an extent")?;
                self.slots[slot] = Some(place);
                self.next += 1;
            }
            if self.engine.pending() == 0 {
                return Ok(());
            }
            done.clear();
            waits::during(WaitEvent::DataFileScan, || self.engine.wait(1, &mut done))
                .context("Cannot wait for an extent")?;
            for c in &done {
                let place = self.slots[c.slot].take().context("An unrequested extent arrived")?;
                files::finished(std::slice::from_ref(c), place.len).context("Cannot read an extent")?;
                self.check(c.slot, place)?;
                ProcessCounters::bump(&self.counters.reads);
                ProcessCounters::grow(&self.counters.bytes, place.len as u64);
                self.checked += 1;
            }
        }
        Ok(())
    }

    /// Number of extents that may have been requested by now. If `idle`, sleeps until there are more than were requested.
    fn due(&self, idle: bool) -> u64 {
        match self.work {
            WorkShare::PerTransactions(every) if idle => {
                waits::during(WaitEvent::Idle, || self.instance.scan_due(every, Some(self.next)))
            }
            WorkShare::PerTransactions(every) => self.instance.scan_due(every, None),
            WorkShare::Free => u64::MAX,
        }
    }

    fn check(&mut self, slot: usize, place: ScanRead) -> Result<()> {
        for (i, block) in self.engine.buffer(slot)[..place.len].chunks_exact(BLOCK).enumerate() {
            let first = (place.offset / BLOCK as u64) as u32;
            let address = Address { file: place.file as u32, block: first + i as u32 };
            torn::reread_if_torn(block, address, &self.instance.cache, &self.files, &self.page)?;
        }
        Ok(())
    }
}

/// The order of a scanner's requests: through all files from end to end, repeatedly. Several scanners start at different places.
struct ScanOrder {
    request: u64,
    file_bytes: u64,
    /// Requests per file, the last of which may be shorter, and in all files.
    per_file: u64,
    all: u64,
    start: u64,
}

impl ScanOrder {
    /// Of scanner `number` of `count`.
    fn new(job: &Job, request: usize, (number, count): (usize, usize)) -> Self {
        let file_bytes = u64::from(job.blocks_per_file()) * BLOCK as u64;
        let per_file = file_bytes.div_ceil(request as u64);
        let all = per_file * job.data.files as u64;
        Self { request: request as u64, file_bytes, per_file, all, start: all * number as u64 / count.max(1) as u64 }
    }

    fn of(&self, n: u64) -> ScanRead {
        let at = (self.start + n) % self.all;
        let offset = at % self.per_file * self.request;
        let len = self.request.min(self.file_bytes - offset) as usize;
        ScanRead { file: (at / self.per_file) as usize, offset, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dbsim;
    use bigiron_workload::testing;

    #[test]
    fn every_byte_is_read_once_a_round() {
        let job = Job::parse(&testing::options(&Dbsim, [("data", "20M"), ("cache", "1M")]).unwrap()).unwrap();
        for request in [8 << 10, 1 << 20, 3 << 19, 4 << 20] {
            let places = ScanOrder::new(&job, request, (1, 3));
            let mut round: Vec<_> = (0..places.all).map(|n| places.of(n)).collect();
            assert_eq!(places.of(places.all), round[0]);
            assert_ne!(places.of(0), ScanOrder::new(&job, request, (0, 3)).of(0));
            round.sort_by_key(|p| (p.file, p.offset));
            let mut at = (0, 0);
            for p in round {
                assert!(p.len <= request && p.len.is_multiple_of(BLOCK));
                if p.file > at.0 {
                    assert_eq!(at.1, 2 << 20);
                    at = (at.0 + 1, 0);
                }
                assert_eq!((p.file, p.offset), at);
                at.1 += p.len as u64;
            }
            assert_eq!(at, (9, 2 << 20));
        }
    }
}
