//! Loading: the rows of [`super::population`] into an engine, with keys, indexes and statistics.
//!
//! Invariant: a load that fails leaves none of the tables that it made, and one that returns is on stable storage as far as the engine's own
//! settings go.

mod copy;
mod method;
mod postgres;
mod sqlite;
mod text_rows;

#[cfg(test)]
mod tests;

pub use postgres::postgres;
pub use sqlite::sqlite;

use super::pg::PgError;

/// Told what is being done (`rows`, `indexes`, `statistics`, `checkpoint`), how much of it is done, and of how much.
pub type Progress<'a> = &'a dyn Fn(&str, u64, u64);

/// What was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSummary {
    /// Rows of each table, in the order of [`super::schema::TABLES`].
    pub rows: Vec<(&'static str, u64)>,
    /// What the server refused, and the load did without.
    pub unavailable: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "{place} has {} already, which a load would overwrite; name another database, or say that the tables may be replaced",
        .tables.join(", ")
    )]
    Exists { place: String, tables: Vec<String> },
    #[error("{path} is there already; name another file, or say that it may be replaced")]
    FileExists { path: String },
    #[error("Cannot load table {table}: {step}: {cause}")]
    Table {
        table: &'static str,
        /// What was being done, e.g. `creating the primary key`.
        step: &'static str,
        cause: String,
    },
    #[error("Cannot load {path}: {cause}")]
    File { path: String, cause: String },
    #[error("Cannot load the database: {0}")]
    Server(#[from] PgError),
    /// Another connection's load failed; its error is the one to tell.
    #[error("The load was given up")]
    GivenUp,
}

impl LoadError {
    fn table(table: &'static str, step: &'static str) -> impl Fn(PgError) -> LoadError {
        move |cause| LoadError::Table { table, step, cause: cause.to_string() }
    }
}
