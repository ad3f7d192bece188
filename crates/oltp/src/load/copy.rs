//! The population's rows in the binary format of PostgreSQL's `COPY`.

use super::super::population::Sink;
use bigiron_sql::pg::binary_rows::BinaryRows;

impl<E, H: FnMut(&[u8], u64) -> Result<(), E>> Sink for BinaryRows<H> {
    type Error = E;

    fn begin(&mut self) {
        self.begin_row();
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
        BinaryRows::null(self);
    }

    fn text(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        self.field(|out| {
            let at = out.len();
            out.resize(at + length, 0);
            fill(&mut out[at..]);
        });
    }

    fn end(&mut self) -> Result<(), E> {
        self.end_row()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::super::population::{self, values};
    use super::super::super::schema::{TABLES, Table};
    use super::*;
    use bigiron_sql::database::SqlValue;
    use bigiron_sql::pg::binary_rows::PIECE;

    /// CUSTOMER: 21 fields, 700 bytes of text.
    const LONGEST_ROW: usize = 1 << 10;

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
                assert!(piece.len() < PIECE + LONGEST_ROW, "{}", piece.len());
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
