//! The five transactions in this process, on the linked SQLite.
//!
//! Invariant: a transaction that has an [`Output`] was committed with `synchronous=FULL`: its journal was synced before
//! [`Transact::transact`] returned.

use rusqlite::{Connection, ErrorCode};

use super::input::{Input, Request};
use super::output::{Output, TransactionError};
pub use bigiron_sql::sqlite::{Engine, Options};

mod transactions;

#[cfg(test)]
pub mod fixture;
#[cfg(test)]
mod tests;

/// A connection that runs transactions.
pub trait Transact {
    /// Runs one transaction.
    ///
    /// # Errors
    /// [`TransactionError::Retry`] if another connection held the database for longer than the time limit of its options;
    /// [`TransactionError::Failed`] with SQLite's message for everything else. Nothing has happened in either case.
    fn transact(&mut self, request: &Request) -> Result<Output, TransactionError>;
}

impl Transact for Engine {
    fn transact(&mut self, request: &Request) -> Result<Output, TransactionError> {
        let connection = self.connection();
        let reads = matches!(request.input, Input::OrderStatus { .. } | Input::StockLevel { .. });
        // A writer takes the lock first: if two both read and then want to write, one must fail.
        let begin = if reads { "BEGIN" } else { "BEGIN IMMEDIATE" };
        match attempt(connection, begin, request) {
            Ok(output) => Ok(output),
            Err(error) => {
                if !connection.is_autocommit() {
                    control(connection, "ROLLBACK").map_err(|e| refused(&e))?;
                }
                Err(refused(&error))
            }
        }
    }
}

fn attempt(connection: &Connection, begin: &str, request: &Request) -> rusqlite::Result<Output> {
    control(connection, begin)?;
    let output = transactions::run(connection, request)?;
    control(connection, if output == Output::RolledBack { "ROLLBACK" } else { "COMMIT" })?;
    Ok(output)
}

fn control(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

fn refused(error: &rusqlite::Error) -> TransactionError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => TransactionError::Retry(error.to_string()),
        Some(ErrorCode::DiskFull) => TransactionError::NoSpace(error.to_string()),
        _ => TransactionError::Failed(error.to_string()),
    }
}
