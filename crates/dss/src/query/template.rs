//! Templates of queries: `{name}` is a value, `{date 1995-01-01}` a literal date, `{year COLUMN}` a date's year.
//!
//! Invariant: a filled template has no placeholder left.

use super::Sql;
use crate::date::Date;

/// The value of a placeholder. Texts are words of the generator and contain no quotes.
pub(super) enum Value {
    Number(u32),
    /// `0.05` for 5.
    Hundredths(u32),
    Date(Date),
    Text(String),
    /// A list in parentheses.
    Numbers(Vec<u32>),
    Texts(Vec<String>),
}

/// The statement, without comments.
pub(super) fn fill(template: &str, sql: Sql, values: &[(&'static str, Value)]) -> String {
    let mut text = String::with_capacity(template.len() * 2);
    for line in template.lines().filter(|line| !line.starts_with("--")) {
        let mut pieces = line.split('{');
        text.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let (placeholder, rest) = piece.split_once('}').expect("A placeholder has an end");
            text.push_str(&literal(placeholder, sql, values));
            text.push_str(rest);
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

fn literal(placeholder: &str, sql: Sql, values: &[(&'static str, Value)]) -> String {
    if let Some(date) = placeholder.strip_prefix("date ") {
        return date_of(date, sql);
    }
    if let Some(column) = placeholder.strip_prefix("year ") {
        return match sql {
            Sql::Postgres | Sql::DataFusion => format!("CAST(EXTRACT(YEAR FROM {column}) AS INTEGER)"),
            Sql::Sqlite => format!("CAST(SUBSTR({column}, 1, 4) AS INTEGER)"),
        };
    }
    let value = values.iter().find(|(name, _)| *name == placeholder).map(|(_, value)| value);
    match value.unwrap_or_else(|| panic!("`{placeholder}` has no value")) {
        Value::Number(number) => number.to_string(),
        Value::Hundredths(number) => format!("{}.{:02}", number / 100, number % 100),
        Value::Date(date) => date_of(&date.to_string(), sql),
        Value::Text(text) => quoted(text),
        Value::Numbers(numbers) => list(numbers.iter().map(u32::to_string)),
        Value::Texts(texts) => list(texts.iter().map(|text| quoted(text))),
    }
}

fn date_of(iso: &str, sql: Sql) -> String {
    match sql {
        Sql::Postgres | Sql::DataFusion => format!("DATE '{iso}'"),
        Sql::Sqlite => quoted(iso),
    }
}

fn quoted(text: &str) -> String {
    debug_assert!(!text.contains('\''), "{text}");
    format!("'{text}'")
}

fn list(values: impl Iterator<Item = String>) -> String {
    format!("({})", values.collect::<Vec<_>>().join(", "))
}
