//! A database that can be asked in SQL off the clock: for schema, statistics, checks and sums.

/// A value of a result row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    Null,
    Integer(i64),
    Text(String),
}

/// Where the SQL of the two engines differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL, and servers that speak its protocol.
    Postgres,
    Sqlite,
}

/// One connection, used for nothing that is measured.
pub trait Database {
    fn dialect(&self) -> Dialect;

    /// Runs statements that give no rows, separated by `;`.
    ///
    /// # Errors
    /// What the engine refused, in its words.
    fn execute(&mut self, sql: &str) -> anyhow::Result<()>;

    /// The rows of one statement; integers of any width come as [`SqlValue::Integer`], everything else as its text.
    ///
    /// # Errors
    /// What the engine refused, in its words.
    fn rows(&mut self, sql: &str) -> anyhow::Result<Vec<Vec<SqlValue>>>;
}
