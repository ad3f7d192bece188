//! One client of the database: it sends a statement, waits for the answer, and sends the next.
//!
//! Invariant: an unexpected answer ends the run as wrong data.

use anyhow::{Result, ensure};

use bigiron_sql::database::{Database, Dialect, SqlValue};
use bigiron_sql::engine::PrivateDatabase;
use bigiron_sys::load::rng::SplitMix64;
use bigiron_workload::WrongData;

/// A client's connection, and the state from which its statements are generated.
pub struct Session<'a> {
    database: &'a PrivateDatabase,
    connection: Box<dyn Database>,
    /// Rows per table; most statement counts scale with it.
    pub rows: u64,
    /// The phase's own random numbers.
    rng: SplitMix64,
    /// Statements sent and connections opened so far, together.
    pub statements: u64,
}

impl<'a> Session<'a> {
    /// Connects. `name` is the phase's name: it selects the phase's own random stream, whichever phases ran before.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub fn begin(database: &'a PrivateDatabase, rows: u64, seed: u64, name: &str) -> Result<Self> {
        let connection = database.connect()?;
        Ok(Self { database, connection, rows, rng: SplitMix64::stream(seed, name), statements: 0 })
    }

    pub fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// The engine's message if it rejects the statement.
    pub fn run(&mut self, sql: &str) -> Result<()> {
        self.statements += 1;
        self.connection.execute(sql)
    }

    /// Runs a query that must return `count` rows, and returns them.
    ///
    /// # Errors
    /// The engine's message if it rejects the query; [`WrongData`] if there are more or fewer rows.
    pub fn rows(&mut self, sql: &str, count: u64) -> Result<Vec<Vec<SqlValue>>> {
        self.statements += 1;
        let rows = self.connection.rows(sql)?;
        if rows.len() as u64 != count {
            return Err(WrongData(format!("{} rows instead of {count}: {sql}", rows.len())).into());
        }
        Ok(rows)
    }

    /// Runs a query whose answer must be the single number `value`.
    ///
    /// # Errors
    /// As [`Session::rows`]; [`WrongData`] if the answer is anything else.
    pub fn number(&mut self, sql: &str, value: u64) -> Result<()> {
        let rows = self.rows(sql, 1)?;
        match rows[0].as_slice() {
            [SqlValue::Integer(n)] if u64::try_from(*n) == Ok(value) => Ok(()),
            // Some engines return a sum of integers as a decimal.
            [SqlValue::Text(text)] if text.parse() == Ok(value) => Ok(()),
            other => Err(WrongData(format!("{other:?} instead of {value}: {sql}")).into()),
        }
    }

    /// Runs an insert that the database must reject because its key already exists.
    ///
    /// # Errors
    /// [`WrongData`] if the database accepts it; the engine's message if it rejects it for any other reason.
    pub fn refused(&mut self, sql: &str) -> Result<()> {
        self.statements += 1;
        let Err(error) = self.connection.execute(sql) else {
            return Err(WrongData(format!("A duplicate key was accepted: {sql}")).into());
        };
        let said = format!("{error:#}").to_lowercase();
        ensure!(said.contains("duplicate") || said.contains("unique"), error);
        Ok(())
    }

    /// Opens a connection, counts the rows of `table`, and disconnects.
    ///
    /// # Errors
    /// As [`Session::number`].
    pub fn visit(&mut self, table: &str, rows: u64) -> Result<()> {
        let mut visitor = Session { connection: self.database.connect()?, rng: self.rng.clone(), ..*self };
        visitor.number(&format!("SELECT count(*) FROM {table}"), rows)?;
        self.statements += 2;
        Ok(())
    }

    /// A random number less than `below`.
    pub fn draw(&mut self, below: u64) -> u64 {
        self.rng.below(below)
    }

    /// The numbers less than `n`, in random order.
    pub fn shuffled(&mut self, n: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..n).collect();
        for last in (1..order.len()).rev() {
            let other = self.rng.below(last as u64 + 1) as usize;
            order.swap(last, other);
        }
        order
    }
}
