//! The tables of several phases, and how they are filled.
//!
//! Invariant: the values of a row follow from its number, so that every answer is known.

use std::fmt::Write as _;

use anyhow::Result;

use super::session::Session;

/// Rows of a statement that fills a table.
const BATCH: u64 = 100;

/// Creates a table as sql-bench's: three numbers and a text; a key of two columns, and an index.
///
/// # Errors
/// The engine's message.
pub fn create(session: &mut Session<'_>, name: &str) -> Result<()> {
    session.run(&format!(
        "CREATE TABLE {name} (id integer NOT NULL, id2 integer NOT NULL, id3 integer NOT NULL, dummy varchar(30) NOT NULL, \
         PRIMARY KEY (id, id2))"
    ))?;
    session.run(&format!("CREATE INDEX {name}_id3 ON {name} (id3)"))
}

/// The values of row `n`: the second column is the first again, and the third counts in tens.
pub fn values(n: u64) -> String {
    format!("({n}, {n}, {}, 'row {n:08} of the table')", n / 10)
}

/// Inserts the rows `from..to`, many at a time.
///
/// # Errors
/// The engine's message.
pub fn fill(session: &mut Session<'_>, name: &str, from: u64, to: u64) -> Result<()> {
    batches(session, name, from, to, values)
}

/// Inserts the rows `from..to` with the values that `row` says, many at a time.
///
/// # Errors
/// The engine's message.
pub fn batches(session: &mut Session<'_>, name: &str, from: u64, to: u64, row: impl Fn(u64) -> String) -> Result<()> {
    let mut at = from;
    while at < to {
        let end = (at + BATCH).min(to);
        let mut sql = format!("INSERT INTO {name} VALUES ");
        for n in at..end {
            let comma = if n == at { "" } else { ", " };
            let _ = write!(sql, "{comma}{}", row(n));
        }
        session.run(&sql)?;
        at = end;
    }
    Ok(())
}

/// Drops a table.
///
/// # Errors
/// The engine's message.
pub fn drop(session: &mut Session<'_>, name: &str) -> Result<()> {
    session.run(&format!("DROP TABLE {name}"))
}

/// The sum of the numbers below `n`.
pub const fn sum_below(n: u64) -> u64 {
    if n == 0 { 0 } else { n * (n - 1) / 2 }
}
