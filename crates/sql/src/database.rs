//! A database that can be queried in SQL outside the measurements: for schema, statistics, checks and sums.

/// A value of a result row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    Null,
    Integer(i64),
    Text(String),
}

/// Where the SQL of the engines differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL, and servers with its protocol.
    Postgres,
    Sqlite,
    MariaDb,
}

/// One connection, used only outside the measurements.
pub trait Database {
    fn dialect(&self) -> Dialect;

    /// Runs statements without result rows, separated by `;`.
    ///
    /// # Errors
    /// The engine's message if it refuses one.
    fn execute(&mut self, sql: &str) -> anyhow::Result<()>;

    /// The rows of one statement; integers of any width are [`SqlValue::Integer`], everything else is text.
    ///
    /// # Errors
    /// The engine's message if it refuses the statement.
    fn rows(&mut self, sql: &str) -> anyhow::Result<Vec<Vec<SqlValue>>>;
}
