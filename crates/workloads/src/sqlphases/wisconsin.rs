//! Queries like those of the Wisconsin benchmark (Bitton, DeWitt, Turbyfill: "Benchmarking Database Systems: A Systematic Approach", VLDB 1983):
//! selections, joins and aggregates on tables with unique and repeated values.

use anyhow::Result;

use super::session::Session;
use super::tables;

const TABLE: &str = "wisc1";
const OTHER: &str = "wisc2";
/// A table with a tenth of the rows.
const TENTH: &str = "wisc3";
/// How many times each query runs.
const TIMES: u64 = 5;

/// Creates two tables with all rows, and one with a tenth of them. `unique1` is in random order; `unique2` is the key, and ascends.
pub fn lay_out(session: &mut Session<'_>) -> Result<()> {
    let filler = "x".repeat(44);
    for (name, rows) in [(TABLE, session.rows), (OTHER, session.rows), (TENTH, session.rows / 10)] {
        session.run(&format!(
            "CREATE TABLE {name} (unique1 integer NOT NULL, unique2 integer NOT NULL PRIMARY KEY, two integer NOT NULL, \
             ten integer NOT NULL, hundred integer NOT NULL, string1 char(52) NOT NULL)"
        ))?;
        let order = session.shuffled(rows);
        tables::batches(session, name, 0, rows, |n| {
            let unique1 = order[n as usize];
            let (two, ten, hundred) = (unique1 % 2, unique1 % 10, unique1 % 100);
            format!("({unique1}, {n}, {two}, {ten}, {hundred}, 'A{unique1:07}{filler}')")
        })?;
        session.run(&format!("CREATE INDEX {name}_unique1 ON {name} (unique1)"))?;
    }
    Ok(())
}

/// Runs each query several times.
pub fn work(session: &mut Session<'_>) -> Result<()> {
    let rows = session.rows;
    let (one, ten) = (rows / 100, rows / 10);
    for _ in 0..TIMES {
        for share in [one, ten] {
            let from = session.draw(rows - share);
            // By the key, and by an index whose order is random.
            for column in ["unique2", "unique1"] {
                session.rows(
                    &format!("SELECT * FROM {TABLE} WHERE {column} >= {from} AND {column} < {}", from + share),
                    share,
                )?;
            }
        }
        // Without an index.
        let n = session.draw(10);
        session.rows(&format!("SELECT * FROM {TABLE} WHERE ten = {n}"), ten)?;
        session.number(&format!("SELECT count(*) FROM {TABLE} WHERE string1 LIKE 'A%x' AND two = 1"), rows / 2)?;
        // Joins: with a selection of the other table, with the table of a tenth of the rows, and of all three.
        session.rows(
            &format!(
                "SELECT * FROM {TABLE}, {OTHER} WHERE {TABLE}.unique2 = {OTHER}.unique2 AND {OTHER}.unique2 < {ten}"
            ),
            ten,
        )?;
        session.rows(&format!("SELECT * FROM {TABLE}, {TENTH} WHERE {TABLE}.unique2 = {TENTH}.unique2"), ten)?;
        session.rows(
            &format!(
                "SELECT {TABLE}.string1 FROM {TABLE}, {OTHER}, {TENTH} WHERE {TABLE}.unique2 = {OTHER}.unique2 \
                 AND {OTHER}.unique1 = {TENTH}.unique1 AND {TABLE}.unique2 >= 0"
            ),
            ten,
        )?;
        session.rows(&format!("SELECT DISTINCT two, ten, hundred FROM {TABLE}"), rows.min(100))?;
        session.number(&format!("SELECT min(unique2) FROM {TABLE}"), 0)?;
        session.rows(&format!("SELECT hundred, min(unique1) FROM {TABLE} GROUP BY hundred"), rows.min(100))?;
        session.number(
            &format!("SELECT sum(total) FROM (SELECT sum(unique1) AS total FROM {TABLE} GROUP BY hundred) AS sums"),
            tables::sum_below(rows),
        )?;
    }
    Ok(())
}

/// Checks that nothing has changed, and drops the tables.
pub fn finish(session: &mut Session<'_>) -> Result<()> {
    for (name, rows) in [(TABLE, session.rows), (OTHER, session.rows), (TENTH, session.rows / 10)] {
        session.number(&format!("SELECT sum(unique1) FROM {name}"), tables::sum_below(rows))?;
        tables::drop(session, name)?;
    }
    Ok(())
}
