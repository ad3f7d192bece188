//! Rows as values, for comparing engines' contents in tests.

use std::convert::Infallible;

use super::super::schema::Table;
use super::{Sink, write};
use bigiron_sql::database::SqlValue;

/// The rows of [`write`].
pub fn rows(table: &Table, warehouse: u32) -> Vec<Vec<SqlValue>> {
    let mut rows = Rows(Vec::new());
    let Ok(()) = write(table, warehouse, &mut rows);
    rows.0
}

struct Rows(Vec<Vec<SqlValue>>);

impl Rows {
    fn push(&mut self, value: SqlValue) {
        self.0.last_mut().unwrap().push(value);
    }
}

impl Sink for Rows {
    type Error = Infallible;

    fn begin(&mut self) {
        self.0.push(Vec::new());
    }

    fn integer(&mut self, value: i32) {
        self.push(SqlValue::Integer(value.into()));
    }

    fn bigint(&mut self, value: i64) {
        self.push(SqlValue::Integer(value));
    }

    fn date(&mut self, value: i64) {
        self.push(SqlValue::Integer(value));
    }

    fn null(&mut self) {
        self.push(SqlValue::Null);
    }

    fn text(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let mut text = vec![0; length];
        fill(&mut text);
        self.push(SqlValue::Text(String::from_utf8(text).unwrap()));
    }

    fn end(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
