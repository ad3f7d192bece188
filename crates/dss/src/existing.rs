//! The tables on an existing server.
//!
//! Invariant: a table that bigiron did not load is never changed.

use anyhow::{Result, bail};

use crate::answer;
use crate::answers::Answers;
use crate::load;
use crate::scale::Scale;
use crate::settings::Settings;
use crate::table::Table;
use bigiron_sql::database::{Database, SqlValue};
use bigiron_sql::pg::{Connection, Url};
use bigiron_sys::this_machine;

/// The expected answers of the server at `url`. Loads its tables if they are missing or have another scale factor.
///
/// # Errors
/// As [`load`]; if a query fails.
pub fn ensure(url: &Url, settings: &Settings, note: &dyn Fn(&str)) -> Result<Answers> {
    load(url, settings.scale, note)?;
    let mut connection = Connection::connect(url)?;
    Answers::collect(settings, &mut |sql| answer::run(&mut connection, sql))
}

/// Loads the tables at `scale` into the server at `url`, unless it has them. Returns whether it loaded them.
///
/// # Errors
/// If the server has tables of these names that bigiron did not load; if it cannot be reached, or a load fails.
pub fn load(url: &Url, scale: Scale, note: &dyn Fn(&str)) -> Result<bool> {
    let mark = format!("loaded by bigiron dss, scale factor {scale}");
    let mut connection = Connection::connect(url)?;
    let names: Vec<String> = Table::ALL.iter().map(|table| format!("'{}'", table.name())).collect();
    let found = connection.rows(&format!(
        "SELECT relname::text, coalesce(obj_description(oid, 'pg_class'), '') FROM pg_class \
         WHERE relname IN ({}) AND pg_table_is_visible(oid) AND relkind IN ('r', 'p')",
        names.join(", ")
    ))?;
    let of_bigiron = |row: &Vec<SqlValue>| matches!(row.as_slice(), [_, SqlValue::Text(comment)] if comment.starts_with("loaded by bigiron dss"));
    if let Some([SqlValue::Text(table), ..]) = found.iter().find(|row| !of_bigiron(row)).map(Vec::as_slice) {
        bail!("{url} has a table `{table}` that bigiron did not load; name another database");
    }
    let is_same = |row: &Vec<SqlValue>| matches!(row.as_slice(), [_, SqlValue::Text(comment)] if *comment == mark);
    if found.len() == Table::ALL.len() && found.iter().all(is_same) {
        return Ok(false);
    }
    note(&format!("Loading the tables at scale factor {scale} into {url}"));
    for table in Table::ALL {
        connection.execute(&format!("DROP TABLE IF EXISTS {}", table.name()))?;
    }
    let workers = this_machine::cpus();
    // An interrupted load leaves no mark: the next run refuses its tables instead of dropping them.
    load::postgres(url, scale, workers, &|_, _, _| {})?;
    for table in Table::ALL {
        connection.execute(&format!("COMMENT ON TABLE {} IS '{mark}'", table.name()))?;
    }
    Ok(true)
}
