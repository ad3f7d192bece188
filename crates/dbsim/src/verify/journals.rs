//! The journals as verification reads them: by windows, chunk after chunk, in the order of the log; and what is wrong where a
//! chunk that was acknowledged is not there.
//!
//! Invariant: memory does not grow with the journals: a window is one chunk and an extent.

use std::path::Path;

use anyhow::Result;

use super::finding::VerifyFailed;
use super::{Findings, size_of_file};
use crate::files;
use crate::files::ExtentReader;
use crate::job::{EXTENT, Job};
use crate::journal::{CHUNK_HEADER, Chunk, ChunkHeader, JOURNAL_HEADER, JournalHeader, LogEntry, RecordError};
use crate::ledger::{Ledger, Stop};

/// Redo is written in multiples of this at least.
const STEP: usize = 512;

/// A journal, read from its start to its end through a window.
struct Window {
    extents: Option<ExtentReader>,
    next: u64,
    ends: u64,
    bytes: Vec<u8>,
    /// Bytes of `bytes` that have been skipped, and where in the journal the first is that has not been.
    skipped: usize,
    at: u64,
}

impl Window {
    fn open(job: &Job, dir: &Path, journal: usize, report: &mut Findings) -> Result<Self> {
        let path = files::journal_path(dir, journal);
        let size = size_of_file(&path, job.journal.bytes, report)?;
        let extents = if size == 0 { None } else { Some(ExtentReader::open(path, job.journal.direct)?) };
        Ok(Self { extents, next: 0, ends: size / EXTENT as u64, bytes: Vec::new(), skipped: 0, at: 0 })
    }

    /// The bytes from the window's start on: `wanted` of them, fewer only at the end of the journal.
    fn look(&mut self, wanted: usize) -> Result<&[u8]> {
        while self.bytes.len() - self.skipped < wanted && self.next < self.ends {
            let Some(extents) = &mut self.extents else { break };
            self.bytes.drain(..self.skipped);
            self.skipped = 0;
            self.bytes.extend_from_slice(extents.read(self.next)?);
            self.next += 1;
        }
        let left = &self.bytes[self.skipped..];
        Ok(&left[..wanted.min(left.len())])
    }

    fn skip(&mut self, bytes: usize) -> Result<()> {
        let gone = self.look(bytes)?.len();
        self.skipped += gone;
        self.at += gone as u64;
        Ok(())
    }

    /// The bytes of the chunk that begins here, as far as its header says how many they are.
    fn chunk(&mut self, limit: u64) -> Result<&[u8]> {
        let header = ChunkHeader::read(self.look(CHUNK_HEADER)?);
        let len = header.map_or(0, |h| h.len as u64).min(limit - self.at);
        self.look((len as usize).max(CHUNK_HEADER))
    }
}

/// One journal's place in the log.
#[derive(Clone, Copy)]
struct Turn {
    journal: usize,
    header: JournalHeader,
}

/// The header that a journal must have, by its sequence, and the one that may be there instead because it was just being written.
fn headers(job: &Job, ledger: &Ledger, journal: usize) -> (Option<u64>, Option<u64>) {
    let journals = job.journal.files as u64;
    let holds = |sequence: u64| sequence > 0 && (sequence - 1) % journals == journal as u64;
    let oldest = ledger.sequence.saturating_sub(journals - 1).max(1);
    let due = (oldest..=ledger.sequence).find(|s| holds(*s));
    let coming = (ledger.sequence + 1..=ledger.switching).find(|s| holds(*s));
    (due, coming)
}

fn turns(job: &Job, dir: &Path, ledger: &Ledger, report: &mut Findings) -> Result<Vec<Turn>> {
    let mut turns = Vec::new();
    for journal in 0..job.journal.files {
        let mut window = Window::open(job, dir, journal, report)?;
        let header = JournalHeader::decode(window.look(JOURNAL_HEADER)?);
        let (due, coming) = headers(job, ledger, journal);
        match (header, due) {
            (Some(header), due) if due == Some(header.sequence) || coming == Some(header.sequence) => {
                turns.push(Turn { journal, header });
            }
            // Never used, or torn while it was being replaced.
            (None, None) => {}
            (None, Some(_)) if coming.is_some() => {}
            (None, Some(sequence)) => report.add(VerifyFailed::LostJournalHeader { journal, sequence }),
            (Some(header), due) => {
                let wanted = due.or(coming).unwrap_or(0);
                report.add(VerifyFailed::WrongJournal { journal, wanted, found: header.sequence });
            }
        }
    }
    turns.sort_by_key(|t| t.header.sequence);
    if turns.is_empty() {
        report.add(VerifyFailed::NoJournal);
    }
    Ok(turns)
}

/// What the journals hold, from the oldest redo to the end of the log.
pub struct Log {
    pub start: u64,
    pub end: u64,
    pub records: u64,
    /// Turns that the journals hold, by their sequence, and the LSNs at which they start.
    pub turns: Vec<(u64, u64)>,
}

