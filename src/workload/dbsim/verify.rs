//! Recovery as after a crash, then proof that everything acknowledged is there: data files + journals against the ledger.
//!
//! Invariant: nothing is repaired. Redo is applied to a copy in memory; the files are only read.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use thiserror::Error;

use super::block::{self, Address, BLOCK, BlockError, HEADER, Stamp};
use super::files::{self, Extents};
use super::job::{EXTENT, Job};
use super::journal::{Chunks, JournalHeader, Record};
use super::ledger::Ledger;

/// Data that was acknowledged is lost or wrong.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum VerifyFailed {
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error("Write of {address} is lost: version {written} was written, version {found} is on disk")]
    LostWrite { address: Address, written: u32, found: u32 },
    #[error("Commit is lost: {address} was committed in version {committed}, recovery ends at version {found}")]
    LostCommit { address: Address, committed: u32, found: u32 },
    #[error("{address} is in version {found}, of which no commit was acknowledged (the last is {committed})")]
    NeverCommitted { address: Address, committed: u32, found: u32 },
    #[error("Redo for {address} has a gap: version {found} is followed by version {next}")]
    Gap { address: Address, found: u32, next: u32 },
    #[error("Load is lost: of {blocks} blocks that were loaded durably, the file ends before {address}")]
    LostLoad { address: Address, blocks: u64 },
    #[error("No journal has a valid header")]
    NoJournal,
    #[error("The log ends at LSN {found}; it was acknowledged up to LSN {flushed}")]
    LostRedo { found: u64, flushed: u64 },
    #[error("Commit record of transaction {transaction} of foreground {process} is missing in the journals")]
    LostCommitRecord { process: usize, transaction: u64 },
    #[error("A chunk of redo is whole but not understood")]
    MalformedRedo,
    #[error("Redo names {0}, which does not exist")]
    NoSuchBlock(Address),
}

/// A change that the journals still hold.
struct Redo {
    version: u32,
    process: u32,
    transaction: u64,
    offset: usize,
    payload: Vec<u8>,
}

/// What the journals hold.
struct Log {
    /// LSN where they begin and end.
    start: u64,
    end: u64,
    /// By block, in ascending order of versions.
    redo: HashMap<u32, Vec<Redo>>,
    /// By foreground: its last committed transaction.
    commits: HashMap<u32, u64>,
}

/// Verifies the files that a run of `job` left in `dir`. Lost or wrong data is a [`VerifyFailed`].
pub fn verify(job: &Job, dir: &Path) -> Result<()> {
    let ledger = Ledger::load(dir)?;
    let log = read_log(job, dir)?;
    if log.end != ledger.flushed {
        return Err(VerifyFailed::LostRedo { found: log.end, flushed: ledger.flushed }.into());
    }
    for (process, acknowledged) in ledger.commits.iter().enumerate() {
        let found = log.commits.get(&(process as u32)).copied().unwrap_or(0);
        if acknowledged.lsn > log.start && found < acknowledged.transaction {
            return Err(VerifyFailed::LostCommitRecord { process, transaction: acknowledged.transaction }.into());
        }
    }
    for f in 0..job.data.files {
        let mut file = Extents::open(files::data_path(dir, f), job.data.direct)?;
        for extent in 0..u64::from(job.blocks_per_file()) * BLOCK as u64 / EXTENT as u64 {
            for (i, page) in file.read(extent)?.chunks_exact_mut(BLOCK).enumerate() {
                let address = Address { file: f as u32, block: extent as u32 * (EXTENT / BLOCK) as u32 + i as u32 };
                check_block(job, &ledger, &log, address, page)?;
            }
        }
    }
    Ok(())
}

fn check_block(job: &Job, ledger: &Ledger, log: &Log, address: Address, page: &mut [u8]) -> Result<()> {
    let number = files::number(job, address).ok_or(VerifyFailed::NoSuchBlock(address))?;
    let entry = ledger.blocks.get(number as usize).context("The ledger is of another job")?;
    block::check(page, address).map_err(VerifyFailed::from)?;
    let mut found = block::stamp(page).version;
    if found < entry.written {
        return Err(VerifyFailed::LostWrite { address, written: entry.written, found }.into());
    }
    for change in log.redo.get(&number).into_iter().flatten().filter(|c| c.version > block::stamp(page).version) {
        if change.version != found + 1 {
            return Err(VerifyFailed::Gap { address, found, next: change.version }.into());
        }
        found = change.version;
    }
    // Applied after the walk, whose filter looks at the block as it was on disk.
    let on_disk = block::stamp(page).version;
    for change in log.redo.get(&number).into_iter().flatten().filter(|c| c.version > on_disk) {
        let Redo { version, process, transaction, offset, ref payload } = *change;
        if offset < HEADER || offset + payload.len() > BLOCK {
            return Err(VerifyFailed::MalformedRedo.into());
        }
        block::apply(page, offset, payload, Stamp { version, lsn: 0, process, transaction });
    }
    let committed = entry.committed;
    if found < committed {
        return Err(VerifyFailed::LostCommit { address, committed, found }.into());
    }
    if found > committed {
        return Err(VerifyFailed::NeverCommitted { address, committed, found }.into());
    }
    Ok(block::check_body(page, address).map_err(VerifyFailed::from)?)
}

fn read_log(job: &Job, dir: &Path) -> Result<Log> {
    let mut journals = Vec::new();
    for j in 0..job.journal.files {
        let mut file = Extents::open(files::journal_path(dir, j), job.journal.direct)?;
        let mut bytes = Vec::with_capacity(job.journal.bytes as usize);
        for extent in 0..job.journal.bytes / EXTENT as u64 {
            bytes.extend_from_slice(file.read(extent)?);
        }
        if let Some(header) = JournalHeader::decode(&bytes) {
            journals.push((header, bytes));
        }
    }
    journals.sort_by_key(|(header, _)| header.sequence);
    let (oldest, _) = journals.first().ok_or(VerifyFailed::NoJournal)?;
    let mut log = Log { start: oldest.start, end: oldest.start, redo: HashMap::new(), commits: HashMap::new() };
    for (header, bytes) in &journals {
        // The next journal starts where the last one ends; else what is between is lost.
        if header.start != log.end {
            return Err(VerifyFailed::LostRedo { found: log.end, flushed: header.start }.into());
        }
        for chunk in Chunks::new(bytes, *header) {
            for entry in chunk.records() {
                log.add(job, entry.map_err(|_| VerifyFailed::MalformedRedo)?.record)?;
            }
            log.end = chunk.end;
        }
    }
    for changes in log.redo.values_mut() {
        changes.sort_by_key(|c| c.version);
    }
    Ok(log)
}

impl Log {
    fn add(&mut self, job: &Job, record: Record<'_>) -> Result<(), VerifyFailed> {
        match record {
            Record::Change { address, version, process, transaction, offset, payload } => {
                let number = files::number(job, address).ok_or(VerifyFailed::NoSuchBlock(address))?;
                let change = Redo { version, process, transaction, offset, payload: payload.to_vec() };
                self.redo.entry(number).or_default().push(change);
            }
            Record::Filler { .. } => {}
            Record::Commit { process, transaction } => {
                let last = self.commits.entry(process).or_default();
                *last = transaction.max(*last);
            }
        }
        Ok(())
    }
}
