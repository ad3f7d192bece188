//! One client of the database: it sends a statement, waits for the answer, and sends the next.
//!
//! Invariant: an answer that is not the expected one ends the run as wrong data.

use anyhow::{Result, ensure};

use bigiron_sql::database::{Database, Dialect, SqlValue};
use bigiron_sql::engine::PrivateDatabase;
use bigiron_sys::load::rng::SplitMix64;
use bigiron_workload::WrongData;

/// A client, and what it needs to choose its statements.
pub struct Session<'a> {
    database: &'a PrivateDatabase,
    connection: Box<dyn Database>,
    /// Rows of a table; everything else is proportional.
    pub rows: u64,
    /// Draws of this phase.
    rng: SplitMix64,
    /// Statements sent so far, and connections made.
    pub statements: u64,
}

impl<'a> Session<'a> {
    /// Connects. `name` is the phase's: each has draws of its own, whatever runs before it.
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
    /// The engine's message if it refuses it.
    pub fn run(&mut self, sql: &str) -> Result<()> {
        self.statements += 1;
        self.connection.execute(sql)
    }

    /// The rows of a statement, of which there must be `count`.
    ///
    /// # Errors
    /// The engine's message if it refuses it; [`WrongData`] if there are more or fewer.
    pub fn rows(&mut self, sql: &str, count: u64) -> Result<Vec<Vec<SqlValue>>> {
        self.statements += 1;
        let rows = self.connection.rows(sql)?;
        if rows.len() as u64 != count {
            return Err(WrongData(format!("{} rows instead of {count}: {sql}", rows.len())).into());
        }
        Ok(rows)
    }

    /// A statement whose answer is one number, which must be `value`.
    ///
    /// # Errors
    /// As [`Session::rows`]; [`WrongData`] if it is another number.
    pub fn number(&mut self, sql: &str, value: u64) -> Result<()> {
        let rows = self.rows(sql, 1)?;
        match rows[0].as_slice() {
            [SqlValue::Integer(n)] if u64::try_from(*n) == Ok(value) => Ok(()),
            // A sum of integers is a decimal number in some engines.
            [SqlValue::Text(text)] if text.parse() == Ok(value) => Ok(()),
            other => Err(WrongData(format!("{other:?} instead of {value}: {sql}")).into()),
        }
    }

    /// A statement that the database must refuse, because a row with its key is there.
    ///
    /// # Errors
    /// [`WrongData`] if it accepts it; another reason than the key.
    pub fn refused(&mut self, sql: &str) -> Result<()> {
        self.statements += 1;
        let Err(error) = self.connection.execute(sql) else {
            return Err(WrongData(format!("A second row with the same key was accepted: {sql}")).into());
        };
        let said = format!("{error:#}").to_lowercase();
        ensure!(said.contains("duplicate") || said.contains("unique"), error);
        Ok(())
    }

    /// Makes a connection, asks for the number of rows of `table`, and disconnects.
    ///
    /// # Errors
    /// As [`Session::number`].
    pub fn visit(&mut self, table: &str, rows: u64) -> Result<()> {
        let mut visitor = Session { connection: self.database.connect()?, rng: self.rng.clone(), ..*self };
        visitor.number(&format!("SELECT count(*) FROM {table}"), rows)?;
        self.statements += 2;
        Ok(())
    }

    /// A number below `below`.
    pub fn draw(&mut self, below: u64) -> u64 {
        self.rng.below(below)
    }

    /// The numbers below `n` in a random order.
    pub fn shuffled(&mut self, n: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..n).collect();
        for last in (1..order.len()).rev() {
            let other = self.rng.below(last as u64 + 1) as usize;
            order.swap(last, other);
        }
        order
    }
}
