//! The journals' format: a header page, then chunks, each what one redo write carried.
//!
//! Invariant: a chunk holds whole records, and says with a checksum whether it is whole itself. LSNs are byte positions in the
//! endless log; chunks of a journal follow each other without a gap.

use super::block::{Address, Extent, Stamp};

/// Bytes in front of a journal's first chunk.
pub const JOURNAL_HEADER: usize = 4096;
/// Bytes of a chunk's header.
pub const CHUNK_HEADER: usize = 32;
/// Bytes of a record without payload.
pub const RECORD_HEADER: usize = 40;
const JOURNAL_MAGIC: u32 = 0x4a53_4244;
const CHUNK_MAGIC: u32 = 0x4353_4244;
const CHANGE: u32 = 1;
const COMMIT: u32 = 2;

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What a journal says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// Counts log switches, from 1.
    pub sequence: u64,
    /// LSN of the first chunk.
    pub start: u64,
}

impl JournalHeader {
    pub fn encode(self, page: &mut [u8]) {
        page[..JOURNAL_HEADER].fill(0);
        put(page, 0, &JOURNAL_MAGIC.to_le_bytes());
        put(page, 8, &self.sequence.to_le_bytes());
        put(page, 16, &self.start.to_le_bytes());
        let sum = crc32c::crc32c(&page[8..JOURNAL_HEADER]);
        put(page, 4, &sum.to_le_bytes());
    }

    /// `None` if this is not a whole journal header.
    pub fn decode(journal: &[u8]) -> Option<Self> {
        let page = journal.get(..JOURNAL_HEADER)?;
        let whole = u32_at(page, 0)? == JOURNAL_MAGIC && u32_at(page, 4)? == crc32c::crc32c(&page[8..]);
        if whole { Some(Self { sequence: u64_at(page, 8)?, start: u64_at(page, 16)? }) } else { None }
    }
}

/// Turns `chunk`, whose records begin after CHUNK_HEADER bytes and which is padded to the redo block, into a chunk at `lsn`.
pub fn seal_chunk(chunk: &mut [u8], used: usize, lsn: u64, sequence: u64) {
    put(chunk, 0, &CHUNK_MAGIC.to_le_bytes());
    put(chunk, 8, &lsn.to_le_bytes());
    put(chunk, 16, &(chunk.len() as u32).to_le_bytes());
    put(chunk, 20, &(used as u32).to_le_bytes());
    put(chunk, 24, &sequence.to_le_bytes());
    let sum = crc32c::crc32c(&chunk[8..]);
    put(chunk, 4, &sum.to_le_bytes());
}

/// A whole chunk of a journal.
pub struct Chunk<'a> {
    records: &'a [u8],
    /// LSN behind the chunk's last byte.
    pub end: u64,
}

/// The chunks of a journal, from its first to the last whole one in unbroken order.
pub struct Chunks<'a> {
    rest: &'a [u8],
    lsn: u64,
    sequence: u64,
}

impl<'a> Chunks<'a> {
    pub fn new(journal: &'a [u8], header: JournalHeader) -> Self {
        Self { rest: &journal[JOURNAL_HEADER..], lsn: header.start, sequence: header.sequence }
    }

    fn take(&mut self) -> Option<Chunk<'a>> {
        let len = u32_at(self.rest, 16)? as usize;
        let chunk = self.rest.get(..len).filter(|c| c.len() >= CHUNK_HEADER)?;
        let whole = u32_at(chunk, 0)? == CHUNK_MAGIC
            && u64_at(chunk, 8)? == self.lsn
            && u64_at(chunk, 24)? == self.sequence
            && u32_at(chunk, 4)? == crc32c::crc32c(&chunk[8..]);
        if !whole {
            return None;
        }
        let records = chunk.get(CHUNK_HEADER..u32_at(chunk, 20)? as usize)?;
        self.rest = &self.rest[len..];
        self.lsn += len as u64;
        Some(Chunk { records, end: self.lsn })
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;
    fn next(&mut self) -> Option<Chunk<'a>> {
        self.take()
    }
}

/// A redo record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// `payload` went to `offset` of a block, which became `version`.
    Change { address: Address, version: u32, process: u32, transaction: u64, offset: usize, payload: &'a [u8] },
    /// Everything that the transaction did is in the log before this.
    Commit { process: u32, transaction: u64 },
}

/// Bytes of the record of a change of `len` bytes.
pub fn change_bytes(len: usize) -> usize {
    RECORD_HEADER + len.next_multiple_of(8)
}

fn header(out: &mut [u8], len: usize, kind: u32, process: u32, transaction: u64) {
    out[..RECORD_HEADER].fill(0);
    put(out, 0, &(len as u32).to_le_bytes());
    put(out, 4, &kind.to_le_bytes());
    put(out, 8, &process.to_le_bytes());
    put(out, 16, &transaction.to_le_bytes());
}

