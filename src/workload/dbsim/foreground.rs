//! A foreground process: transactions, one after the other.
//!
//! Invariant: a transaction counts as committed only after the log writer has made its redo durable, and only then does it
//! enter the ledger.

use std::time::Instant;

use anyhow::Result;

use crate::load::Recorder;

use super::block::{self, CHANGE_MAX, Stamp};
use super::files::{self, DataFiles};
use super::instance::{Counters, Instance, Milestone, Phase};
use super::journal::{self, RECORD_HEADER};
use super::ledger::CommitEntry;
use super::log::Reservation;
use super::transaction::{Step, Stream, Transaction, share};

struct Foreground<'a> {
    instance: &'a Instance<'a>,
    process: usize,
    files: DataFiles,
    stream: Stream<'a>,
    counters: &'a Counters,
    commits: Recorder<'a>,
    reads: Recorder<'a>,
    /// Transactions so far.
    number: u64,
    /// Whether the window is open.
    measuring: bool,
    record: [u8; RECORD_HEADER + CHANGE_MAX + 8],
    payload: [u8; CHANGE_MAX],
}

/// Runs foreground `process`: its share of the ramp, then of the window.
pub fn run(instance: &Instance<'_>, process: usize) -> Result<()> {
    let job = instance.job;
    let mut f = Foreground {
        instance,
        process,
        files: DataFiles::open(job, instance.dir)?,
        stream: Stream::new(job, &instance.skew, instance.seed, process as u64),
        counters: &instance.counters[process],
        commits: instance.commit_latency[process].recorder(),
        reads: instance.read_latency[process].recorder(),
        number: 0,
        measuring: false,
        record: [0; RECORD_HEADER + CHANGE_MAX + 8],
        payload: [0; CHANGE_MAX],
    };
    for _ in 0..share(instance.ramp, process, job.transactors()) {
        f.transaction()?;
    }
    instance.arrive(Milestone::Ready)?;
    instance.wait_for(Phase::Measure);
    f.measuring = true;
    for _ in 0..share(instance.transactions, process, job.transactors()) {
        f.transaction()?;
    }
    instance.arrive(Milestone::Done)?;
    instance.wait_for(Phase::Leave);
    Ok(())
}

impl Foreground<'_> {
    fn transaction(&mut self) -> Result<()> {
        let transaction = self.stream.draw();
        self.number += 1;
        match transaction.changes() {
            0 => {
                for step in transaction.steps {
                    self.read(step)?;
                }
            }
            changes => self.read_write(&transaction, changes)?,
        }
        self.instance.transaction_ended();
        Ok(())
    }

    fn read_write(&mut self, transaction: &Transaction, changes: usize) -> Result<()> {
        let log = &self.instance.log;
        let bytes = changes * journal::change_bytes(CHANGE_MAX) + RECORD_HEADER;
        let mut redo = log.reserve(changes + 1, bytes);
        let mut changed = vec![(0, 0); transaction.steps.len()];
        for (step, changed) in transaction.steps.iter().zip(&mut changed) {
            if step.change {
                *changed = (step.block, self.change(*step, &mut redo)?);
            } else {
                self.read(*step)?;
            }
        }
        let requested = Instant::now();
        let len = journal::encode_commit(&mut self.record, self.process as u32, self.number);
        let lsn = redo.append(&self.record[..len]);
        drop(redo);
        log.wait_flushed(self.process, lsn);
        if self.measuring {
            self.commits.record(requested.elapsed().as_nanos() as u64);
        }
        Counters::bump(&self.counters.commits);
        for (block, version) in changed.iter().filter(|(_, version)| *version > 0) {
            self.instance.ledger.committed(*block, *version);
        }
        self.instance.ledger.acknowledged(self.process, CommitEntry { transaction: self.number, lsn });
        Ok(())
    }

    fn read(&self, step: Step) -> Result<()> {
        let pin = self.get(step.block)?;
        block::identify(&pin.read(), files::address(self.instance.job, step.block))?;
        Ok(())
    }

    /// Changes a block and returns its new version.
    fn change(&mut self, step: Step, redo: &mut Reservation<'_>) -> Result<u32> {
        let address = files::address(self.instance.job, step.block);
        let pin = self.instance.cache.get(step.block, |page| self.read_block(step.block, page))?;
        self.count_get(pin.hit);
        let mut page = pin.write();
        block::identify(&page, address)?;
        pin.dirty(self.instance.log.next());
        let version = block::stamp(&page).version + 1;
        let extent = block::change(address, version, &mut self.payload);
        let payload = &self.payload[..extent.len];
        let mut stamp = Stamp { version, lsn: 0, process: self.process as u32, transaction: self.number };
        let len = journal::encode_change(&mut self.record, address, stamp, extent, payload);
        stamp.lsn = redo.append(&self.record[..len]);
        block::apply(&mut page, extent.offset, payload, stamp);
        Ok(version)
    }

    fn get(&self, number: u32) -> Result<super::cache::Pin<'_>> {
        let pin = self.instance.cache.get(number, |page| self.read_block(number, page))?;
        self.count_get(pin.hit);
        Ok(pin)
    }

    fn count_get(&self, hit: bool) {
        Counters::bump(&self.counters.gets);
        if hit {
            Counters::bump(&self.counters.hits);
        }
    }

    fn read_block(&self, number: u32, page: &mut [u8]) -> Result<()> {
        let address = files::address(self.instance.job, number);
        let start = Instant::now();
        self.files.read(address, page)?;
        if self.measuring {
            self.reads.record(start.elapsed().as_nanos() as u64);
        }
        Counters::bump(&self.counters.reads);
        Ok(block::check(page, address)?)
    }
}
