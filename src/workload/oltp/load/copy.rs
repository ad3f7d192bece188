//! Rows in the binary format of PostgreSQL's `COPY` (its manual, "COPY", "Binary Format").
//!
//! Invariant: rows go to the server in pieces of [`PIECE`] bytes and little more, whatever the size of the table.

use super::super::pg::{CopyIn, PgError};
use super::super::population::Sink;

/// Bytes that are gathered before they are handed to the connection.
const PIECE: usize = 256 << 10;
/// More than the longest row (CUSTOMER: 21 fields, 700 bytes of text).
const ROW: usize = 1 << 10;

/// Rows of one table on their way.
pub(super) struct Rows<'c, F> {
    copy: CopyIn<'c>,
    columns: i16,
    out: Vec<u8>,
    rows: u64,
    /// Told of rows as they are handed over; false ends the load.
    handed: F,
    pending: u64,
}

/// Why rows were not taken.
pub(super) enum Refused {
    Server(PgError),
    GivenUp,
}

impl<'c, F: FnMut(u64) -> bool> Rows<'c, F> {
    pub(super) fn new(copy: CopyIn<'c>, columns: usize, handed: F) -> Self {
        let mut out = Vec::with_capacity(PIECE + ROW);
        out.extend_from_slice(b"PGCOPY\n\xff\r\n\0");
        // No flags, no extension.
        out.extend_from_slice(&[0; 8]);
        Self { copy, columns: columns as i16, out, rows: 0, handed, pending: 0 }
    }

    /// Ends the copy; its rows, as many as the server says that it took.
    pub(super) fn finish(mut self) -> Result<u64, Refused> {
        self.out.extend_from_slice(&(-1i16).to_be_bytes());
        self.hand_over()?;
        let taken = self.copy.finish().map_err(Refused::Server)?;
        if taken != self.rows {
            let text = format!("the server says that it took {taken} rows of {}", self.rows);
            return Err(Refused::Server(PgError::Protocol(text)));
        }
        Ok(taken)
    }

    fn hand_over(&mut self) -> Result<(), Refused> {
        self.copy.write(&self.out).map_err(Refused::Server)?;
        self.out.clear();
        let rows = std::mem::take(&mut self.pending);
        if (self.handed)(rows) { Ok(()) } else { Err(Refused::GivenUp) }
    }

    fn four(&mut self, value: [u8; 4]) {
        let mut field = [0, 0, 0, 4, 0, 0, 0, 0];
        field[4..].copy_from_slice(&value);
        self.out.extend_from_slice(&field);
    }

    fn eight(&mut self, value: [u8; 8]) {
        let mut field = [0; 12];
        field[3] = 8;
        field[4..].copy_from_slice(&value);
        self.out.extend_from_slice(&field);
    }
}

impl<F: FnMut(u64) -> bool> Sink for Rows<'_, F> {
    type Error = Refused;

    fn begin(&mut self) {
        self.out.extend_from_slice(&self.columns.to_be_bytes());
    }

    fn integer(&mut self, value: i32) {
        self.four(value.to_be_bytes());
    }

    fn bigint(&mut self, value: i64) {
        self.eight(value.to_be_bytes());
    }

    fn date(&mut self, value: i64) {
        self.eight(value.to_be_bytes());
    }

    fn null(&mut self) {
        self.out.extend_from_slice(&(-1i32).to_be_bytes());
    }

    fn text(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        self.out.extend_from_slice(&(length as i32).to_be_bytes());
        let at = self.out.len();
        self.out.resize(at + length, 0);
        fill(&mut self.out[at..]);
    }

    fn end(&mut self) -> Result<(), Refused> {
        self.rows += 1;
        self.pending += 1;
        if self.out.len() >= PIECE { self.hand_over() } else { Ok(()) }
    }
}
