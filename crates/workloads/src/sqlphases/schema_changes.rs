//! The phases about the schema: `create`, `alter` and `big-tables`.

use std::fmt::Write as _;

use anyhow::Result;

use super::session::Session;
use super::tables::{self, sum_below};
use bigiron_sql::database::{Dialect, SqlValue};
use bigiron_workload::WrongData;

const TABLE: &str = "bench1";
const WIDE: &str = "bench4";
/// Columns of the wide table besides its key.
const COLUMNS: usize = 100;
/// Indexed columns, besides the key, of a table that is created and immediately dropped.
const KEYS: usize = 8;

/// Creates all tables, counts the rows of each, and drops them; then creates a quarter as many with indexes, and drops each at once.
pub fn create(session: &mut Session<'_>) -> Result<()> {
    let tables = session.rows / 25;
    for n in 0..tables {
        session.run(&format!(
            "CREATE TABLE many{n} (i integer NOT NULL PRIMARY KEY, d double precision, f float, s char(10), v varchar(100))"
        ))?;
    }
    (0..tables).try_for_each(|n| session.number(&format!("SELECT count(*) FROM many{n}"), 0))?;
    (0..tables).try_for_each(|n| tables::drop(session, &format!("many{n}")))?;
    for _ in 0..tables / 4 {
        let columns: String = (0..KEYS).map(|c| format!(", c{c} integer NOT NULL")).collect();
        session.run(&format!("CREATE TABLE keyed (i integer NOT NULL PRIMARY KEY{columns})"))?;
        (0..KEYS).try_for_each(|c| session.run(&format!("CREATE INDEX keyed_c{c} ON keyed (c{c})")))?;
        tables::drop(session, "keyed")?;
    }
    Ok(())
}

/// Adds and drops columns and indexes of a table that has rows.
pub fn alter(session: &mut Session<'_>) -> Result<()> {
    for c in 0..4 {
        session.run(&format!("ALTER TABLE {TABLE} ADD COLUMN extra{c} integer DEFAULT {c} NOT NULL"))?;
    }
    for c in 0..4 {
        session.run(&format!("CREATE INDEX {TABLE}_extra{c} ON {TABLE} (extra{c}, id)"))?;
    }
    session.number(&format!("SELECT sum(extra3) FROM {TABLE}"), 3 * session.rows)?;
    let of_table = if session.dialect() == Dialect::MariaDb { format!(" ON {TABLE}") } else { String::new() };
    for c in 0..4 {
        session.run(&format!("DROP INDEX {TABLE}_extra{c}{of_table}"))?;
    }
    for c in 0..4 {
        session.run(&format!("ALTER TABLE {TABLE} DROP COLUMN extra{c}"))?;
    }
    Ok(())
}

/// Checks that the original columns and their values are left.
pub fn altered(session: &mut Session<'_>) -> Result<()> {
    let first = session.rows(&format!("SELECT * FROM {TABLE} WHERE id = 0"), 1)?;
    columns(&first[0], 4)?;
    session.number(&format!("SELECT sum(id2) FROM {TABLE}"), sum_below(session.rows))?;
    tables::drop(session, TABLE)
}

/// Creates an empty table of many columns.
pub fn wide_table(session: &mut Session<'_>) -> Result<()> {
    let columns: String = (0..COLUMNS).map(|c| format!(", c{c} integer NOT NULL")).collect();
    session.run(&format!("CREATE TABLE {WIDE} (i integer NOT NULL PRIMARY KEY{columns})"))
}

/// Inserts rows one at a time, reads them one at a time, and reads the whole table.
pub fn wide(session: &mut Session<'_>) -> Result<()> {
    let rows = session.rows / 10;
    for n in 0..rows {
        let mut sql = format!("INSERT INTO {WIDE} VALUES ({n}");
        (0..COLUMNS).for_each(|c| {
            let _ = write!(sql, ", {}", n + c as u64);
        });
        sql.push(')');
        session.run(&sql)?;
    }
    for n in session.shuffled(rows) {
        let row = session.rows(&format!("SELECT * FROM {WIDE} WHERE i = {n}"), 1)?;
        columns(&row[0], COLUMNS + 1)?;
    }
    session.rows(&format!("SELECT * FROM {WIDE}"), rows).map(drop)
}

/// Checks the sum of the last column.
pub fn drop_wide(session: &mut Session<'_>) -> Result<()> {
    let (rows, last) = (session.rows / 10, COLUMNS as u64 - 1);
    session.number(&format!("SELECT sum(c{last}) FROM {WIDE}"), sum_below(rows) + rows * last)?;
    tables::drop(session, WIDE)
}

/// The number of columns of a row that was read whole.
fn columns(row: &[SqlValue], count: usize) -> Result<()> {
    match row.len() == count {
        true => Ok(()),
        false => Err(WrongData(format!("{} columns instead of {count}", row.len())).into()),
    }
}
