//! The answer to a query: exact across repetitions on one engine, comparable between engines.
//!
//! Invariant: two answers have the same digest only if they have the same rows in the same order, text for text.

use anyhow::Result;
use bigiron_sql::database::{Database, SqlValue};
use sha2::{Digest, Sha256};

/// Hexadecimal digits of a digest: enough to detect accidental differences.
const DIGEST_DIGITS: usize = 16;
/// The relative difference that counts as equal: sums of floating-point numbers differ in the last of their 16 digits.
const TOLERANCE: f64 = 1e-9;
/// A number with at least this many decimals may be a truncated quotient. With fewer it is an amount, which is exact.
const CUT_DECIMALS: usize = 4;

/// The rows of an answer, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub rows: Vec<Vec<SqlValue>>,
}

/// Runs one query.
///
/// # Errors
/// The engine's message if it refuses the query.
pub fn run(database: &mut dyn Database, sql: &str) -> Result<Answer> {
    Ok(Answer { rows: database.rows(sql)? })
}

impl Answer {
    /// A digest of all values, equal for equal answers of one engine.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update((self.rows.len() as u64).to_be_bytes());
        for row in &self.rows {
            hash.update((row.len() as u64).to_be_bytes());
            for value in row {
                match value {
                    SqlValue::Null => hash.update(b"n"),
                    SqlValue::Integer(number) => {
                        hash.update(b"i");
                        hash.update(number.to_be_bytes());
                    }
                    SqlValue::Text(text) => {
                        hash.update(b"t");
                        hash.update((text.len() as u64).to_be_bytes());
                        hash.update(text);
                    }
                }
            }
        }
        let mut digits = hex(&hash.finalize());
        digits.truncate(DIGEST_DIGITS);
        digits
    }

    /// Compares with another engine's answer to the same query: the same rows in the same order. Texts may differ in the trailing blanks
    /// of fixed-length columns. Numbers may differ by a relative 1e-9, quotients by one in the last decimal that both have.
    ///
    /// # Errors
    /// The first difference: row and column, counted from 1, and both values.
    pub fn agrees(&self, other: &Answer) -> Result<(), String> {
        if self.rows.len() != other.rows.len() {
            return Err(format!("{} rows and {} rows", self.rows.len(), other.rows.len()));
        }
        for (number, (ours, theirs)) in (1..).zip(self.rows.iter().zip(&other.rows)) {
            if ours.len() != theirs.len() {
                return Err(format!("row {number} has {} columns and {} columns", ours.len(), theirs.len()));
            }
            for (column, (a, b)) in (1..).zip(ours.iter().zip(theirs)) {
                if !agree(a, b) {
                    return Err(format!("row {number}, column {column}: {} and {}", shown(a), shown(b)));
                }
            }
        }
        Ok(())
    }
}

fn agree(a: &SqlValue, b: &SqlValue) -> bool {
    match (a, b) {
        (SqlValue::Null, SqlValue::Null) => true,
        (SqlValue::Null, _) | (_, SqlValue::Null) => false,
        (SqlValue::Integer(a), SqlValue::Integer(b)) => a == b,
        (SqlValue::Text(a), SqlValue::Text(b)) => a.trim_end_matches(' ') == b.trim_end_matches(' ') || numbers(a, b),
        (SqlValue::Text(text), SqlValue::Integer(number)) | (SqlValue::Integer(number), SqlValue::Text(text)) => {
            numbers(text, &number.to_string())
        }
    }
}

/// Whether both are numbers, and equal.
fn numbers(a: &str, b: &str) -> bool {
    let (Some((x, x_decimals)), Some((y, y_decimals))) = (number(a), number(b)) else { return false };
    let difference = (x - y).abs();
    let common = x_decimals.min(y_decimals);
    // More than one unit of the last digit is a difference; the tolerance covers its binary representation.
    let last_digit = 10_f64.powi(-(common as i32)) * (1.0 + TOLERANCE);
    difference <= TOLERANCE * x.abs().max(y.abs()) || (common >= CUT_DECIMALS && difference <= last_digit)
}

