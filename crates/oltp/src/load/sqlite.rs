//! Loads into an SQLite file, by prepared inserts in the order of the keys.
//!
//! Invariant: the file gets its name only when it is complete and on stable storage; until then it is `NAME.loading`.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::super::population::{self, Sink};
use super::super::scale::Scale;
use super::super::schema::{INDEXES, TABLES};
use super::{LoadError, LoadSummary, Progress};
use bigiron_sql::database::Dialect;
use bigiron_sql::sqlite_load::{Inserts, publish};

/// Only for the load: an interrupted load is discarded, so nothing needs to be undone or synced before its end.
const PRAGMAS: &str =
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -65536;";

/// Loads the tables of `scale` into a new file.
///
/// # Errors
/// [`LoadError::FileExists`] if the file exists and may not be replaced; [`LoadError::Table`] and [`LoadError::File`] with
/// SQLite's or the kernel's message. Nothing is left then, and a file to be replaced is unchanged.
pub fn sqlite(path: &Path, scale: Scale, replace: bool, progress: Progress<'_>) -> Result<LoadSummary, LoadError> {
    if !replace && path.exists() {
        return Err(LoadError::FileExists { path: path.display().to_string() });
    }
    let unfinished = PathBuf::from(format!("{}.loading", path.display()));
    let loaded = load(&unfinished, scale, progress).and_then(|loaded| {
        publish(&unfinished, path).map_err(|cause| file_error(path, &cause))?;
        Ok(loaded)
    });
    if loaded.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    loaded
}

fn load(path: &Path, scale: Scale, progress: Progress<'_>) -> Result<LoadSummary, LoadError> {
    // Left by a killed load.
    let _ = fs::remove_file(path);
    let rows: Vec<(&'static str, u64)> = TABLES.iter().map(|t| (t.name, population::total(t, scale))).collect();
    let total: u64 = rows.iter().map(|(_, count)| count).sum();
    let connection = Connection::open(path).map_err(|cause| file_error(path, &cause))?;
    let run = |sql: &str| connection.execute_batch(sql);
    run(PRAGMAS).and_then(|()| run("BEGIN")).map_err(|cause| file_error(path, &cause))?;
    let mut done = 0;
    progress("rows", done, total);
    for (table, (_, expected)) in TABLES.iter().zip(&rows) {
        let refused =
            |step| move |cause: rusqlite::Error| LoadError::Table { table: table.name, step, cause: cause.to_string() };
        run(&table.create(Dialect::Sqlite)).map_err(refused("creating it"))?;
        let mut inserts =
            Inserts::prepare(&connection, table.name, table.columns.len()).map_err(refused("inserting rows"))?;
        for warehouse in population::warehouses(table, scale) {
            population::write(table, warehouse, &mut inserts).map_err(refused("inserting rows"))?;
            progress("rows", done + inserts.rows, total);
        }
        debug_assert_eq!(inserts.rows, *expected);
        done += inserts.rows;
    }
    let all = INDEXES.len() as u64;
    for (index, number) in INDEXES.iter().zip(0..) {
        progress("indexes", number, all);
        run(&format!("CREATE INDEX {} ON {} ({})", index.name, index.table, index.columns.join(", "))).map_err(
            |cause| LoadError::Table { table: index.table, step: "creating its index", cause: cause.to_string() },
        )?;
    }
    progress("indexes", all, all);
    progress("statistics", 0, 1);
    run("COMMIT; ANALYZE; PRAGMA journal_mode = DELETE;").map_err(|cause| file_error(path, &cause))?;
    progress("statistics", 1, 1);
    connection.close().map_err(|(_, cause)| file_error(path, &cause))?;
    Ok(LoadSummary { rows, unavailable: Vec::new() })
}

fn file_error(path: &Path, cause: &dyn std::fmt::Display) -> LoadError {
    LoadError::File { path: path.display().to_string(), cause: cause.to_string() }
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

    fn date(&mut self, value: i64) {
        self.bind(value);
    }

    fn null(&mut self) {
        self.bind(rusqlite::types::Null);
    }

    fn text(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        self.bind_text(|text| {
            text.resize(length, 0);
            fill(text);
        });
    }

    fn end(&mut self) -> Result<(), rusqlite::Error> {
        self.end_row()
    }
}
