//! Loads into a MariaDB server by `LOAD DATA` over several parallel connections.
//!
//! Invariant: each table is filled by one statement while it is empty and by nobody else, in the order of its key, so that its pages are written in
//! that order.
//!
//! Unique and foreign keys stay checked: with both checks off, InnoDB sorts the rows of an empty table itself before it writes them (bulk insert),
//! which takes twice the CPU time for rows that are in order (MariaDB 10.11).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::super::population;
use super::super::scale::Scale;
use super::super::schema::{INDEXES, TABLES, Table};
use super::stage::{by_size, stage};
use super::text_rows::TextRows;
use super::{LoadError, LoadSummary, Progress};
use bigiron_sql::database::{Dialect, SqlValue};
use bigiron_sql::maria::{Connection, MariaError, Place};

/// Loads the tables of `scale` into the server's database, which has none of them, over `jobs` connections.
///
/// # Errors
/// [`LoadError::Exists`] if it has; [`LoadError::Table`] with the server's message. The tables created are then dropped again.
pub fn mariadb(place: &Place, scale: Scale, jobs: u32, progress: Progress<'_>) -> Result<LoadSummary, LoadError> {
    let mut sessions = (0..jobs).map(|_| Connection::connect(place)).collect::<Result<Vec<_>, _>>()?;
    let there = existing(&mut sessions[0])?;
    if !there.is_empty() {
        return Err(LoadError::Exists { place: place.name(), tables: there });
    }
    let loaded = run(&mut sessions, scale, progress);
    if loaded.is_err() {
        drop(sessions);
        // A lost server cannot be cleaned up; the load's own error is the one to report.
        if let Ok(mut session) = Connection::connect(place) {
            let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
            let _ = session.run(&format!("DROP TABLE IF EXISTS {}", names.join(", ")));
        }
    }
    loaded.map(|rows| LoadSummary { rows, unavailable: Vec::new() })
}

/// The tables that already exist.
fn existing(session: &mut Connection) -> Result<Vec<String>, MariaError> {
    let names: Vec<String> = TABLES.iter().map(|table| format!("'{}'", table.name)).collect();
    let rows = session.query(&format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = database() AND table_name IN ({}) ORDER BY 1",
        names.join(", ")
    ))?;
    let names = rows.into_iter().flatten().filter_map(|value| match value {
        SqlValue::Text(name) => Some(name),
        _ => None,
    });
    Ok(names.collect())
}

fn run(
    sessions: &mut [Connection],
    scale: Scale,
    progress: Progress<'_>,
) -> Result<Vec<(&'static str, u64)>, LoadError> {
    let tables = by_size();
    for table in tables {
        let created = sessions[0].run(&table.create(Dialect::MariaDb));
        created.map_err(LoadError::table(table.name, "creating it"))?;
    }
    let rows: Vec<(&'static str, u64)> = TABLES.iter().map(|t| (t.name, population::total(t, scale))).collect();
    let total = rows.iter().map(|(_, count)| count).sum();
    let failed = AtomicBool::new(false);
    stage(sessions, &failed, &tables, ("rows", total), progress, |session, table, handed| {
        fill(session, table, scale, &|count| {
            handed(count);
            if failed.load(Relaxed) { Err(LoadError::GivenUp) } else { Ok(()) }
        })
    })?;
    stage(sessions, &failed, INDEXES, ("indexes", INDEXES.len() as u64), progress, |session, index, done| {
        let sql = format!("CREATE INDEX {} ON {} ({})", index.name, index.table, index.columns.join(", "));
        session.run(&sql).map_err(LoadError::table(index.table, "creating its index"))?;
        done(1);
        Ok(())
    })?;
    stage(sessions, &failed, &tables, ("statistics", tables.len() as u64), progress, |session, table, done| {
        let analysed = session.run(&format!("ANALYZE TABLE {}", table.name));
        analysed.map_err(LoadError::table(table.name, "gathering statistics"))?;
        done(1);
        Ok(())
    })?;
    Ok(rows)
}

/// Fills an empty table. `on` is told of rows sent, and can end the load.
fn fill(
    session: &mut Connection,
    table: &Table,
    scale: Scale,
    on: &dyn Fn(u64) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let refused = LoadError::table(table.name, "copying rows");
    let sql = format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {} CHARACTER SET utf8mb4", table.name);
    let mut lines = session.load(&sql).map_err(&refused)?;
    let mut rows = TextRows::copy(|piece: &[u8], count| {
        lines.write(piece).map_err(&refused)?;
        on(count)
    });
    for warehouse in population::warehouses(table, scale) {
        population::write(table, warehouse, &mut rows)?;
    }
    let sent = rows.finish()?;
    let taken = lines.finish().map_err(&refused)?;
    if (taken.rows, taken.warnings) != (sent, 0) {
        return Err(refused(MariaError::Protocol(format!(
            "{} rows were taken of {sent} sent, with {} warnings",
            taken.rows, taken.warnings
        ))));
    }
    Ok(())
}
