//! Redo, replayed on the versions of blocks; and transactions, by how they ended.
//!
//! Invariant: a change counts as acknowledged only if its transaction's commit record is in the log at or before the last commit
//! acknowledged to its foreground.

use std::collections::HashMap;

use super::Findings;
use super::blocks::OnDisk;
use super::finding::VerifyFailed;
use super::journals::Log;
use crate::block;
use crate::block::CHANGE_MAX;
use crate::files;
use crate::job::Job;
use crate::journal::{LogEntry, Record};
use crate::ledger::{Ledger, Stop};

/// Compares by words: comparing slices of bytes is a call of memcmp, which goes byte by byte in musl.
fn same(a: &[u8], b: &[u8]) -> bool {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.len() == b.len() && a.iter().eq(b) && a_rest == b_rest
}

/// A transaction whose end has not been seen.
#[derive(Default)]
struct OpenTransaction {
    transaction: u64,
    /// Block and version.
    changes: Vec<(u32, u32)>,
}

/// The replay of a log.
pub struct Replay<'a> {
    job: &'a Job,
    ledger: &'a Ledger,
    disk: &'a mut [OnDisk],
    /// By foreground.
    open: Vec<OpenTransaction>,
    /// The last commit seen, and commits seen that were not acknowledged, by foreground.
    last: Vec<(u64, u64)>,
    unacknowledged: Vec<u64>,
    /// By block: versions beyond what was acknowledged that the stop explains.
    explained: HashMap<u32, u32>,
    outcome: ReplayOutcome,
}

/// The results of the transactions.
#[derive(Default)]
pub struct ReplayOutcome {
    pub commits: u64,
    /// Recorded commits that had not been acknowledged to the foreground.
    pub in_doubt: u64,
    /// Transactions with redo but without an end: what recovery would undo.
    pub losers: u64,
    /// Blocks that are newer with redo than on disk.
    pub recovered: u64,
    /// By block: versions beyond what was acknowledged that the stop explains.
    pub explained: HashMap<u32, u32>,
}

impl<'a> Replay<'a> {
    pub fn new(job: &'a Job, ledger: &'a Ledger, disk: &'a mut [OnDisk]) -> Self {
        let foregrounds = ledger.commits.len();
        Self {
            job,
            ledger,
            disk,
            open: (0..foregrounds).map(|_| OpenTransaction::default()).collect(),
            last: vec![(0, 0); foregrounds],
            unacknowledged: vec![0; foregrounds],
            explained: HashMap::new(),
            outcome: ReplayOutcome::default(),
        }
    }

    /// Takes the next record of the log.
    pub fn apply(&mut self, entry: &LogEntry<'_>, report: &mut Findings) {
        match entry.record {
            Record::Change { address, version, process, transaction, offset, payload } => {
                let Some(number) = files::number(self.job, address) else {
                    return report.add(VerifyFailed::NoSuchBlock { lsn: entry.lsn, address });
                };
                let mut bytes = [0; CHANGE_MAX];
                let extent = block::change(address, version, &mut bytes);
                if offset != extent.offset || !same(payload, &bytes[..extent.len]) {
                    report.add(VerifyFailed::WrongRedo { lsn: entry.lsn, address, version });
                }
                self.change(number, version, entry.lsn, process, transaction, report);
            }
            Record::Filler { .. } => {}
            Record::Commit { process, transaction } => self.commit(process as usize, transaction, entry.lsn, report),
        }
    }

    fn change(&mut self, number: u32, version: u32, lsn: u64, process: u32, transaction: u64, report: &mut Findings) {
        let address = files::address(self.job, number);
        let block = &mut self.disk[number as usize];
        // What comes before the first change in the log has to be on disk.
        let before = if block.redo == 0 { block.version } else { block.redo };
        let follows = if block.redo == 0 { version <= before + 1 || block.damaged } else { version == before + 1 };
        if !follows {
            report.add(if block.redo == 0 {
                VerifyFailed::Stale { address, found: before, next: version }
            } else {
                VerifyFailed::Gap { address, found: before, next: version }
            });
        }
        if block.redo == 0 {
            block.first = version;
        }
        block.redo = version;
        let here = (block.lsn, block.process, block.transaction) == (lsn, process, transaction);
        if version == block.version && !block.damaged && !here {
            report.add(VerifyFailed::NotInLog { address, version, lsn: block.lsn });
        }
        let Some(open) = self.open.get_mut(process as usize) else {
            return report.add(VerifyFailed::MalformedRedo(lsn));
        };
        if open.transaction != transaction {
            if !open.changes.is_empty() {
                let transaction = open.transaction;
                report.add(VerifyFailed::Unended { process: process as usize, transaction });
                open.changes.clear();
            }
            open.transaction = transaction;
        }
        open.changes.push((number, version));
    }

    fn commit(&mut self, process: usize, transaction: u64, lsn: u64, report: &mut Findings) {
        let Some(open) = self.open.get_mut(process) else {
            return report.add(VerifyFailed::MalformedRedo(lsn));
        };
        self.outcome.commits += 1;
        self.last[process] = (transaction, lsn);
        let acknowledged = self.ledger.commits[process];
        let changes = std::mem::take(&mut open.changes);
        if lsn > acknowledged.lsn {
            self.outcome.in_doubt += 1;
            self.unacknowledged[process] += 1;
            // A foreground has one commit under way at a time.
            if self.unacknowledged[process] > 1 || self.ledger.stop == Stop::Ended {
                report.add(VerifyFailed::NotAwaited { process, transaction });
            }
            self.explain(&changes);
        } else if lsn == acknowledged.lsn && transaction != acknowledged.transaction {
            report.add(VerifyFailed::LostCommitRecord { process, transaction: acknowledged.transaction });
        }
    }

    fn explain(&mut self, changes: &[(u32, u32)]) {
        for (number, version) in changes {
            if *version > self.ledger.blocks[*number as usize].committed {
                *self.explained.entry(*number).or_default() += 1;
            }
        }
    }

    /// To be called when the log has been read.
    pub fn end(mut self, log: &Log, report: &mut Findings) -> ReplayOutcome {
        for (process, acknowledged) in self.ledger.commits.iter().enumerate() {
            if acknowledged.lsn > log.start && self.last[process].1 < acknowledged.lsn {
                report.add(VerifyFailed::LostCommitRecord { process, transaction: acknowledged.transaction });
            }
            let open = std::mem::take(&mut self.open[process]);
            if open.changes.is_empty() {
                continue;
            }
            if self.ledger.stop == Stop::Ended {
                report.add(VerifyFailed::Unended { process, transaction: open.transaction });
            }
            self.outcome.losers += 1;
            self.explain(&open.changes);
        }
        let newer = |b: &&OnDisk| b.redo > b.version || b.damaged;
        self.outcome.recovered = self.disk.iter().filter(newer).count() as u64;
        self.outcome.explained = self.explained;
        self.outcome
    }
}
