//! The expected answers to the queries of all streams, as digests that fit into a plan.
//!
//! The engine under test gives them when bigiron makes its tables, on the machine that makes them.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, bail};

use crate::answer::Answer;
use crate::orders;
use crate::query;
use crate::settings::Settings;
use bigiron_sql::database::SqlValue;
use bigiron_workload::WrongData;

/// The expected answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Rows of the largest table.
    pub lineitem: u64,
    /// A digest for each query of each stream.
    digests: BTreeMap<(u32, u8), String>,
}

impl Answers {
    /// Stream, number and text of each distinct query.
    pub fn queries(settings: &Settings) -> Vec<(u32, u8, String)> {
        let dialect = settings.engine.dialect();
        // With the validation values, all streams run the same queries.
        let different = if settings.seed.is_none() { 1 } else { settings.streams };
        let of_stream = |stream| {
            let parameters = settings.parameters(stream);
            (1..=orders::QUERIES as u8)
                .map(move |query| (stream, query, query::text(query, dialect, &parameters, settings.scale)))
        };
        (0..different).flat_map(of_stream).collect()
    }

    /// Collects the answers to all queries of all streams; `ask` runs one.
    ///
    /// # Errors
    /// As `ask`.
    pub fn collect(settings: &Settings, ask: &mut dyn FnMut(&str) -> Result<Answer>) -> Result<Self> {
        let mut digests = BTreeMap::new();
        for (stream, query, sql) in Self::queries(settings) {
            let answer = ask(&sql).with_context(|| format!("Query {query} of stream {stream}"))?;
            digests.insert((stream, query), answer.digest());
        }
        let lineitem = ask("SELECT count(*) FROM lineitem")?;
        let Some([SqlValue::Integer(lineitem)]) = lineitem.rows.first().map(Vec::as_slice) else {
            bail!("The engine answered {lineitem:?} instead of a row count");
        };
        Ok(Self { lineitem: lineitem.unsigned_abs(), digests })
    }

    /// Reads the output of [`fmt::Display`]; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let one = |part: &str| {
            let (key, digest) = part.split_once('=')?;
            let (stream, query) = key.split_once('.')?;
            Some(((stream.parse().ok()?, query.parse().ok()?), digest.to_owned()))
        };
        let (lineitem, digests) = text.strip_prefix("lineitem=")?.split_once(' ')?;
        let digests = digests.split_ascii_whitespace().map(one).collect::<Option<_>>()?;
        Some(Self { lineitem: lineitem.parse().ok()?, digests })
    }

    /// Checks an answer to `query` in `stream`. Accepts any answer to a query that was not recorded.
    ///
    /// # Errors
    /// [`WrongData`] if it differs from the expected one.
    pub fn check(&self, stream: u32, query: u8, answer: &Answer) -> Result<()> {
        let Some(right) = self.digests.get(&(stream, query)).or_else(|| self.digests.get(&(0, query))) else {
            return Ok(());
        };
        let found = answer.digest();
        if found == *right {
            return Ok(());
        }
        let rows = answer.rows.len();
        let first = answer.rows.first().map_or_else(String::new, |row| format!("; the first row is {row:?}"));
        let text = format!(
            "Query {query} gives a different answer than when its tables were made ({found} instead of {right}): {rows} rows{first}"
        );
        Err(WrongData(text).into())
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lineitem={}", self.lineitem)?;
        self.digests.iter().try_for_each(|((stream, query), digest)| write!(f, " {stream}.{query}={digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_are_written_and_a_wrong_one_is_wrong_data() {
        let right = Answer { rows: vec![vec![SqlValue::Integer(1), SqlValue::Text("a".to_owned())]] };
        let wrong = Answer { rows: vec![vec![SqlValue::Integer(2), SqlValue::Text("a".to_owned())]] };
        let digests = BTreeMap::from([((0, 1), right.digest()), ((0, 22), wrong.digest())]);
        let answers = Answers { lineitem: 60_175, digests };
        let read = Answers::parse(&answers.to_string()).unwrap();
        assert_eq!(read, answers);
        read.check(0, 1, &right).unwrap();
        // Another stream with the same parameters.
        read.check(3, 1, &right).unwrap();
        let error = read.check(0, 1, &wrong).unwrap_err();
        assert!(error.is::<WrongData>() && error.to_string().contains("Query 1 gives a different answer"), "{error}");
        assert_eq!(Answers::parse("lineitem=1 0.1"), None);
    }
}
