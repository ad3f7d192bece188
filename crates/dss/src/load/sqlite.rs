//! Loads into an SQLite file, by prepared inserts in one transaction.
//!
//! Invariant: the file gets its name only when it is complete and on stable storage; until then it is `NAME.loading`.

use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bigiron_sql::database::Dialect;
use bigiron_sql::sqlite::{Engine, SqliteJournal};
use bigiron_sql::sqlite_load::{Inserts, publish};
use rusqlite::Connection;
use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;

use super::rows::{self, Sink};
use super::{Progress, RowCounts, check, expected};
use crate::scale::{Portion, Scale};
use crate::table::Table;

/// Only for the load: an interrupted load is discarded, so nothing needs to be undone or synced before its end.
const PRAGMAS: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
                       PRAGMA cache_size = -262144; PRAGMA threads = 4; PRAGMA temp_store = MEMORY;";
/// Portions of a table, after which progress is reported.
const PORTIONS: i32 = 20;

/// Loads the tables into a new file.
///
/// # Errors
/// If the file exists; SQLite's or the kernel's message, with the table and the step; if a row count differs from the generator's. Nothing is left
/// then.
pub fn sqlite(path: &Path, scale: Scale, progress: Progress<'_>) -> Result<RowCounts> {
    ensure!(!path.exists(), "{} already exists; name another file", path.display());
    let unfinished = PathBuf::from(format!("{}.loading", path.display()));
    let loaded = load(&unfinished, scale, progress).and_then(|counts| {
        publish(&unfinished, path)?;
        Ok(counts)
    });
    if loaded.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    loaded.with_context(|| format!("Cannot load {}", path.display()))
}

fn load(path: &Path, scale: Scale, progress: Progress<'_>) -> Result<RowCounts> {
    // Left by a killed load.
    let _ = fs::remove_file(path);
    let counts = expected(scale);
    let total = counts.iter().map(|(_, count)| count).sum();
    let connection = Connection::open(path)?;
    connection.execute_batch(PRAGMAS)?;
    connection.execute_batch("BEGIN")?;
    let mut done = 0;
    progress("rows", done, total);
    for table in Table::ALL {
        done += fill(&connection, table, scale, &|rows| progress("rows", done + rows, total))
            .with_context(|| format!("Cannot insert rows into {}", table.name()))?;
    }

    let statements: Vec<String> = Table::ALL.into_iter().flat_map(|table| indexes(table, scale)).collect();
    let of = statements.len() as u64;
    for (sql, number) in statements.iter().zip(0..) {
        progress("indexes", number, of);
        connection.execute_batch(sql).with_context(|| format!("Cannot run {sql}"))?;
    }
    progress("indexes", of, of);

    progress("statistics", 0, 1);
    connection.execute_batch("COMMIT; ANALYZE; PRAGMA journal_mode = DELETE;").context("Cannot gather statistics")?;
    connection.close().map_err(|(_, cause)| cause)?;
    let mut engine = Engine::open(path, SqliteJournal::Rollback)?;
    counts.iter().try_for_each(|(table, count)| check(&mut engine, *table, *count))?;
    progress("statistics", 1, 1);
    Ok(counts)
}

/// Creates and fills a table; returns its number of rows.
fn fill(connection: &Connection, table: Table, scale: Scale, on: &dyn Fn(u64)) -> Result<u64> {
    connection.execute_batch(&table.create(Dialect::Sqlite))?;
    let mut inserts = Inserts::prepare(connection, table.name(), table.columns().len())?;
    let of = if matches!(table, Table::Region | Table::Nation) { 1 } else { PORTIONS };
    for number in 1..=of {
        rows::write(table, scale, Portion { number, of }, &mut inserts)?;
        on(inserts.rows);
    }
    Ok(inserts.rows)
}

/// The statements that create a table's indexes; a key of one column is part of the table. At tiny scales the generator repeats some keys of
/// `partsupp`.
fn indexes(table: Table, scale: Scale) -> impl Iterator<Item = String> {
    let name = table.name();
    let unique = if table != Table::Partsupp || scale.has_distinct_offers() { "UNIQUE " } else { "" };
    let key = (table.key().len() > 1)
        .then(|| format!("CREATE {unique}INDEX {name}_key ON {name} ({})", table.key().join(", ")));
    key.into_iter().chain(table.indexes(Dialect::Sqlite).map(|index| index.create()))
}

impl Sink for Inserts<'_> {
    type Error = rusqlite::Error;

    fn begin(&mut self) {
        self.begin_row();
    }

    fn integer(&mut self, value: i32) {
        self.bind(value);
    }

    fn bigint(&mut self, value: i64) {
        self.bind(value);
    }

    fn decimal(&mut self, value: TPCHDecimal) {
        self.bind(value.as_f64());
    }

    fn date(&mut self, value: TPCHDate) {
        self.shown(&value);
    }

    fn text(&mut self, value: &str) {
        self.bind(value);
    }

    fn shown(&mut self, value: &dyn Display) {
        self.bind_text(|text| write!(text, "{value}").expect("Memory is always written"));
    }

    fn end(&mut self) -> Result<(), rusqlite::Error> {
        self.end_row()
    }
}
