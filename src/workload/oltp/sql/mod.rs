//! The five transactions on PostgreSQL, in three wire modes.
//!
//! Invariant: the same requests, one after the other, leave the same rows behind and have the same answers in every mode.
//!
//! READ COMMITTED is enough: each statement sees what was committed when it began, and every row that a transaction computes from is one
//! that it has locked, that never changes (prices, names, taxes), or that cannot change while the lock is held (an order's lines).

mod answer;
pub mod call;
mod script;
pub mod statements;

#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;

pub use call::{Call, Step};
pub use statements::Statement;

use anyhow::{Context, ensure};

use super::config::Mode;
use super::database::{Database, Dialect};
use super::pg::{Connection, PgError};

const PROCEDURES: &str = include_str!("procedures.sql");

/// Makes a connection ready for [`Call`]s of a mode: the session's settings, and everything that is to be prepared.
///
/// # Errors
/// [`PgError::Server`] if the server refuses a statement, e.g. because the tables or, for procedures, the functions are not there.
pub fn prepare(connection: &mut Connection, mode: Mode) -> Result<(), PgError> {
    connection.run("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
    // Otherwise the server plans the first five executions of each statement anew, and goes on to do so where it likes that better: a server
    // that is no PostgreSQL may not know the setting.
    match connection.run("SET plan_cache_mode = force_generic_plan") {
        Err(PgError::Server(_)) => {}
        other => other?,
    }
    Statement::of(mode).iter().try_for_each(|s| connection.prepare(s.name(), s.sql(), s.types()))
}

/// Installs, or replaces, the functions of [`Mode::Procedures`], in a schema of their own.
///
/// # Errors
/// If the database is no PostgreSQL, or refuses.
pub fn install_procedures(database: &mut dyn Database) -> anyhow::Result<()> {
    ensure!(database.dialect() == Dialect::Postgres, "Stored procedures need PostgreSQL");
    database.execute(PROCEDURES).context("Cannot install the stored procedures")
}
