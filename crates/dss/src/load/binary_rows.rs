//! Rows in the binary format of PostgreSQL's `COPY` (its manual, "COPY", "Binary Format"): the server parses neither decimals nor dates.
//!
//! Invariant: rows are passed on in pieces of [`PIECE`] bytes plus at most one row, for tables of any size.

use std::fmt::Display;
use std::io::Write as _;

use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;

use super::rows::Sink;

/// Bytes collected before they are passed on.
const PIECE: usize = 256 << 10;
/// More than the longest row (PARTSUPP: 199 characters of comment).
const ROW: usize = 1 << 10;
/// Days from 1970-01-01 to 2000-01-01, the server's epoch.
const EPOCH_DAYS: i32 = 10_957;
const NEGATIVE: u16 = 0x4000;

/// Encodes rows of one table. `hand` receives pieces of the copy, cut between rows, and their number of rows.
pub(super) struct BinaryRows<H> {
    hand: H,
    columns: i16,
    out: Vec<u8>,
    rows: u64,
    pending: u64,
}

impl<E, H: FnMut(&[u8], u64) -> Result<(), E>> BinaryRows<H> {
    pub(super) fn new(columns: usize, hand: H) -> Self {
        let mut out = Vec::with_capacity(PIECE + ROW);
        out.extend_from_slice(b"PGCOPY\n\xff\r\n\0");
        // No flags, no extension.
        out.extend_from_slice(&[0; 8]);
        Self { hand, columns: columns as i16, out, rows: 0, pending: 0 }
    }

    /// Passes on the rest; returns the number of rows in the whole copy.
    pub(super) fn finish(mut self) -> Result<u64, E> {
        self.out.extend_from_slice(&(-1_i16).to_be_bytes());
        self.hand_over()?;
        Ok(self.rows)
    }

    fn hand_over(&mut self) -> Result<(), E> {
        (self.hand)(&self.out, std::mem::take(&mut self.pending))?;
        self.out.clear();
        Ok(())
    }
}

impl<E, H: FnMut(&[u8], u64) -> Result<(), E>> Sink for BinaryRows<H> {
    type Error = E;

    fn begin(&mut self) {
        self.out.extend_from_slice(&self.columns.to_be_bytes());
    }

    fn integer(&mut self, value: i32) {
        let mut field = [0, 0, 0, 4, 0, 0, 0, 0];
        field[4..].copy_from_slice(&value.to_be_bytes());
        self.out.extend_from_slice(&field);
    }

    fn bigint(&mut self, value: i64) {
        let mut field = [0; 12];
        field[3] = 8;
        field[4..].copy_from_slice(&value.to_be_bytes());
        self.out.extend_from_slice(&field);
    }

    /// Three base-10,000 digits, the last one after the decimal point; the server strips zeros.
    fn decimal(&mut self, value: TPCHDecimal) {
        let hundredths = value.0.unsigned_abs();
        debug_assert!(hundredths < 10_000_000_000, "{value}");
        let digits = [hundredths / 1_000_000, hundredths / 100 % 10_000, hundredths % 100 * 100];
        let sign = if value.is_negative() { NEGATIVE } else { 0 };
        let (weight, decimals) = (1_u16, 2_u16);
        let mut field = [0; 18];
        field[..4].copy_from_slice(&14_i32.to_be_bytes());
        let parts = [digits.len() as u16, weight, sign, decimals].into_iter().chain(digits.map(|digit| digit as u16));
        for (place, part) in field[4..].chunks_exact_mut(2).zip(parts) {
            place.copy_from_slice(&part.to_be_bytes());
        }
        self.out.extend_from_slice(&field);
    }

    fn date(&mut self, value: TPCHDate) {
        self.integer(value.to_unix_epoch() - EPOCH_DAYS);
    }

    fn text(&mut self, value: &str) {
        self.out.extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.out.extend_from_slice(value.as_bytes());
    }

    fn shown(&mut self, value: &dyn Display) {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        write!(self.out, "{value}").expect("Memory is always written");
        let length = (self.out.len() - start - 4) as i32;
        self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn end(&mut self) -> Result<(), E> {
        self.rows += 1;
        self.pending += 1;
        if self.out.len() >= PIECE { self.hand_over() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn fields_are_encoded_as_the_manual_says() {
        let mut all = Vec::new();
        let mut rows = BinaryRows::new(2, |piece: &[u8], count| {
            all.extend_from_slice(piece);
            assert_eq!(count, 2);
            Ok::<(), Infallible>(())
        });
        rows.begin();
        rows.decimal(TPCHDecimal(-123_456_789));
        rows.date(TPCHDate::new(tpchgen::dates::MIN_GENERATE_DATE));
        let Ok(()) = rows.end();
        rows.begin();
        rows.bigint(-2);
        rows.shown(&TPCHDecimal(5));
        let Ok(()) = rows.end();
        assert_eq!(rows.finish(), Ok(2));
        let days = (8035 - 10_957_i32).to_be_bytes();
        let expected = [
            &[0, 2, 0, 0, 0, 14][..],
            // 123 4567 . 8900
            &[0, 3, 0, 1, 0x40, 0, 0, 2, 0, 123, 0x11, 0xd7, 0x22, 0xc4],
            &[0, 0, 0, 4],
            &days,
            &[0, 2, 0, 0, 0, 8, 255, 255, 255, 255, 255, 255, 255, 254],
            b"\0\0\0\x040.05",
            &[255, 255],
        ];
        assert_eq!(all[19..], expected.concat());
    }
}
