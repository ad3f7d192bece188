//! The five transactions on PostgreSQL, in three wire modes.
//!
//! Invariant: the same requests, one after the other, leave the same rows and get the same responses in every mode.
//!
//! A request that finds a row missing is an error; in a pipeline the earlier statements have been committed by then, elsewhere
//! nothing has.
//!
//! READ COMMITTED is enough: each statement sees the data committed when it began, and every row that a transaction computes from
//! is locked by it, never changes (prices, names, taxes), or cannot change while the lock is held (an order's lines).

mod answer;
pub mod call;
mod script;
pub mod statements;

#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use call::Call;
pub use script::{Statements, write};
pub use statements::Statement;

use anyhow::{Context, ensure};

use super::config::Mode;
use bigiron_sql::database::{Database, Dialect};
use bigiron_sql::pg::{Connection, PgError};

const PROCEDURES: &str = include_str!("procedures.sql");

/// Planner settings of a session: one plan per statement, made once and using the keys, whatever the statistics are at that
/// moment.
///
/// Otherwise plans are made again in the first five executions and whenever that looks cheaper; a table that has just been
/// loaded, or is small, may be read completely; and an order's stock may be locked in another order than that of its lines, which
/// leads to deadlocks.
pub(super) const PLANNER: [&str; 4] = [
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
];

/// Prepares a connection for [`Call`]s of a mode: the session's settings, and all prepared statements.
///
/// # Errors
/// [`PgError::Server`] if the server refuses a statement, e.g. because the tables or, for procedures, the functions do not exist.
pub fn prepare(connection: &mut Connection, mode: Mode) -> Result<(), PgError> {
    connection.run("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
    for setting in PLANNER {
        match connection.run(setting) {
            // A server that only speaks the protocol need not know it.
            Ok(()) | Err(PgError::Server(_)) => {}
            Err(lost) => return Err(lost),
        }
    }
    Statement::of(mode).iter().try_for_each(|s| connection.prepare(s.name(), s.sql(), s.types()))
}

/// Installs or replaces the functions of [`Mode::Procedures`], in a separate schema.
///
/// # Errors
/// If the database is not PostgreSQL, or refuses.
pub fn install_procedures(database: &mut dyn Database) -> anyhow::Result<()> {
    ensure!(database.dialect() == Dialect::Postgres, "Stored procedures need PostgreSQL");
    database.execute(PROCEDURES).context("Cannot install the stored procedures")
}
