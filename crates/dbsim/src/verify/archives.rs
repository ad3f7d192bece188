//! The archives of full journals: each that the log writer was told of is there under its name, whole, and joins the next.
//!
//! Invariant: as with journals, memory does not grow with them: one chunk at a time.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Findings;
use super::finding::VerifyFailed;
use super::journals::Log;
use crate::archiver;
use crate::job::Job;
use crate::journal::{CHUNK_HEADER, Chunk, ChunkHeader, JOURNAL_HEADER, JournalHeader};
use crate::ledger::Ledger;

/// Checks every archive that is still kept. Returns how many there are.
pub fn check(job: &Job, dir: &Path, ledger: &Ledger, log: &Log, report: &mut Findings) -> Result<u64> {
    let first = ledger.archived.saturating_sub(archiver::KEPT - 1).max(1);
    // Where the next has to begin, in the log and in the sequence of records.
    let mut next: Option<(u64, u64)> = None;
    let mut whole = 0;
    for turn in first..=ledger.archived {
        let path = archiver::path(dir, turn);
        let file = match File::open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                report.add(VerifyFailed::LostArchive { turn });
                next = None;
                continue;
            }
            other => other.with_context(|| format!("Cannot open {}", path.display()))?,
        };
        match read(job, turn, &mut BufReader::new(file)).with_context(|| format!("Cannot read {}", path.display()))? {
            Some(archive) => {
                let joins = next.is_none_or(|n| n == (archive.start, archive.first));
                if !joins {
                    report.add(VerifyFailed::DamagedArchive { turn, lsn: archive.start });
                }
                whole += u64::from(joins);
                next = Some((archive.end, archive.last + 1));
            }
            None => {
                report.add(VerifyFailed::DamagedArchive { turn, lsn: next.map_or(0, |n| n.0) });
                next = None;
            }
        }
    }
    // The last one ends where the journal's next turn starts.
    if let (Some((end, _)), Some((_, start))) = (next, log.turns.iter().find(|t| t.0 == ledger.archived + 1))
        && end != *start
    {
        report.add(VerifyFailed::DamagedArchive { turn: ledger.archived, lsn: end });
        whole = whole.saturating_sub(1);
    }
    Ok(whole)
}

/// What an archive holds.
struct Archive {
    start: u64,
    end: u64,
    /// Sequences of its first and last record.
    first: u64,
    last: u64,
}

/// Reads an archive; `None` if it is not whole, or of another turn. It ends where its chunks do: the next one tells whether that
/// is where it should.
fn read(job: &Job, turn: u64, from: &mut impl Read) -> std::io::Result<Option<Archive>> {
    let mut bytes = vec![0; JOURNAL_HEADER];
    if !fill(from, &mut bytes)? {
        return Ok(None);
    }
    let Some(header) = JournalHeader::decode(&bytes).filter(|h| h.sequence == turn) else { return Ok(None) };
    let mut archive = Archive { start: header.start, end: header.start, first: 0, last: 0 };
    loop {
        bytes.resize(CHUNK_HEADER, 0);
        let begins = fill(from, &mut bytes)?;
        // Behind the last chunk there may be what an earlier turn had left, up to the end of the page.
        let Some(chunk) = ChunkHeader::read(&bytes).filter(|c| begins && (c.lsn, c.sequence) == (archive.end, turn))
        else {
            return Ok((archive.first > 0).then_some(archive));
        };
        if u64::from(chunk.len) > job.journal.bytes || (chunk.len as usize) < CHUNK_HEADER {
            return Ok(None);
        }
        bytes.resize(chunk.len as usize, 0);
        if !fill(from, &mut bytes[CHUNK_HEADER..])? {
            return Ok(None);
        }
        let Some(chunk) = Chunk::at(&bytes, archive.end, turn) else { return Ok(None) };
        for entry in chunk.records() {
            let Ok(entry) = entry else { return Ok(None) };
            if archive.first == 0 {
                archive.first = entry.sequence;
            } else if entry.sequence != archive.last + 1 {
                return Ok(None);
            }
            archive.last = entry.sequence;
        }
        archive.end = chunk.end;
    }
}

/// Whether there was enough to fill `bytes`.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<bool> {
    match from.read_exact(bytes) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}
