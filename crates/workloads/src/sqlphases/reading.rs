//! The phases that only read: `connect` and `select`.

use anyhow::Result;

use super::session::Session;
use super::tables;
use bigiron_sql::database::SqlValue;
use bigiron_workload::WrongData;

const TABLE: &str = "bench1";
/// A table with a tenth of the rows: each `id` is the `id3` of ten rows of [`TABLE`].
const TENTH: &str = "bench3";

/// Creates a table with all rows.
pub fn one_table(session: &mut Session<'_>) -> Result<()> {
    tables::create(session, TABLE)?;
    tables::fill(session, TABLE, 0, session.rows)
}

/// Creates a table with all rows, and one with a tenth of them.
pub fn two_tables(session: &mut Session<'_>) -> Result<()> {
    one_table(session)?;
    tables::create(session, TENTH)?;
    tables::fill(session, TENTH, 0, session.rows / 10)
}

pub fn drop_table(session: &mut Session<'_>) -> Result<()> {
    tables::drop(session, TABLE)
}

pub fn drop_both(session: &mut Session<'_>) -> Result<()> {
    tables::drop(session, TENTH)?;
    tables::drop(session, TABLE)
}

/// Opens one connection after another, each for one query.
pub fn connect(session: &mut Session<'_>) -> Result<()> {
    let rows = session.rows;
    (0..rows / 20).try_for_each(|_| session.visit(TABLE, rows))
}

/// Runs each kind of selection, and checks its number of rows or its value.
pub fn select(session: &mut Session<'_>) -> Result<()> {
    let rows = session.rows;
    for n in session.shuffled(rows).into_iter().take(rows as usize / 2) {
        session.number(&format!("SELECT id3 FROM {TABLE} WHERE id = {n} AND id2 = {n}"), n / 10)?;
    }
    for _ in 0..rows / 20 {
        let n = session.draw(rows);
        // By an index that is not unique, then a range of the key.
        session.rows(&format!("SELECT * FROM {TABLE} WHERE id3 = {}", n / 10), 10)?;
        let n = session.draw(rows - 50);
        session.rows(&format!("SELECT id, dummy FROM {TABLE} WHERE id >= {n} AND id < {}", n + 50), 50)?;
    }
    for _ in 0..rows / 50 {
        let mut keys: Vec<u64> = (0..20).map(|_| session.draw(rows)).collect();
        keys.sort_unstable();
        keys.dedup();
        let list = keys.iter().map(u64::to_string).collect::<Vec<_>>();
        session.rows(&format!("SELECT * FROM {TABLE} WHERE id IN ({})", list.join(", ")), list.len() as u64)?;
        let either = list.iter().map(|n| format!("id = {n}")).collect::<Vec<_>>().join(" OR ");
        session.number(&format!("SELECT count(*) FROM {TABLE} WHERE {either}"), list.len() as u64)?;
    }
    for _ in 0..rows / 50 {
        let n = session.draw(rows - 10);
        session.number(&format!("SELECT min(id) FROM {TABLE} WHERE id > {n}"), n + 1)?;
        session.number(&format!("SELECT max(id) FROM {TABLE} WHERE id < {}", n + 5), n + 4)?;
    }
    // Whole tables.
    for _ in 0..5 {
        session.rows(&format!("SELECT id3, count(*), max(id) FROM {TABLE} GROUP BY id3"), rows / 10)?;
        session.number(&format!("SELECT count(DISTINCT id3) FROM {TABLE}"), rows / 10)?;
        let sorted = session.rows(&format!("SELECT dummy FROM {TABLE} ORDER BY dummy DESC"), rows)?;
        if !sorted.is_sorted_by(|a, b| text(a) > text(b)) {
            return Err(WrongData("Rows are not in the order of the statement".to_owned()).into());
        }
        session.number(&format!("SELECT count(*) FROM {TABLE}, {TENTH} WHERE {TABLE}.id3 = {TENTH}.id"), rows)?;
        session.number(
            &format!(
                "SELECT count(*) FROM {TABLE} LEFT JOIN {TENTH} ON {TABLE}.id = {TENTH}.id WHERE {TENTH}.id IS NULL"
            ),
            rows - rows / 10,
        )?;
    }
    Ok(())
}

/// The text of a row with one column.
fn text(row: &[SqlValue]) -> &str {
    match row {
        [SqlValue::Text(text)] => text,
        _ => "",
    }
}
