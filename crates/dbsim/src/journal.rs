//! The journals' format: a header page, then chunks, each the contents of one redo write.
//!
//! Invariant: a chunk holds whole records, and has a checksum. LSNs are byte positions in the endless log; chunks of a journal
//! follow each other without a gap. Records are numbered from 1 without a gap over all journals, and each has its own checksum,
//! computed before the record enters the log buffer, so that damage there is detected too.

use super::block::{Address, ByteRange, Stamp};
use super::checksum;

/// Bytes in front of a journal's first chunk.
pub const JOURNAL_HEADER: usize = 4096;
/// Bytes of a chunk's header.
pub const CHUNK_HEADER: usize = 32;
/// Bytes of a record without payload.
pub const RECORD_HEADER: usize = 56;
const JOURNAL_MAGIC: u32 = 0x4a53_4244;
const CHUNK_MAGIC: u32 = 0x4353_4244;
const CHANGE: u32 = 1;
const COMMIT: u32 = 2;
const FILLER: u32 = 3;

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The header of a journal.
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

/// The header of a chunk, whether the chunk is whole or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    pub lsn: u64,
    /// Bytes of the chunk, and those of header and records.
    pub len: u32,
    pub used: u32,
    /// The sequence of the journal's turn.
    pub sequence: u64,
}

impl ChunkHeader {
    /// `None` if `bytes` do not begin with a chunk's magic.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (lsn, len, used) = (u64_at(bytes, 8)?, u32_at(bytes, 16)?, u32_at(bytes, 20)?);
        let header = Self { lsn, len, used, sequence: u64_at(bytes, 24)? };
        (u32_at(bytes, 0)? == CHUNK_MAGIC && used <= len && used as usize >= CHUNK_HEADER).then_some(header)
    }

    /// LSN up to which the records of this possibly damaged chunk are whole.
    pub fn records_to(&self, bytes: &[u8]) -> u64 {
        let end = bytes.len().min(self.used as usize);
        let records = Chunk { records: &bytes[CHUNK_HEADER.min(end)..end], lsn: self.lsn, end: 0 }.records();
        records.map_while(Result::ok).last().map_or(self.lsn, |entry| entry.lsn)
    }
}

/// A whole chunk of a journal.
pub struct Chunk<'a> {
    records: &'a [u8],
    /// LSN of the chunk's first byte.
    pub lsn: u64,
    /// LSN after the chunk's last byte.
    pub end: u64,
}

/// The chunks of a journal, from its first to the last whole one without a gap.
#[cfg(test)]
pub struct Chunks<'a> {
    rest: &'a [u8],
    lsn: u64,
    sequence: u64,
}

#[cfg(test)]
impl<'a> Chunks<'a> {
    pub fn new(journal: &'a [u8], header: JournalHeader) -> Self {
        Self { rest: &journal[JOURNAL_HEADER..], lsn: header.start, sequence: header.sequence }
    }

    fn take(&mut self) -> Option<Chunk<'a>> {
        let chunk = Chunk::at(self.rest, self.lsn, self.sequence)?;
        self.rest = &self.rest[(chunk.end - chunk.lsn) as usize..];
        self.lsn = chunk.end;
        Some(chunk)
    }
}

#[cfg(test)]
impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;
    fn next(&mut self) -> Option<Chunk<'a>> {
        self.take()
    }
}

/// A redo record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// `payload` was written at `offset` of a block, which became `version`.
    Change { address: Address, version: u32, process: u32, transaction: u64, offset: usize, payload: &'a [u8] },
    /// Everything that the transaction did is in the log before this record.
    Commit { process: u32, transaction: u64 },
    /// Redo that changes no block, such as that of indexes and undo.
    Filler { process: u32, transaction: u64 },
}

/// A record and its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry<'a> {
    pub sequence: u64,
    /// LSN after the record.
    pub lsn: u64,
    pub record: Record<'a>,
}

/// An error in a record of a whole chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// Its checksum is wrong: it was damaged before the chunk was sealed.
    Checksum,
    /// It is whole, but malformed.
    Malformed,
}

/// Bytes of the record of a change of `len` bytes.
pub fn change_bytes(len: usize) -> usize {
    RECORD_HEADER + len.next_multiple_of(8)
}

