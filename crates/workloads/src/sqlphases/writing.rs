//! The phases that write rows: `insert`, `insert-many`, `update`, `delete` and `transactions`.

use anyhow::Result;

use super::session::Session;
use super::tables::{self, sum_below};

const TABLE: &str = "bench1";
const COPY: &str = "bench2";
const ROWS_PER_TRANSACTION: u64 = 10;

/// Creates a table without rows.
pub fn empty_table(session: &mut Session<'_>) -> Result<()> {
    tables::create(session, TABLE)
}

fn insert_one(session: &mut Session<'_>, n: u64) -> Result<()> {
    session.run(&format!("INSERT INTO {TABLE} VALUES {}", tables::values(n)))
}

/// Inserts one row per statement: a third in ascending order, a third in descending, a third in random order; then keys that already exist.
pub fn insert(session: &mut Session<'_>) -> Result<()> {
    let third = session.rows / 3;
    (0..third).try_for_each(|n| insert_one(session, n))?;
    (third..2 * third).rev().try_for_each(|n| insert_one(session, n))?;
    let rest = session.shuffled(session.rows - 2 * third);
    rest.iter().try_for_each(|n| insert_one(session, 2 * third + n))?;
    for _ in 0..session.rows / 10 {
        let n = session.draw(session.rows);
        session.refused(&format!("INSERT INTO {TABLE} VALUES {}", tables::values(n)))?;
    }
    Ok(())
}

/// Checks that the table has exactly the inserted rows.
pub fn inserted(session: &mut Session<'_>) -> Result<()> {
    check_all_rows(session, TABLE)?;
    tables::drop(session, TABLE)
}

fn check_all_rows(session: &mut Session<'_>, table: &str) -> Result<()> {
    let rows = session.rows;
    session.number(&format!("SELECT count(*) FROM {table}"), rows)?;
    session.number(&format!("SELECT sum(id) FROM {table} WHERE id = id2"), sum_below(rows))
}

/// Inserts many rows per statement, then copies the table.
pub fn insert_many(session: &mut Session<'_>) -> Result<()> {
    tables::fill(session, TABLE, 0, session.rows)?;
    tables::create(session, COPY)?;
    session.run(&format!("INSERT INTO {COPY} SELECT * FROM {TABLE}"))
}

/// Checks that both tables have all rows.
pub fn copied(session: &mut Session<'_>) -> Result<()> {
    for table in [TABLE, COPY] {
        check_all_rows(session, table)?;
        tables::drop(session, table)?;
    }
    Ok(())
}

/// Updates rows by key, ranges of the key, and all rows. At the end, `id3` is `id` plus the number of updates of the whole table.
pub fn update(session: &mut Session<'_>) -> Result<()> {
    let rows = session.rows;
    for n in session.shuffled(rows) {
        session.run(&format!("UPDATE {TABLE} SET id3 = id WHERE id = {n} AND id2 = {n}"))?;
    }
    for _ in 0..rows / 20 {
        let n = session.draw(rows - 10);
        session.run(&format!("UPDATE {TABLE} SET dummy = 'updated in a range' WHERE id >= {n} AND id < {}", n + 10))?;
    }
    // Nothing changes.
    for _ in 0..rows / 20 {
        let n = session.draw(rows);
        session.run(&format!("UPDATE {TABLE} SET id3 = id WHERE id = {n}"))?;
    }
    (0..3).try_for_each(|_| session.run(&format!("UPDATE {TABLE} SET id3 = id3 + 1")))
}

/// Checks that every row was updated.
pub fn updated(session: &mut Session<'_>) -> Result<()> {
    let rows = session.rows;
    session.number(&format!("SELECT count(*) FROM {TABLE} WHERE id3 = id + 3"), rows)?;
    tables::drop(session, TABLE)
}

/// Deletes half of the rows by key, a quarter in ranges, and the rest in one statement.
pub fn delete(session: &mut Session<'_>) -> Result<()> {
    let rows = session.rows;
    let half = rows / 2;
    for n in session.shuffled(half) {
        session.run(&format!("DELETE FROM {TABLE} WHERE id = {n} AND id2 = {n}"))?;
    }
    session.number(&format!("SELECT count(*) FROM {TABLE}"), rows - half)?;
    let end = half + rows / 4;
    let mut at = half;
    while at < end {
        let next = (at + 10).min(end);
        session.run(&format!("DELETE FROM {TABLE} WHERE id >= {at} AND id < {next}"))?;
        at = next;
    }
    session.number(&format!("SELECT min(id) FROM {TABLE}"), end)?;
    session.run(&format!("DELETE FROM {TABLE}"))
}

/// Checks that no row is left.
pub fn deleted(session: &mut Session<'_>) -> Result<()> {
    session.number(&format!("SELECT count(*) FROM {TABLE}"), 0)?;
    tables::drop(session, TABLE)
}

/// Inserts rows in transactions, and rolls back every third.
pub fn transactions(session: &mut Session<'_>) -> Result<()> {
    for n in 0..session.rows / ROWS_PER_TRANSACTION {
        session.run("BEGIN")?;
        (n * ROWS_PER_TRANSACTION..(n + 1) * ROWS_PER_TRANSACTION).try_for_each(|row| insert_one(session, row))?;
        session.run(if is_kept(n) { "COMMIT" } else { "ROLLBACK" })?;
    }
    Ok(())
}

const fn is_kept(transaction: u64) -> bool {
    transaction % 3 != 2
}

/// Checks that the table has exactly the rows of the committed transactions.
pub fn committed(session: &mut Session<'_>) -> Result<()> {
    let kept = (0..session.rows / ROWS_PER_TRANSACTION).filter(|n| is_kept(*n));
    let (count, sum) = kept.fold((0, 0), |(count, sum), n| {
        let first = n * ROWS_PER_TRANSACTION;
        (count + ROWS_PER_TRANSACTION, sum + ROWS_PER_TRANSACTION * first + sum_below(ROWS_PER_TRANSACTION))
    });
    session.number(&format!("SELECT count(*) FROM {TABLE}"), count)?;
    session.number(&format!("SELECT sum(id) FROM {TABLE}"), sum)?;
    tables::drop(session, TABLE)
}
