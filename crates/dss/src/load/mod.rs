//! Loading: the generator's rows into an engine, with keys, indexes and statistics.
//!
//! Invariant: after a successful load, each table has the generator's number of rows, counted in the database.

mod binary_rows;
mod postgres;
mod rows;
mod sqlite;

pub use postgres::postgres;
pub use sqlite::sqlite;

/// Its activities are `rows`, `indexes`, `statistics` and, on PostgreSQL, `checkpoint`.
pub use bigiron_sql::stage::Progress;

use anyhow::{Result, bail, ensure};
use bigiron_sql::database::{Database, SqlValue};

use crate::scale::Scale;
use crate::table::Table;

/// Rows of each table after a load.
pub type RowCounts = Vec<(Table, u64)>;

/// The number of rows of each table in the generator.
fn expected(scale: Scale) -> RowCounts {
    Table::ALL.into_iter().map(|table| (table, scale.rows(table))).collect()
}

/// Compares a table with the generator's number of rows.
///
/// # Errors
/// If they differ.
pub(crate) fn check(database: &mut dyn Database, table: Table, expected: u64) -> Result<()> {
    let name = table.name();
    let rows = database.rows(&format!("SELECT count(*) FROM {name}"))?;
    let Some([SqlValue::Integer(count)]) = rows.first().map(Vec::as_slice) else {
        bail!("Counting the rows of {name} gave {rows:?}");
    };
    ensure!(*count as u64 == expected, "Table {name} has {count} rows after the load instead of {expected}");
    Ok(())
}
