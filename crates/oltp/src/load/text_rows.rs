//! Rows as text, for servers without binary `COPY`: PostgreSQL's text format, or `INSERT`.
//!
//! Invariant: the rows equal those of the binary copy, field for field; pieces are cut between rows.

use super::super::population::Sink;

/// Bytes collected before they are passed on; and rows of one `INSERT`.
const PIECE: usize = 256 << 10;
const INSERTED: u64 = 500;
/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i64 = 10_957;
const DAY_US: i64 = 86_400_000_000;

/// Encodes rows of one table. `hand` receives pieces of a copy, or whole statements, and their number of rows.
pub(super) struct TextRows<H> {
    hand: H,
    /// The table, if rows are inserted.
    insert_into: Option<&'static str>,
    out: Vec<u8>,
    in_row: bool,
    rows: u64,
    pending: u64,
}

impl<E, H: FnMut(&[u8], u64) -> Result<(), E>> TextRows<H> {
    /// For `COPY … (FORMAT text)`.
    pub(super) fn copy(hand: H) -> Self {
        Self { hand, insert_into: None, out: Vec::with_capacity(PIECE), in_row: false, rows: 0, pending: 0 }
    }

    /// As statements.
    pub(super) fn insert(table: &'static str, hand: H) -> Self {
        Self { insert_into: Some(table), ..Self::copy(hand) }
    }

    /// Passes on the rest; returns the rows of the whole table.
    pub(super) fn finish(mut self) -> Result<u64, E> {
        if self.pending > 0 {
            self.hand_over()?;
        }
        Ok(self.rows)
    }

    fn hand_over(&mut self) -> Result<(), E> {
        (self.hand)(&self.out, std::mem::take(&mut self.pending))?;
        self.out.clear();
        Ok(())
    }

    fn field(&mut self) {
        let between = if self.insert_into.is_some() { b',' } else { b'\t' };
        if std::mem::replace(&mut self.in_row, true) {
            self.out.push(between);
        }
    }

    fn plain(&mut self, text: &str) {
        self.field();
        self.out.extend_from_slice(text.as_bytes());
    }
}

impl<E, H: FnMut(&[u8], u64) -> Result<(), E>> Sink for TextRows<H> {
    type Error = E;

    fn begin(&mut self) {
        self.in_row = false;
        match self.insert_into {
            Some(table) if self.pending == 0 => {
                self.out.extend_from_slice(format!("INSERT INTO {table} VALUES (").as_bytes());
            }
            Some(_) => self.out.extend_from_slice(b",("),
            None => {}
        }
    }

    fn integer(&mut self, value: i32) {
        self.plain(&value.to_string());
    }

    fn bigint(&mut self, value: i64) {
        self.plain(&value.to_string());
    }

    fn date(&mut self, value: i64) {
        let date = timestamp(value);
        self.plain(&if self.insert_into.is_some() { format!("'{date}'") } else { date });
    }

    fn null(&mut self) {
        self.plain(if self.insert_into.is_some() { "NULL" } else { "\\N" });
    }

    fn text(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        self.field();
        let mut text = vec![0; length];
        fill(&mut text);
        let is_insert = self.insert_into.is_some();
        self.out.extend(is_insert.then_some(b'\''));
        for byte in text {
            match byte {
                b'\'' if is_insert => self.out.extend_from_slice(b"''"),
                b'\\' if !is_insert => self.out.extend_from_slice(b"\\\\"),
                b'\t' if !is_insert => self.out.extend_from_slice(b"\\t"),
                b'\n' if !is_insert => self.out.extend_from_slice(b"\\n"),
                b'\r' if !is_insert => self.out.extend_from_slice(b"\\r"),
                other => self.out.push(other),
            }
        }
        self.out.extend(is_insert.then_some(b'\''));
    }

    fn end(&mut self) -> Result<(), E> {
        self.rows += 1;
        self.pending += 1;
        let is_full = match self.insert_into {
            Some(_) => {
                self.out.push(b')');
                self.pending >= INSERTED
            }
            None => {
                self.out.push(b'\n');
                self.out.len() >= PIECE
            }
        };
        if is_full { self.hand_over() } else { Ok(()) }
    }
}

/// Microseconds since 2000-01-01 in ISO 8601 (days to dates: Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub fn timestamp(micros: i64) -> String {
    let (days, rest) = (micros.div_euclid(DAY_US) + EPOCH_DAYS, micros.rem_euclid(DAY_US));
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * from_march + 2) / 5 + 1, (from_march + 2) % 12 + 1);
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{micros:06}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn rows(words: impl Fn(&mut dyn FnMut(&[u8], u64)) -> u64) -> (String, u64, u64) {
        let (mut all, mut handed) = (Vec::new(), 0);
        let count = words(&mut |piece, rows| {
            all.extend_from_slice(piece);
            all.push(b'|');
            handed += rows;
        });
        (String::from_utf8(all).unwrap(), handed, count)
    }

    fn write<H: FnMut(&[u8], u64) -> Result<(), Infallible>>(mut words: TextRows<H>, count: i32) -> u64 {
        for n in 0..count {
            words.begin();
            words.integer(n);
            words.bigint(-5);
            words.date(1);
            words.null();
            words.text(4, |text| text.copy_from_slice(b"a'\\\t"));
            let Ok(()) = words.end();
        }
        let Ok(count) = words.finish();
        count
    }

    #[test]
    fn both_forms_hold_every_field() {
        let (text, handed, count) = rows(|hand| {
            write(
                TextRows::copy(|piece: &[u8], n| {
                    hand(piece, n);
                    Ok::<(), Infallible>(())
                }),
                2,
            )
        });
        assert_eq!((handed, count), (2, 2));
        assert_eq!(
            text,
            "0\t-5\t2000-01-01 00:00:00.000001\t\\N\ta'\\\\\\t\n1\t-5\t2000-01-01 00:00:00.000001\t\\N\ta'\\\\\\t\n|"
        );
        let (text, handed, count) = rows(|hand| {
            write(
                TextRows::insert("t", |piece: &[u8], n| {
                    hand(piece, n);
                    Ok::<(), Infallible>(())
                }),
                501,
            )
        });
        assert_eq!((handed, count, text.matches("INSERT INTO t VALUES (").count()), (501, 501, 2));
        assert!(
            text.starts_with("INSERT INTO t VALUES (0,-5,'2000-01-01 00:00:00.000001',NULL,'a''\\\t'),(1,"),
            "{text}"
        );
        assert!(text.ends_with("VALUES (500,-5,'2000-01-01 00:00:00.000001',NULL,'a''\\\t')|"), "{text}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (micros, date) in [
            (0, "2000-01-01 00:00:00.000000"),
            (-1, "1999-12-31 23:59:59.999999"),
            (8918 * DAY_US + 3_723_000_004, "2024-06-01 01:02:03.000004"),
            (59 * DAY_US, "2000-02-29 00:00:00.000000"),
            (8825 * DAY_US, "2024-02-29 00:00:00.000000"),
        ] {
            assert_eq!(timestamp(micros), date);
        }
    }
}
