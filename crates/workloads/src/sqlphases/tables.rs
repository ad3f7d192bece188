//! The table that most phases use, and how it is filled.
//!
//! Invariant: a row's number determines its values, so every answer is known in advance.

use std::fmt::Write as _;

use anyhow::Result;

use super::session::Session;

/// Rows per statement when a table is filled.
const BATCH: u64 = 100;

/// Creates a table like sql-bench's: three integers and a text, a primary key of two columns, and an index on the third integer.
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

/// The values of row `n`: the first two columns are `n`, the third is `n / 10`.
pub fn values(n: u64) -> String {
    format!("({n}, {n}, {}, 'row {n:08} of the table')", n / 10)
}

/// Inserts the rows `from..to`, 100 per statement.
///
/// # Errors
/// The engine's message.
pub fn fill(session: &mut Session<'_>, name: &str, from: u64, to: u64) -> Result<()> {
    batches(session, name, from, to, values)
}

/// Inserts the rows `from..to`, 100 per statement; `row` gives the values of each.
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

/// The sum of the numbers less than `n`.
pub const fn sum_below(n: u64) -> u64 {
    if n == 0 { 0 } else { n * (n - 1) / 2 }
}
