//! Rows in the binary format of PostgreSQL's `COPY` (its manual, "COPY", "Binary Format").
//!
//! Invariant: rows are passed on in pieces of [`PIECE`] bytes plus at most one row, whatever the size of the table.

use super::super::population::Sink;

/// Bytes collected before they are passed on.
const PIECE: usize = 256 << 10;
/// More than the longest row (CUSTOMER: 21 fields, 700 bytes of text).
const ROW: usize = 1 << 10;

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

    /// Passes on the rest; returns the rows of the whole copy.
    pub(super) fn finish(mut self) -> Result<u64, E> {
        self.out.extend_from_slice(&(-1i16).to_be_bytes());
        self.hand_over()?;
        Ok(self.rows)
    }

    fn hand_over(&mut self) -> Result<(), E> {
        (self.hand)(&self.out, std::mem::take(&mut self.pending))?;
        self.out.clear();
        Ok(())
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

impl<E, H: FnMut(&[u8], u64) -> Result<(), E>> Sink for BinaryRows<H> {
    type Error = E;

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

    fn end(&mut self) -> Result<(), E> {
        self.rows += 1;
        self.pending += 1;
        if self.out.len() >= PIECE { self.hand_over() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::super::population::{self, values};
    use super::super::super::schema::{TABLES, Table};
    use super::*;
    use bigiron_sql::database::SqlValue;

    /// Decodes a copy as the manual describes it.
    fn decode(table: &Table, mut bytes: &[u8]) -> Vec<Vec<SqlValue>> {
        let mut take = |count: usize| {
            let (now, later) = bytes.split_at(count);
            bytes = later;
            now
        };
        assert_eq!(take(11), b"PGCOPY\n\xff\r\n\0");
        assert_eq!(take(8), [0; 8]);
        let mut rows = Vec::new();
        loop {
            let columns = i16::from_be_bytes(take(2).try_into().unwrap());
            if columns == -1 {
                break;
            }
            assert_eq!(columns as usize, table.columns.len());
            let row = table.columns.iter().map(|(name, kind)| {
                let length = i32::from_be_bytes(take(4).try_into().unwrap());
                if length == -1 {
                    return SqlValue::Null;
                }
                let field = take(length as usize);
                match *kind {
                    "integer" => SqlValue::Integer(i32::from_be_bytes(field.try_into().expect(name)).into()),
                    "bigint" | "timestamp" => SqlValue::Integer(i64::from_be_bytes(field.try_into().expect(name))),
                    _ => SqlValue::Text(String::from_utf8(field.to_vec()).unwrap()),
                }
            });
            rows.push(row.collect());
        }
        assert!(bytes.is_empty());
        rows
    }

    #[test]
    fn a_copy_holds_the_rows_in_small_pieces() {
        for table in TABLES {
            let warehouse = *population::warehouses(table, super::super::super::Scale { warehouses: 2 }).end();
            let (mut copied, mut handed) = (Vec::new(), 0);
            let mut rows = BinaryRows::new(table.columns.len(), |piece: &[u8], rows| {
                assert!(piece.len() < PIECE + ROW, "{}", piece.len());
                copied.extend_from_slice(piece);
                handed += rows;
                Ok::<(), Infallible>(())
            });
            let Ok(()) = population::write(table, warehouse, &mut rows);
            let Ok(count) = rows.finish();
            assert_eq!((count, handed), (population::count(table, warehouse), count), "{}", table.name);
            assert!(decode(table, &copied) == values::rows(table, warehouse), "{}", table.name);
        }
    }

    #[test]
    fn a_refusal_ends_the_rows() {
        let table = &TABLES[0];
        let mut pieces = 0;
        let mut rows = BinaryRows::new(table.columns.len(), |_: &[u8], _| {
            pieces += 1;
            if pieces == 2 { Err("full") } else { Ok(()) }
        });
        assert_eq!(population::write(table, 0, &mut rows), Err("full"));
        drop(rows);
        assert_eq!(pieces, 2);
    }
}
