//! The generator's rows in the binary format of PostgreSQL's `COPY`: the server parses neither decimals nor dates.

use std::fmt::Display;
use std::io::Write as _;

use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;

use super::rows::Sink;
use bigiron_sql::pg::binary_rows::BinaryRows;

/// Days from 1970-01-01 to 2000-01-01, the server's epoch.
const EPOCH_DAYS: i32 = 10_957;
const NEGATIVE: u16 = 0x4000;

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

    /// Three base-10,000 digits, the last one after the decimal point; the server strips zeros.
    fn decimal(&mut self, value: TPCHDecimal) {
        let hundredths = value.0.unsigned_abs();
        debug_assert!(hundredths < 10_000_000_000, "{value}");
        let digits = [hundredths / 1_000_000, hundredths / 100 % 10_000, hundredths % 100 * 100];
        let sign = if value.is_negative() { NEGATIVE } else { 0 };
        let (weight, decimals) = (1_u16, 2_u16);
        let mut field = [0; 14];
        let parts = [digits.len() as u16, weight, sign, decimals].into_iter().chain(digits.map(|digit| digit as u16));
        for (place, part) in field.chunks_exact_mut(2).zip(parts) {
            place.copy_from_slice(&part.to_be_bytes());
        }
        self.field(|out| out.extend_from_slice(&field));
    }

    fn date(&mut self, value: TPCHDate) {
        self.integer(value.to_unix_epoch() - EPOCH_DAYS);
    }

    fn text(&mut self, value: &str) {
        self.field(|out| out.extend_from_slice(value.as_bytes()));
    }

    fn shown(&mut self, value: &dyn Display) {
        self.field(|out| write!(out, "{value}").expect("Memory is always written"));
    }

    fn end(&mut self) -> Result<(), E> {
        self.end_row()
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
