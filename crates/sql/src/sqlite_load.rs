//! What loads into SQLite files share.
//!
//! The text of a value is written into a buffer that is used again.
//!
//! Invariant: a loaded file gets its name only when it is complete and on stable storage.

use std::fs::{self, File};
use std::path::Path;

use rusqlite::{Connection, Statement, ToSql};

/// This file, for the keys of images that depend on what it loads.
pub const SOURCE: &str = include_str!("sqlite_load.rs");

/// Rows of one table, inserted one by one.
pub struct Inserts<'c> {
    insert: Statement<'c>,
    /// The next column to bind; SQLite counts from 1.
    next: usize,
    text: Vec<u8>,
    refused: Option<rusqlite::Error>,
    /// Number of rows so far.
    pub rows: u64,
}

impl<'c> Inserts<'c> {
    /// Prepares inserts of rows with `columns` columns into `table`.
    ///
    /// # Errors
    /// SQLite's message.
    pub fn prepare(connection: &'c Connection, table: &str, columns: usize) -> rusqlite::Result<Self> {
        let marks = vec!["?"; columns].join(", ");
        let insert = connection.prepare(&format!("INSERT INTO {table} VALUES ({marks})"))?;
        Ok(Self { insert, next: 0, text: Vec::new(), refused: None, rows: 0 })
    }

    /// Begins a row. [`Inserts::bind`] sets its values in the order of the columns.
    #[inline]
    pub fn begin_row(&mut self) {
        self.next = 0;
    }

    /// Sets the row's next value. [`Inserts::end_row`] returns the error if SQLite refuses one.
    #[inline]
    pub fn bind(&mut self, value: impl ToSql) {
        self.next += 1;
        if let Err(e) = self.insert.raw_bind_parameter(self.next, value) {
            self.refused.get_or_insert(e);
        }
    }

    /// Sets the row's next value to the text that `write` appends to an empty buffer.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[inline]
    pub fn bind_text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        write(&mut text);
        self.bind(std::str::from_utf8(&text).expect("Texts are UTF-8"));
        self.text = text;
    }

    /// Inserts the row.
    ///
    /// # Errors
    /// SQLite's message.
    #[inline]
    pub fn end_row(&mut self) -> rusqlite::Result<()> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        self.insert.raw_execute()?;
        self.rows += 1;
        Ok(())
    }
}

/// Syncs a loaded file and renames it, durably. The old file's journal is removed first, because it belongs to a file that no longer exists.
///
/// # Errors
/// The kernel's message.
pub fn publish(unfinished: &Path, path: &Path) -> std::io::Result<()> {
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
