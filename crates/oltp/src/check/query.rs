//! Queries that all engines understand.
//!
//! Invariant: dates are passed in and out as microseconds since 2000-01-01, however the engine stores them.

use anyhow::{Context, Result, bail};

use bigiron_service::mariadb::DATABASE;
use bigiron_sql::database::{Database, Dialect, SqlValue};
use bigiron_sql::pg::PgError;
use bigiron_sys::this_machine;

/// Seconds from 1970 to 2000, in microseconds.
const EPOCH: i64 = 946_684_800_000_000;

/// The rows of a query with `N` columns, all integers; NULL is 0, as for a sum over nothing.
pub(super) fn integers<const N: usize>(database: &mut dyn Database, sql: &str) -> Result<Vec<[i64; N]>> {
    database.rows(sql)?.into_iter().map(|row| array(&row, sql)).collect()
}

/// The only row of such a query.
pub(super) fn integer_row<const N: usize>(database: &mut dyn Database, sql: &str) -> Result<[i64; N]> {
    integers(database, sql)?.pop().with_context(|| format!("The query returned no row: {sql}"))
}

fn array<const N: usize>(row: &[SqlValue], sql: &str) -> Result<[i64; N]> {
    if row.len() != N {
        bail!("{} columns instead of {N}: {sql}", row.len());
    }
    let mut numbers = [0; N];
    for (number, value) in numbers.iter_mut().zip(row) {
        *number = match value {
            SqlValue::Null => 0,
            SqlValue::Integer(n) => *n,
            SqlValue::Text(text) => bail!("{text:?} instead of a whole number: {sql}"),
        };
    }
    Ok(numbers)
}

/// An SQL date as microseconds.
pub(crate) fn micros(dialect: Dialect, date: &str) -> String {
    match dialect {
        Dialect::Sqlite => date.to_owned(),
        Dialect::Postgres => format!("CAST(EXTRACT(EPOCH FROM {date}) * 1000000 AS BIGINT) - {EPOCH}"),
        Dialect::MariaDb => format!("TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '2000-01-01 00:00:00', {date})"),
    }
}

/// Microseconds as an SQL date.
pub(super) fn instant(dialect: Dialect, micros: i64) -> String {
    match dialect {
        Dialect::Sqlite => micros.to_string(),
        Dialect::Postgres => format!("(TIMESTAMP '2000-01-01' + INTERVAL '{micros} microseconds')"),
        Dialect::MariaDb => format!("TIMESTAMPADD(MICROSECOND, {micros}, TIMESTAMP '2000-01-01 00:00:00')"),
    }
}

/// A sum of integers as an integer: on PostgreSQL that of `bigint` is `numeric`.
pub(super) fn whole_sum(dialect: Dialect, of: &str) -> String {
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => format!("CAST(sum({of}) AS BIGINT)"),
        Dialect::MariaDb => format!("sum({of})"),
    }
}

/// Whether a server has refused an optional statement: it does not know it (0A000, 42601), or the role lacks the right (42501).
pub(super) fn is_refused(error: &anyhow::Error) -> bool {
    let state = error.downcast_ref::<PgError>().and_then(PgError::sqlstate);
    state.is_some_and(|state| ["0A000", "42601", "42501"].contains(&state.to_string().as_str()))
}

/// The schema of temporary tables.
pub(super) fn temporary(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "temp",
        Dialect::Postgres => "pg_temp",
        // Temporary tables are in a database like others.
        Dialect::MariaDb => DATABASE,
    }
}

/// Lets the server use its memory and its processors for a few large joins.
pub(super) fn tune(database: &mut dyn Database) {
    if database.dialect() != Dialect::Postgres {
        return;
    }
    let workers = this_machine::cpus() - 1;
    for setting in [
        "SET work_mem = '256MB'".to_owned(),
        // Compiling costs more than it saves here.
        "SET jit = off".to_owned(),
        format!("SET max_parallel_workers_per_gather = {}", workers.min(4)),
    ] {
        // A server that only speaks the protocol may not know it; the checks are then slower but equally correct.
        let _ = database.execute(&setting);
    }
}
