//! Loading: the rows of [`super::population`] into an engine, with keys, indexes and statistics.
//!
//! Invariant: a load that fails leaves none of the tables that it created, and one that returns is on stable storage as far as
//! the engine's own settings allow.

mod copy;
mod mariadb;
mod method;
mod postgres;
mod sqlite;
mod stage;
mod text_rows;

#[cfg(test)]
mod tests;

/// Its activities are `rows`, `indexes`, `statistics` and `checkpoint`.
pub use bigiron_sql::stage::Progress;
pub use mariadb::mariadb;
pub use postgres::postgres;
pub use sqlite::sqlite;
pub use text_rows::timestamp;

use bigiron_sql::maria::MariaError;
use bigiron_sql::pg::PgError;

/// The result of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSummary {
    /// Rows of each table, in the order of [`super::schema::TABLES`].
    pub rows: Vec<(&'static str, u64)>,
    /// Features that the server refused, and the load did without.
    pub unavailable: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "{place} has {} already, which a load would overwrite; name another database, or allow replacing the tables",
        .tables.join(", ")
    )]
    Exists { place: String, tables: Vec<String> },
    #[error("{path} already exists; name another file, or allow replacing it")]
    FileExists { path: String },
    #[error("Cannot load table {table}: {step}: {cause}")]
    Table {
        table: &'static str,
        /// The failed step, e.g. `creating the primary key`.
        step: &'static str,
        cause: String,
    },
    #[error("Cannot load {path}: {cause}")]
    File { path: String, cause: String },
    #[error("Cannot load the database: {0}")]
    Server(#[from] PgError),
    #[error("Cannot load the database: {0}")]
    MariaDb(#[from] MariaError),
    /// Another connection's load failed; its error is the one to report.
    #[error("The load was abandoned")]
    GivenUp,
}

impl LoadError {
    fn table<E: std::fmt::Display>(table: &'static str, step: &'static str) -> impl Fn(E) -> LoadError {
        move |cause| LoadError::Table { table, step, cause: cause.to_string() }
    }
}
