//! Executes transactions on the shared instance.
//!
//! Invariant: a transaction counts as committed only after the log writer has made its redo durable; only then are its versions
//! entered in the ledger. Room for redo is reserved while no shared resource is held.

use std::time::{Duration, Instant};

use anyhow::Result;

use bigiron_sys::load::burn::burn;
use bigiron_sys::load::{Recorder, now_ns};

use super::block::{self, CHANGE_MAX, Stamp};
use super::cache::Pin;
use super::choice::mix;
use super::files::{self, DataFiles};
use super::instance::{Instance, Phase, ProcessCounters};
use super::journal::{self, RECORD_HEADER};
use super::ledger::CommitEntry;
use super::log::Reservation;
use super::stages::{CommitRecorder, Stages};
use super::transaction::{Action, Transaction};
use super::waits::{self, WaitEvent};

/// Longest filler record: a larger `redo` step writes several.
const FILLER_MAX: usize = 8192;

/// A worker that executes transactions.
pub struct Executor<'a> {
    instance: &'a Instance<'a>,
    worker: usize,
    files: DataFiles,
    counters: &'a ProcessCounters,
    commits: CommitRecorder<'a>,
    reads: Recorder<'a>,
    /// Number of transactions so far, whether committed, rolled back or neither: identifies this worker's work in the redo.
    number: u64,
    /// Blocks changed since the last commit or rollback, and their new versions.
    changed: Vec<(u32, u32)>,
    /// Whether redo that changes no block was written since then.
    filled: bool,
    /// A record under construction, with room for the commit's after it.
    record: Vec<u8>,
    /// Bytes of `record` to append to the log buffer together with the commit's record.
    pending: usize,
    payload: [u8; CHANGE_MAX],
    /// Memory for sorting.
    keys: Vec<u64>,
}

impl<'a> Executor<'a> {
    /// Must be called in the process that executes the transactions, as number `worker` of these processes (not of all workers).
    pub fn new(instance: &'a Instance<'a>, worker: usize) -> Result<Self> {
        Ok(Self {
            instance,
            worker,
            files: DataFiles::open(instance.job, instance.dir)?,
            counters: &instance.counters[worker],
            commits: instance.commits.recorder(worker),
            reads: instance.read_latency.recorder(worker),
            number: 0,
            changed: Vec::new(),
            filled: false,
            record: vec![0; FILLER_MAX.max(RECORD_HEADER + CHANGE_MAX + 8) + RECORD_HEADER],
            pending: 0,
            payload: [0; CHANGE_MAX],
            keys: Vec::new(),
        })
    }

    /// Executes `transaction`. Changes that it neither commits nor rolls back are committed at its end.
    pub fn execute(&mut self, transaction: &Transaction) -> Result<()> {
        for unit in transaction.actions.split_inclusive(|a| matches!(a, Action::Commit | Action::Rollback)) {
            self.unit(unit, transaction.is_short())?;
        }
        if !self.changed.is_empty() || self.filled {
            self.commit(None)?;
        }
        Ok(())
    }

    fn measuring(&self) -> bool {
        self.instance.phase() == Phase::Measure as u32
    }

    /// Executes a transaction up to a commit or rollback. A `short` one reserves room for all its redo at once; one that is long
    /// or needs much room reserves for each change, so that others do not wait for unused room.
    fn unit(&mut self, unit: &[Action], short: bool) -> Result<()> {
        let log = &self.instance.log;
        self.number += 1;
        let changes = unit.iter().filter(|a| matches!(a, Action::Get { change: true, .. })).count();
        let bytes = changes * journal::change_bytes(CHANGE_MAX) + RECORD_HEADER;
        let at_once = short && changes > 0 && log.fits(changes + 1, bytes);
        let mut redo = if at_once { Some(log.reserve(self.worker, changes + 1, bytes)?) } else { None };
        for (i, action) in unit.iter().enumerate() {
            match *action {
                Action::Get { block, change: false } => self.read(block)?,
                Action::Get { block, change: true } => {
                    let version = match &mut redo {
                        Some(redo) => self.change(block, redo)?,
                        None => self.change_alone(block)?,
                    };
                    self.changed.push((block, version));
                }
                Action::Redo(bytes) => self.fill(bytes as usize, unit.get(i + 1) == Some(&Action::Commit))?,
                Action::Commit => self.commit(redo.take())?,
                Action::Rollback => {
                    drop(redo.take());
                    self.roll_back()?;
                }
                Action::Cpu(time) => burn(time),
                Action::Think(time) => self.think(time),
                Action::Sort { bytes, seed } => self.sort(bytes, seed),
            }
        }
        Ok(())
    }

