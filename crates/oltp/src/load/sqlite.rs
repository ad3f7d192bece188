//! Loads into an SQLite file, by prepared inserts in the order of the keys.
//!
//! Invariant: the file gets its name only when it is complete and on stable storage; until then it is `NAME.loading`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Statement};

use super::super::population::{self, Sink};
use super::super::scale::Scale;
use super::super::schema::{INDEXES, TABLES};
use super::{LoadError, LoadSummary, Progress};
use bigiron_sql::database::Dialect;

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
        let marks = vec!["?"; table.columns.len()].join(", ");
        let insert = connection
            .prepare(&format!("INSERT INTO {} VALUES ({marks})", table.name))
            .map_err(refused("inserting rows"))?;
        let mut inserts = Inserts { insert, next: 0, text: Vec::new(), refused: None, rows: 0 };
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

/// Syncs a file and renames it, durably. The old file's journal is removed first, because it belongs to a file that no longer
/// exists.
fn publish(unfinished: &Path, path: &Path) -> std::io::Result<()> {
    File::open(unfinished)?.sync_all()?;
    for journal in ["-journal", "-wal", "-shm"] {
        match fs::remove_file(format!("{}{journal}", path.display())) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    fs::rename(unfinished, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn file_error(path: &Path, cause: &dyn std::fmt::Display) -> LoadError {
    LoadError::File { path: path.display().to_string(), cause: cause.to_string() }
}

/// Rows of one table, inserted one by one.
struct Inserts<'c> {
    insert: Statement<'c>,
    /// The next column to bind; SQLite counts from 1.
    next: usize,
    text: Vec<u8>,
    refused: Option<rusqlite::Error>,
    rows: u64,
}

impl Inserts<'_> {
    fn bind(&mut self, value: impl rusqlite::ToSql) {
        self.next += 1;
        if let Err(e) = self.insert.raw_bind_parameter(self.next, value) {
            self.refused.get_or_insert(e);
        }
    }
}

impl Sink for Inserts<'_> {
    type Error = rusqlite::Error;

    fn begin(&mut self) {
        self.next = 0;
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
        let mut text = std::mem::take(&mut self.text);
        text.resize(length, 0);
        fill(&mut text);
        self.bind(std::str::from_utf8(&text).expect("Letters and digits"));
        self.text = text;
    }

    fn end(&mut self) -> Result<(), rusqlite::Error> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        self.insert.raw_execute()?;
        self.rows += 1;
        Ok(())
    }
}