/// Writes a change record to the start of `out` and returns its length. The stamp's LSN is not part of it.
pub fn encode_change(out: &mut [u8], address: Address, stamp: Stamp, extent: Extent, payload: &[u8]) -> usize {
    let len = change_bytes(payload.len());
    header(out, len, CHANGE, stamp.process, stamp.transaction);
    put(out, 12, &stamp.version.to_le_bytes());
    put(out, 24, &address.file.to_le_bytes());
    put(out, 28, &address.block.to_le_bytes());
    put(out, 32, &(extent.offset as u32).to_le_bytes());
    put(out, 36, &(extent.len as u32).to_le_bytes());
    put(out, RECORD_HEADER, payload);
    out[RECORD_HEADER + payload.len()..len].fill(0);
    len
}

/// Writes a commit record to the start of `out` and returns its length.
pub fn encode_commit(out: &mut [u8], process: u32, transaction: u64) -> usize {
    header(out, RECORD_HEADER, COMMIT, process, transaction);
    RECORD_HEADER
}

impl<'a> Chunk<'a> {
    /// The records in order; `None` if one is malformed, which a whole chunk's cannot be.
    pub fn records(&self) -> Option<Vec<Record<'a>>> {
        let mut rest = self.records;
        let mut records = Vec::new();
        while !rest.is_empty() {
            let len = u32_at(rest, 0)? as usize;
            let record = rest.get(..len).filter(|r| r.len() >= RECORD_HEADER)?;
            let (process, transaction) = (u32_at(record, 8)?, u64_at(record, 16)?);
            records.push(match u32_at(record, 4)? {
                CHANGE => Record::Change {
                    address: Address { file: u32_at(record, 24)?, block: u32_at(record, 28)? },
                    version: u32_at(record, 12)?,
                    process,
                    transaction,
                    offset: u32_at(record, 32)? as usize,
                    payload: record.get(RECORD_HEADER..RECORD_HEADER + u32_at(record, 36)? as usize)?,
                },
                COMMIT => Record::Commit { process, transaction },
                _ => return None,
            });
            rest = &rest[len..];
        }
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: JournalHeader = JournalHeader { sequence: 5, start: 8192 };

    fn journal() -> Vec<u8> {
        let mut journal = vec![0; JOURNAL_HEADER];
        HEADER.encode(&mut journal);
        let mut lsn = HEADER.start;
        for transaction in 1..=3u64 {
            let mut chunk = vec![0; 1024];
            let stamp = Stamp { version: 9, lsn: 0, process: 2, transaction };
            let extent = Extent { offset: 100, len: 301 };
            let mut used = CHUNK_HEADER;
            used += encode_change(&mut chunk[used..], Address { file: 1, block: 7 }, stamp, extent, &[3; 301]);
            used += encode_commit(&mut chunk[used..], 2, transaction);
            seal_chunk(&mut chunk, used, lsn, HEADER.sequence);
            lsn += 1024;
            journal.extend(chunk);
        }
        journal.extend([0; 512]);
        journal
    }

    #[test]
    fn what_was_written_is_read() {
        let journal = journal();
        let header = JournalHeader::decode(&journal).unwrap();
        assert_eq!(header, HEADER);
        let chunks: Vec<_> = Chunks::new(&journal, header).collect();
        assert_eq!((chunks.len(), chunks[2].end), (3, 8192 + 3 * 1024));
        assert_eq!(
            chunks[1].records().unwrap(),
            [
                Record::Change {
                    address: Address { file: 1, block: 7 },
                    version: 9,
                    process: 2,
                    transaction: 2,
                    offset: 100,
                    payload: &[3; 301]
                },
                Record::Commit { process: 2, transaction: 2 }
            ]
        );
    }

    #[test]
    fn the_log_ends_at_the_first_chunk_that_is_not_whole() {
        for (at, left) in
            [(JOURNAL_HEADER + 40, 0), (JOURNAL_HEADER + 1024 + 600, 1), (JOURNAL_HEADER + 2048 + 1023, 2)]
        {
            let mut journal = journal();
            journal[at] ^= 0x40;
            assert_eq!(Chunks::new(&journal, HEADER).count(), left, "byte {at}");
        }
        let mut short = journal();
        short.truncate(JOURNAL_HEADER + 2048 + 512);
        assert_eq!(Chunks::new(&short, HEADER).count(), 2);
        let next_round = JournalHeader { sequence: 7, start: 8192 };
        assert_eq!(Chunks::new(&journal(), next_round).count(), 0);
    }

    #[test]
    fn a_torn_header_is_none() {
        let mut journal = journal();
        journal[16] ^= 1;
        assert_eq!(JournalHeader::decode(&journal), None);
    }
}