fn header(out: &mut [u8], len: usize, kind: u32, process: u32, transaction: u64) {
    out[..RECORD_HEADER].fill(0);
    put(out, 0, &(len as u32).to_le_bytes());
    put(out, 16, &kind.to_le_bytes());
    put(out, 20, &process.to_le_bytes());
    put(out, 24, &transaction.to_le_bytes());
}

/// CRC-32C of a record without its checksum and sequence; the sequence is added last, so that the long part can be computed
/// before it is known.
fn digest(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[16..])
}

/// Must be called last when a record is encoded: stores the checksum as far as it is known without the sequence.
fn finish(record: &mut [u8]) -> usize {
    let sum = digest(record);
    put(record, 4, &sum.to_le_bytes());
    record.len()
}

/// Gives an encoded record its sequence, and with it its final checksum. Cheap enough to do under the log buffer's latch.
pub fn number_record(record: &mut [u8], sequence: u64) {
    let digest = u32::from_le_bytes(record[4..8].try_into().expect("four bytes"));
    let sum = crc32c::crc32c_append(digest, &sequence.to_le_bytes());
    put(record, 4, &sum.to_le_bytes());
    put(record, 8, &sequence.to_le_bytes());
}

/// Writes a change record to the start of `out` and returns its length. The stamp's LSN is not part of it.
pub fn encode_change(out: &mut [u8], address: Address, stamp: Stamp, extent: ByteRange, payload: &[u8]) -> usize {
    let len = change_bytes(payload.len());
    header(out, len, CHANGE, stamp.process, stamp.transaction);
    put(out, 32, &stamp.version.to_le_bytes());
    put(out, 36, &address.file.to_le_bytes());
    put(out, 40, &address.block.to_le_bytes());
    put(out, 44, &(extent.offset as u32).to_le_bytes());
    put(out, 48, &(extent.len as u32).to_le_bytes());
    put(out, RECORD_HEADER, payload);
    out[RECORD_HEADER + payload.len()..len].fill(0);
    finish(&mut out[..len])
}

/// Writes a commit record to the start of `out` and returns its length.
pub fn encode_commit(out: &mut [u8], process: u32, transaction: u64) -> usize {
    header(out, RECORD_HEADER, COMMIT, process, transaction);
    finish(&mut out[..RECORD_HEADER])
}

/// Bytes of a filler record that stands for `bytes` of redo.
pub fn filler_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(8).max(RECORD_HEADER)
}

/// Writes a filler record for `bytes` of redo to the start of `out`, with the present contents as its payload, and returns its
/// length.
pub fn encode_filler(out: &mut [u8], process: u32, transaction: u64, bytes: usize) -> usize {
    let len = filler_bytes(bytes);
    header(out, len, FILLER, process, transaction);
    finish(&mut out[..len])
}

impl<'a> Chunk<'a> {
    /// The chunk at the start of `bytes`, if it is whole and the one at `lsn` in the journal of that sequence.
    pub fn at(bytes: &'a [u8], lsn: u64, sequence: u64) -> Option<Self> {
        let len = u32_at(bytes, 16)? as usize;
        let chunk = bytes.get(..len).filter(|c| c.len() >= CHUNK_HEADER)?;
        let whole = u32_at(chunk, 0)? == CHUNK_MAGIC
            && u64_at(chunk, 8)? == lsn
            && u64_at(chunk, 24)? == sequence
            && u32_at(chunk, 4)? == checksum::unmeasured(&chunk[8..]);
        if !whole {
            return None;
        }
        let records = chunk.get(CHUNK_HEADER..u32_at(chunk, 20)? as usize)?;
        Some(Chunk { records, lsn, end: lsn + len as u64 })
    }

    /// The records in order. After an error there are no more.
    pub fn records(&self) -> Records<'a> {
        Records { rest: self.records, lsn: self.lsn + CHUNK_HEADER as u64 }
    }
}

/// The records of a chunk.
pub struct Records<'a> {
    rest: &'a [u8],
    /// LSN of the next one.
    lsn: u64,
}