/// Reads the log and hands every record to `each` in order. What is missing of what was acknowledged is reported, and reading
/// goes on behind it.
pub fn read(
    job: &Job,
    dir: &Path,
    ledger: &Ledger,
    report: &mut Findings,
    mut each: impl FnMut(&LogEntry<'_>, &mut Findings),
) -> Result<Log> {
    let turns = turns(job, dir, ledger, report)?;
    let start = turns.first().map_or(0, |t| t.header.start);
    let held = turns.iter().map(|t| (t.header.sequence, t.header.start)).collect();
    let mut log = Log { start, end: start, records: 0, turns: held };
    // The log's first record is the first of all only where the log begins.
    let mut sequence = (start == 0).then_some(1);
    for (i, turn) in turns.iter().enumerate() {
        let next = turns.get(i + 1).map(|t| t.header.start);
        if turn.header.start != log.end {
            let (from, to) = (log.end, turn.header.start);
            report.add(VerifyFailed::LostRedo { from, to, flushed: ledger.flushed });
            log.end = turn.header.start;
            sequence = None;
        }
        let mut window = Window::open(job, dir, turn.journal, report)?;
        window.skip(JOURNAL_HEADER)?;
        // Up to here redo has to be there; the next journal, or what was acknowledged, says so.
        let due = next.unwrap_or(ledger.flushed);
        loop {
            if next == Some(log.end) {
                break;
            }
            let bytes = window.chunk(job.journal.bytes)?;
            if let Some(chunk) = Chunk::at(bytes, log.end, turn.header.sequence) {
                for entry in chunk.records() {
                    match entry {
                        Ok(entry) => {
                            let wanted = sequence.unwrap_or(entry.sequence);
                            if entry.sequence != wanted {
                                let (lsn, found) = (entry.lsn, entry.sequence);
                                report.add(VerifyFailed::WrongSequence { lsn, wanted, found });
                            }
                            sequence = Some(entry.sequence + 1);
                            log.records += 1;
                            each(&entry, report);
                        }
                        Err(RecordError::Checksum) => report.add(VerifyFailed::DamagedRecord(chunk.lsn)),
                        Err(RecordError::Malformed) => report.add(VerifyFailed::MalformedRedo(chunk.lsn)),
                    }
                }
                let len = (chunk.end - log.end) as usize;
                log.end = chunk.end;
                window.skip(len)?;
            } else if log.end < due {
                if let Some(finding) = damage(bytes, log.end, *turn) {
                    report.add(finding);
                }
                let from = log.end;
                resume(job, &mut window, &mut log, turn.header, due)?;
                report.add(VerifyFailed::LostRedo { from, to: log.end, flushed: ledger.flushed });
                sequence = None;
                if log.end >= due {
                    break;
                }
            } else {
                break;
            }
        }
    }
    if log.end < ledger.flushed {
        report.add(VerifyFailed::LostRedo { from: log.end, to: ledger.flushed, flushed: ledger.flushed });
        log.end = ledger.flushed;
    } else if ledger.stop == Stop::Ended && log.end > ledger.flushed {
        let (wanted, found) = (ledger.flushed, log.end);
        report.add(VerifyFailed::LogBeyondEnd { wanted, found });
    }
    Ok(log)
}

/// Goes on to the next whole chunk of the turn before `due`, or to `due`.
fn resume(job: &Job, window: &mut Window, log: &mut Log, header: JournalHeader, due: u64) -> Result<()> {
    loop {
        window.skip(STEP)?;
        let lsn = header.start + window.at - JOURNAL_HEADER as u64;
        if lsn >= due || window.look(CHUNK_HEADER)?.len() < CHUNK_HEADER {
            log.end = due;
            return Ok(());
        }
        if Chunk::at(window.chunk(job.journal.bytes)?, lsn, header.sequence).is_some() {
            log.end = lsn;
            return Ok(());
        }
    }
}

/// What is wrong with a chunk that should be at `lsn`; `None` if there is nothing at all.
fn damage(bytes: &[u8], lsn: u64, turn: Turn) -> Option<VerifyFailed> {
    let header = ChunkHeader::read(bytes)?;
    let wanted = turn.header.sequence;
    let len = header.len as usize;
    if header.sequence != wanted {
        return Some(VerifyFailed::StaleRedo { lsn, wanted, found: header.sequence });
    }
    if header.lsn != lsn {
        let found = header.lsn;
        Chunk::at(bytes, found, wanted)?;
        return Some(if found < lsn {
            VerifyFailed::DuplicatedRedo { lsn, found }
        } else {
            VerifyFailed::MisdirectedRedo { lsn, found }
        });
    }
    let whole = header.records_to(bytes);
    // Never written: zeroes from the beginning of some sector, behind which there should still be records.
    let sector = (whole - lsn) as usize / STEP * STEP;
    let torn = (sector..header.used as usize)
        .step_by(STEP)
        .skip(usize::from(sector == 0))
        .any(|s| bytes.get(s..len.min(bytes.len())).is_none_or(|rest| rest.iter().all(|b| *b == 0)));
    Some(if torn { VerifyFailed::TornRedo { lsn, whole } } else { VerifyFailed::CorruptedRedo { lsn, whole } })
}
