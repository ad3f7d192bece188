//! The linked SQLite, in this process.
//!
//! Invariant: a commit is synced (`synchronous=FULL`) before the statement that made it returns.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;

use crate::database::{Database, Dialect, SqlValue};
use bigiron_workload::keys::form::words_of;

/// More than the number of all statements of a workload, so that none is ever prepared twice.
const STATEMENTS: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqliteJournal {
    #[default]
    Wal,
    /// The rollback journal (`journal_mode=DELETE`).
    Rollback,
}

words_of!(SqliteJournal: "wal" => Wal, "rollback" => Rollback);

/// How a database is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub journal: SqliteJournal,
    /// SQLite's own page cache of this connection; other pages come from the kernel's.
    pub cache_bytes: u64,
    /// How long a transaction waits for another connection's before SQLite says that the database is busy. SQLite sleeps in between.
    pub busy: Duration,
}

impl Options {
    /// 64 MiB of cache, and a time limit of ten seconds.
    pub fn new(journal: SqliteJournal) -> Self {
        Self { journal, cache_bytes: 64 << 20, busy: Duration::from_secs(10) }
    }
}

/// The effective settings, as SQLite reports them after they were set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// SQLite's version, e.g. `3.54.1`.
    pub version: &'static str,
    /// `wal` or `delete`.
    pub journal: String,
    /// `full`: an fsync for each commit.
    pub synchronous: &'static str,
    pub page_bytes: u64,
    pub cache_bytes: u64,
    /// Pages of the write-ahead log after which a commit copies them to the database.
    pub checkpoint_pages: u64,
}

/// One connection to a database file. A thread has its own; SQLite lets one of them write at a time.
pub struct Engine {
    connection: Connection,
    facts: Facts,
}

impl Engine {
    /// Opens with [`Options::new`].
    ///
    /// # Errors
    /// As [`Engine::open_with`].
    pub fn open(path: &Path, journal: SqliteJournal) -> Result<Self> {
        Self::open_with(path, &Options::new(journal))
    }

    /// Opens or creates the database at `path`. The first statement, which is part of opening, recovers or undoes what a killed
    /// process left in the journal.
    ///
    /// # Errors
    /// If the file cannot be opened or is not a database, or a setting is not possible: a file system without shared mappings
    /// cannot have a write-ahead log.
    pub fn open_with(path: &Path, options: &Options) -> Result<Self> {
        let connection = Connection::open(path).with_context(|| format!("Cannot open {}", path.display()))?;
        connection.busy_timeout(options.busy)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // Plans do not depend on bound values: otherwise SQLite would plan some statements again for each run.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let wanted = match options.journal {
            SqliteJournal::Wal => "wal",
            SqliteJournal::Rollback => "delete",
        };
        let journal: String = connection
            .query_row(&format!("PRAGMA journal_mode={wanted}"), [], |row| row.get(0))
            .with_context(|| format!("Cannot set the journal of {}", path.display()))?;
        if journal != wanted {
            bail!("{} cannot have journal_mode={wanted}: it stays {journal}; use a local file system", path.display());
        }
        connection.execute_batch("PRAGMA synchronous=FULL; PRAGMA temp_store=MEMORY;")?;
        let kib = options.cache_bytes.div_ceil(1024).max(1);
        connection.execute_batch(&format!("PRAGMA cache_size=-{kib}"))?;
        let number = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        if number("synchronous")? != 2 {
            bail!("SQLite does not accept synchronous=FULL");
        }
        let cache = number("cache_size")?;
        let page_bytes = number("page_size")?.unsigned_abs();
        let facts = Facts {
            version: rusqlite::version(),
            journal,
            synchronous: "full",
            page_bytes,
            cache_bytes: if cache < 0 { cache.unsigned_abs() * 1024 } else { cache.unsigned_abs() * page_bytes },
            checkpoint_pages: number("wal_autocheckpoint")?.unsigned_abs(),
        };
        // Recovery happens at the first read: here, and not inside a timed transaction.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(Self { connection, facts })
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The connection, for a workload's own statements.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The connection, for a loader.
    pub fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Database for Engine {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn execute(&mut self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).with_context(|| format!("SQLite refuses: {sql}"))
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<Vec<SqlValue>>> {
        let mut statement = self.connection.prepare(sql).with_context(|| format!("SQLite refuses: {sql}"))?;
        let columns = statement.column_count();
        let mut found = Vec::new();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next().with_context(|| format!("SQLite refuses: {sql}"))? {
            let mut values = Vec::with_capacity(columns);
            for column in 0..columns {
                values.push(match row.get_ref(column)? {
                    ValueRef::Null => SqlValue::Null,
                    ValueRef::Integer(n) => SqlValue::Integer(n),
                    ValueRef::Real(x) => SqlValue::Text(x.to_string()),
                    ValueRef::Text(text) => SqlValue::Text(std::str::from_utf8(text)?.to_owned()),
                    ValueRef::Blob(_) => bail!("A blob where none of the tables has one: {sql}"),
                });
            }
            found.push(values);
        }
        Ok(found)
    }
}