impl<'a> Records<'a> {
    fn take(&mut self) -> Result<LogEntry<'a>, RecordError> {
        let cut = |rest: &'a [u8]| {
            let len = u32_at(rest, 0)? as usize;
            rest.split_at_checked(len).filter(|(record, _)| record.len() >= RECORD_HEADER)
        };
        let (record, rest) = cut(self.rest).ok_or(RecordError::Malformed)?;
        let sequence = u64_at(record, 8).ok_or(RecordError::Malformed)?;
        if u32_at(record, 4) != Some(crc32c::crc32c_append(digest(record), &sequence.to_le_bytes())) {
            return Err(RecordError::Checksum);
        }
        self.rest = rest;
        self.lsn += record.len() as u64;
        Ok(LogEntry { sequence, lsn: self.lsn, record: decode(record).ok_or(RecordError::Malformed)? })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<LogEntry<'a>, RecordError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}

fn decode(record: &[u8]) -> Option<Record<'_>> {
    let (process, transaction) = (u32_at(record, 20)?, u64_at(record, 24)?);
    Some(match u32_at(record, 16)? {
        CHANGE => Record::Change {
            address: Address { file: u32_at(record, 36)?, block: u32_at(record, 40)? },
            version: u32_at(record, 32)?,
            process,
            transaction,
            offset: u32_at(record, 44)? as usize,
            payload: record.get(RECORD_HEADER..RECORD_HEADER + u32_at(record, 48)? as usize)?,
        },
        COMMIT => Record::Commit { process, transaction },
        FILLER => Record::Filler { process, transaction },
        _ => return None,
    })
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
            let extent = ByteRange { offset: 100, len: 301 };
            let mut used = CHUNK_HEADER;
            let mut number = |chunk: &mut [u8], len, sequence| {
                number_record(&mut chunk[used..used + len], sequence);
                used += len;
            };
            let change = &mut chunk[CHUNK_HEADER..];
            let len = encode_change(change, Address { file: 1, block: 7 }, stamp, extent, &[3; 301]);
            number(&mut chunk, len, 2 * transaction - 1);
            let len = encode_commit(&mut chunk[CHUNK_HEADER + len..], 2, transaction);
            number(&mut chunk, len, 2 * transaction);
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
        let change = Record::Change {
            address: Address { file: 1, block: 7 },
            version: 9,
            process: 2,
            transaction: 2,
            offset: 100,
            payload: &[3; 301],
        };
        let lsn = 8192 + 1024 + CHUNK_HEADER as u64 + change_bytes(301) as u64;
        let commit = Record::Commit { process: 2, transaction: 2 };
        assert_eq!(
            chunks[1].records().collect::<Vec<_>>(),
            [
                Ok(LogEntry { sequence: 3, lsn, record: change }),
                Ok(LogEntry { sequence: 4, lsn: lsn + RECORD_HEADER as u64, record: commit })
            ]
        );
    }

    #[test]
    fn a_filler_is_as_long_as_was_asked_for() {
        for (bytes, len) in [(1, RECORD_HEADER), (RECORD_HEADER + 1, RECORD_HEADER + 8), (4_000, 4_000)] {
            let mut chunk = vec![7; 8_192];
            assert_eq!(encode_filler(&mut chunk[CHUNK_HEADER..], 2, 9, bytes), len);
            number_record(&mut chunk[CHUNK_HEADER..][..len], 1);
            seal_chunk(&mut chunk, CHUNK_HEADER + len, 0, 1);
            let records: Vec<_> = Chunk::at(&chunk, 0, 1).unwrap().records().collect();
            let record = Record::Filler { process: 2, transaction: 9 };
            assert_eq!(records, [Ok(LogEntry { sequence: 1, lsn: (CHUNK_HEADER + len) as u64, record })]);
        }
    }

    #[test]
    fn a_record_damaged_before_its_chunk_was_sealed_is_found_out() {
        let journal = journal();
        let first = JOURNAL_HEADER..JOURNAL_HEADER + 1024;
        let used = CHUNK_HEADER + change_bytes(301) + RECORD_HEADER;
        for at in CHUNK_HEADER..used {
            let mut chunk = journal[first.clone()].to_vec();
            chunk[at] ^= 0x10;
            seal_chunk(&mut chunk, used, HEADER.start, HEADER.sequence);
            let records: Vec<_> = Chunk::at(&chunk, HEADER.start, HEADER.sequence).unwrap().records().collect();
            assert!(records.last().unwrap().is_err(), "byte {at}");
        }
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