/// The value of a decimal number, and the number of its decimals.
fn number(text: &str) -> Option<(f64, usize)> {
    let is_digit = |b: u8| b.is_ascii_digit() || b == b'.';
    if !text.strip_prefix('-').unwrap_or(text).bytes().all(is_digit) {
        return None;
    }
    Some((text.parse().ok()?, text.split_once('.').map_or(0, |(_, decimals)| decimals.len())))
}

fn shown(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => "null".to_owned(),
        SqlValue::Integer(number) => number.to_string(),
        SqlValue::Text(text) => format!("`{text}`"),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> SqlValue {
        SqlValue::Text(text.to_owned())
    }

    fn one(value: SqlValue) -> Answer {
        Answer { rows: vec![vec![value]] }
    }

    #[test]
    fn numbers_agree_to_the_last_digit_that_both_have() {
        let integer = SqlValue::Integer;
        for (a, b) in [
            (text("37734107.00"), text("37734107")),
            (text("37734107.00"), integer(37_734_107)),
            (text("25.522005853257337"), text("25.522005")),
            (text("25.522006"), text("25.522005853257337")),
            (text("0.049985"), text("0.04998529583838780")),
            (text("53758257134.8700"), text("53758257134.87002")),
            (text("-5.50"), text("-5.5")),
            (text("0.00"), text("0")),
            (integer(7), integer(7)),
            (SqlValue::Null, SqlValue::Null),
            (text("FRANCE                   "), text("FRANCE")),
            (text(""), text("")),
        ] {
            assert_eq!(one(a.clone()).agrees(&one(b.clone())), Ok(()));
            assert_eq!(one(b).agrees(&one(a)), Ok(()));
        }
    }

    #[test]
    fn a_difference_is_named() {
        let integer = SqlValue::Integer;
        for (a, b) in [
            (text("37734107.90"), text("37734107")),
            (text("0.1"), text("0.14")),
            (text("25.522005"), text("25.522008")),
            (integer(7), integer(8)),
            (integer(1_000_000_007), text("1000000009.00")),
            (SqlValue::Null, text("")),
            (SqlValue::Null, integer(0)),
            (text("FRANCE"), text("france")),
            (text(" FRANCE"), text("FRANCE")),
            (text("inf"), text("1e400")),
            (text("1"), text("")),
            (text("."), text("0")),
        ] {
            let said = one(a).agrees(&one(b)).unwrap_err();
            assert!(said.starts_with("row 1, column 1: ") && said.contains(" and "), "{said}");
        }
        let said = one(text("a")).agrees(&one(text("b"))).unwrap_err();
        assert_eq!(said, "row 1, column 1: `a` and `b`");
        let rows = |rows: &[&[i64]]| Answer {
            rows: rows.iter().map(|row| row.iter().map(|n| integer(*n)).collect()).collect(),
        };
        assert_eq!(rows(&[&[1], &[2]]).agrees(&rows(&[&[1], &[3]])).unwrap_err(), "row 2, column 1: 2 and 3");
        assert_eq!(rows(&[&[1], &[2]]).agrees(&rows(&[&[1]])).unwrap_err(), "2 rows and 1 rows");
        assert_eq!(rows(&[&[1, 2]]).agrees(&rows(&[&[1]])).unwrap_err(), "row 1 has 2 columns and 1 columns");
    }

    #[test]
    fn a_digest_tells_answers_apart_that_look_alike() {
        let answers = [
            Answer { rows: vec![] },
            Answer { rows: vec![vec![]] },
            one(SqlValue::Null),
            one(text("")),
            one(text("1")),
            one(SqlValue::Integer(1)),
            Answer { rows: vec![vec![text("1"), text("2")]] },
            Answer { rows: vec![vec![text("12")], vec![text("")]] },
            Answer { rows: vec![vec![text("1")], vec![text("2")]] },
            Answer { rows: vec![vec![text("2")], vec![text("1")]] },
        ];
        let digests: Vec<String> = answers.iter().map(Answer::digest).collect();
        for (n, digest) in digests.iter().enumerate() {
            assert_eq!(digest.len(), DIGEST_DIGITS);
            assert!(!digests[..n].contains(digest), "{n}");
            assert_eq!(*digest, answers[n].clone().digest());
        }
    }
}