    /// Makes everything since the last commit or rollback durable. Returns at once if nothing was done.
    fn commit(&mut self, redo: Option<Reservation<'_>>) -> Result<()> {
        if self.changed.is_empty() && !self.filled {
            return Ok(());
        }
        let stages = self.end(redo)?;
        if self.measuring() {
            self.commits.record(&stages);
        }
        ProcessCounters::bump(&self.counters.commits);
        Ok(())
    }

    /// Undoes the changes, the last one first. An undo is a change like any other: it writes redo and creates a new version,
    /// whose body follows from its number as for every version. When that redo is durable, the outcome is acknowledged like a
    /// commit.
    fn roll_back(&mut self) -> Result<()> {
        for i in (0..self.changed.len()).rev() {
            let (block, _) = self.changed[i];
            let version = self.change_alone(block)?;
            self.changed.push((block, version));
        }
        if !self.changed.is_empty() || self.filled {
            self.end(None)?;
        }
        ProcessCounters::bump(&self.counters.rollbacks);
        Ok(())
    }

    fn end(&mut self, redo: Option<Reservation<'_>>) -> Result<Stages> {
        let log = &self.instance.log;
        let requested = now_ns();
        let (filler, rest) = self.record.split_at_mut(std::mem::take(&mut self.pending));
        let len = journal::encode_commit(rest, self.worker as u32, self.number);
        let records = [filler, &rest[..len]];
        let records = if filler.is_empty() { &records[1..] } else { &records };
        let commit = match redo {
            Some(redo) => redo.commit(records, requested),
            None => log.commit(self.worker, records, requested)?,
        };
        let stages = waits::during(WaitEvent::LogFileSync, || log.wait(&commit));
        for (block, version) in self.changed.drain(..) {
            self.instance.ledger.committed(block, version);
        }
        self.filled = false;
        self.instance.ledger.acknowledged(self.worker, CommitEntry { transaction: self.number, lsn: commit.lsn });
        Ok(stages)
    }

    fn read(&self, block: u32) -> Result<()> {
        let pin = self.get(block)?;
        block::identify(&pin.read(), files::address(self.instance.job, block))?;
        Ok(())
    }

    /// The same with its own reservation.
    fn change_alone(&mut self, number: u32) -> Result<u32> {
        let mut redo = self.instance.log.reserve(self.worker, 1, journal::change_bytes(CHANGE_MAX))?;
        self.change(number, &mut redo)
    }

    /// Changes a block and returns its new version.
    fn change(&mut self, number: u32, redo: &mut Reservation<'_>) -> Result<u32> {
        let address = files::address(self.instance.job, number);
        let pin = self.get(number)?;
        let mut page = pin.write();
        block::identify(&page, address)?;
        pin.dirty(self.instance.log.next());
        let version = block::stamp(&page).version + 1;
        let extent = block::change(address, version, &mut self.payload);
        let payload = &self.payload[..extent.len];
        let mut stamp = Stamp { version, lsn: 0, process: self.worker as u32, transaction: self.number };
        let len = journal::encode_change(&mut self.record, address, stamp, extent, payload);
        stamp.lsn = redo.append(&self.record[..len]);
        block::apply(&mut page, extent.offset, payload, stamp);
        Ok(version)
    }

    fn get(&self, number: u32) -> Result<Pin<'a>> {
        let pin = self.instance.cache.get(number, |page| self.read_block(number, page))?;
        ProcessCounters::bump(&self.counters.gets);
        if pin.hit {
            ProcessCounters::bump(&self.counters.hits);
        }
        Ok(pin)
    }

    fn read_block(&self, number: u32, page: &mut [u8]) -> Result<()> {
        let address = files::address(self.instance.job, number);
        let start = Instant::now();
        waits::during(WaitEvent::DataFileRead, || self.files.read(address, page))?;
        if self.measuring() {
            self.reads.record(start.elapsed().as_nanos() as u64);
        }
        ProcessCounters::bump(&self.counters.reads);
        Ok(block::check(page, address)?)
    }

    /// Writes `bytes` of redo without changes, in records of at most [`FILLER_MAX`]. If a commit is next, it takes the last
    /// record along, because no block depends on that record's LSN.
    fn fill(&mut self, bytes: usize, commit_next: bool) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let len = journal::encode_filler(&mut self.record, self.worker as u32, self.number, left.min(FILLER_MAX));
            left = left.saturating_sub(len);
            if left == 0 && commit_next {
                self.pending = len;
            } else {
                self.instance.log.reserve(self.worker, 1, len)?.append(&self.record[..len]);
            }
        }
        self.filled |= bytes > 0;
        Ok(())
    }

    fn think(&self, time: Duration) {
        let _waiting = waits::enter(WaitEvent::Think);
        self.instance.sleep(time);
    }

    fn sort(&mut self, bytes: u64, seed: u64) {
        self.keys.clear();
        self.keys.extend((0..bytes / 8).map(|i| mix(seed.wrapping_add(i))));
        self.keys.sort_unstable();
        std::hint::black_box(&self.keys);
    }
}
