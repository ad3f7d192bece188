//! Acknowledgements that leave the machine: every group commit is sent to a stream before any process learns that it is durable.
//!
//! Invariant: a foreground's acknowledged commits are already in the stream, so a reader of the stream up to some byte knows
//! everything that was acknowledged up to then. The stream ends at a frame boundary or within a torn last frame, which does not
//! count.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::files;
use super::job::Job;
use super::journal::{Chunk, Record};
use super::ledger::{BlockEntry, CommitEntry, Ledger, Stop};
use bigiron_workload::AckSink;

const MAGIC: u32 = 0x4b43_4144;
/// Bytes of a frame's header: magic, checksum of the rest, number of entries, padding, number of the frame, LSN up to which the
/// log is durable, checkpoint, journal's sequence.
const HEADER: usize = 48;
/// Bytes of an entry: process, block (all ones for a commit), version, padding, LSN, transaction.
const ENTRY: usize = 32;
const COMMIT: u32 = u32::MAX;
/// More entries than any redo write has records: a header with a larger number is damaged.
const ENTRIES_MAX: u32 = 1 << 22;

/// The log writer's end of the stream.
pub struct AckStream {
    sink: Box<dyn AckSink>,
    frames: u64,
    frame: Vec<u8>,
}

impl AckStream {
    pub fn new(sink: Box<dyn AckSink>) -> Self {
        Self { sink, frames: 0, frame: Vec::new() }
    }

    /// Sends the records of a sealed chunk that is on disk, in the journal of that sequence, with the checkpoint reached so far.
    /// Must be called before the processes that wait for the chunk are woken.
    pub fn send(&mut self, job: &Job, chunk: &[u8], lsn: u64, sequence: u64, checkpoint: u64) -> Result<()> {
        let chunk = Chunk::at(chunk, lsn, sequence).context("A chunk that was written is not whole")?;
        self.frame.clear();
        self.frame.resize(HEADER, 0);
        for entry in chunk.records() {
            let entry = entry.map_err(|e| anyhow::anyhow!("A record that was written is not whole: {e:?}"))?;
            let (process, block, version, transaction) = match entry.record {
                Record::Change { address, version, process, transaction, .. } => {
                    let number = files::number(job, address).context("Redo names a block that does not exist")?;
                    (process, number, version, transaction)
                }
                Record::Filler { .. } => continue,
                Record::Commit { process, transaction } => (process, COMMIT, 0, transaction),
            };
            for n in [process, block, version, 0] {
                self.frame.extend(n.to_le_bytes());
            }
            for n in [entry.lsn, transaction] {
                self.frame.extend(n.to_le_bytes());
            }
        }
        let entries = ((self.frame.len() - HEADER) / ENTRY) as u32;
        self.frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        self.frame[8..12].copy_from_slice(&entries.to_le_bytes());
        for (at, n) in [(16, self.frames), (24, chunk.end), (32, checkpoint), (40, sequence)] {
            self.frame[at..at + 8].copy_from_slice(&n.to_le_bytes());
        }
        let sum = crc32c::crc32c(&self.frame[8..]);
        self.frame[4..8].copy_from_slice(&sum.to_le_bytes());
        self.frames += 1;
        self.sink.send(&self.frame)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads the next whole frame; `None` at the end of the stream, even in the middle of a frame.
fn next(from: &mut impl Read, number: u64) -> Result<Option<Vec<u8>>> {
    let mut frame = vec![0; HEADER];
    if !fill(from, &mut frame)? || u32_at(&frame, 0) != MAGIC || u32_at(&frame, 8) > ENTRIES_MAX {
        return Ok(None);
    }
    frame.resize(HEADER + u32_at(&frame, 8) as usize * ENTRY, 0);
    let whole = fill(from, &mut frame[HEADER..])? && u32_at(&frame, 4) == crc32c::crc32c(&frame[8..]);
    Ok((whole && u64_at(&frame, 16) == number).then_some(frame))
}

/// Whether there was enough input to fill `bytes`.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e).context("Cannot read the acknowledgements"),
    }
}

/// Builds the ledger of a run of `job` that ended with the machine, from the acknowledgements received.
pub fn load(job: &Job, path: &Path) -> Result<Ledger> {
    let file = File::open(path).with_context(|| format!("Cannot open {}", path.display()))?;
    read(job, &mut BufReader::new(file))
}

fn read(job: &Job, from: &mut impl Read) -> Result<Ledger> {
    let mut ledger = Ledger {
        stop: Stop::Crashed,
        sequence: 1,
        switching: 2,
        commits: vec![CommitEntry::default(); job.transactors()],
        blocks: vec![BlockEntry::default(); job.blocks() as usize],
        ..Ledger::default()
    };
    // Changes of unfinished transactions, by foreground; and changes not yet covered by a checkpoint, by LSN.
    let mut open: Vec<Vec<(u32, u32)>> = vec![Vec::new(); ledger.commits.len()];
    let mut uncovered = std::collections::VecDeque::new();
    let mut frames = 0;
    while let Some(frame) = next(from, frames)? {
        frames += 1;
        ledger.flushed = u64_at(&frame, 24);
        ledger.checkpoint = u64_at(&frame, 32);
        ledger.sequence = u64_at(&frame, 40);
        ledger.switching = ledger.sequence + 1;
        for entry in frame[HEADER..].chunks_exact(ENTRY) {
            let (process, number, version) = (u32_at(entry, 0) as usize, u32_at(entry, 4), u32_at(entry, 8));
            let (lsn, transaction) = (u64_at(entry, 16), u64_at(entry, 24));
            ensure!(
                process < open.len() && (number == COMMIT || number < job.blocks()),
                "The acknowledgements are of another job"
            );
            if number == COMMIT {
                ledger.commits[process] = CommitEntry { transaction, lsn };
                for (number, version) in open[process].drain(..) {
                    let committed = &mut ledger.blocks[number as usize].committed;
                    *committed = version.max(*committed);
                }
            } else {
                open[process].push((number, version));
                uncovered.push_back((lsn, number, version));
            }
        }
        while let Some((lsn, number, version)) = uncovered.front().copied() {
            if lsn > ledger.checkpoint {
                break;
            }
            let written = &mut ledger.blocks[number as usize].written;
            *written = version.max(*written);
            uncovered.pop_front();
        }
    }
    ensure!(frames > 0, "No acknowledgement was received");
    Ok(ledger)
}
