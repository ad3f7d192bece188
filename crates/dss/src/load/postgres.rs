//! Loads into a PostgreSQL server, by binary `COPY` over several parallel connections.
//!
//! Invariant: unless it is split, each table is created in the transaction that fills it, so that its rows are frozen from the start (no vacuum
//! rewrites them later) and a server with `wal_level=minimal` writes no log for them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context as _, Result, bail, ensure};
use bigiron_sql::database::Dialect;
use bigiron_sql::pg::{Connection, Url};
use bigiron_sql::stage::stage;

use super::{Progress, RowCounts, check, expected, rows};
use crate::scale::{Portion, Scale};
use crate::table::Table;
use bigiron_sql::pg::binary_rows::BinaryRows;

/// With at least this many connections, the largest tables are split over them: unfrozen rows cost less than idle processors.
const SPLIT_FROM: usize = 8;
/// Memory of each connection for sorting keys.
const SORT_MEMORY: &str = "256MB";

/// Loads the tables into an empty schema, over `jobs` connections. A failed load leaves the tables that it created.
///
/// # Errors
/// The server's message, with the table and the step; if a row count differs from the generator's.
pub fn postgres(url: &Url, scale: Scale, jobs: u32, progress: Progress<'_>) -> Result<RowCounts> {
    let mut sessions = Vec::new();
    for _ in 0..jobs.max(1) {
        let mut session = Connection::connect(url)?;
        // The connections keep the processors busy; parallel workers of a sort would only compete with them.
        let workers = if jobs > 1 { "SET max_parallel_maintenance_workers = 0; " } else { "" };
        session
            .run(&format!("{workers}SET client_min_messages = warning; SET maintenance_work_mem = '{SORT_MEMORY}'"))?;
        sessions.push(session);
    }
    let load = Load { scale, failed: AtomicBool::new(false) };
    load.run(&mut sessions, progress)
}

struct Load {
    scale: Scale,
    failed: AtomicBool,
}

/// Rows that are copied in one statement.
struct Share {
    table: Table,
    portion: Portion,
}

impl Share {
    /// Whether the table gets its indexes right after its rows, while other connections still copy: not the largest one, whose indexes all
    /// connections share afterwards.
    fn is_indexed(&self) -> bool {
        self.portion == Portion::WHOLE && self.table != Table::Lineitem
    }
}

/// An index to be built. Those of primary keys are built like the others, several at a time, and become the keys afterwards.
struct Build {
    table: Table,
    sql: String,
}

impl Build {
    fn run(&self, session: &mut Connection) -> Result<()> {
        session.run(&self.sql).with_context(|| format!("Cannot create an index of {}", self.table.name()))
    }
}

impl Load {
    fn run(&self, sessions: &mut [Connection], progress: Progress<'_>) -> Result<RowCounts> {
        let counts = expected(self.scale);
        let total = counts.iter().map(|(_, count)| count).sum();
        let shares = self.shares(sessions)?;
        stage(sessions, &self.failed, &shares, ("rows", total), progress, |session, share, handed| {
            self.fill(session, share, handed)
                .with_context(|| format!("Cannot copy rows into {}", share.table.name()))?;
            let builds = if share.is_indexed() { self.builds(share.table) } else { Vec::new() };
            builds.iter().try_for_each(|build| build.run(session))
        })?;

        let is_left = |table: &Table| !shares.iter().any(|share| share.table == *table && share.is_indexed());
        let builds: Vec<Build> =
            Table::BY_SIZE.into_iter().filter(is_left).flat_map(|table| self.builds(table)).collect();
        let count = builds.len() as u64;
        stage(sessions, &self.failed, &builds, ("indexes", count), progress, |session, build, done| {
            build.run(session)?;
            done(1);
            anyhow::Ok(())
        })?;

        let count = counts.len() as u64;
        stage(sessions, &self.failed, &Table::BY_SIZE, ("statistics", count), progress, |session, table, done| {
            self.finish(session, *table).with_context(|| format!("Cannot finish {}", table.name()))?;
            let rows = counts.iter().find(|(of, _)| of == table).map_or(0, |(_, count)| *count);
            check(session, *table, rows)?;
            done(1);
            anyhow::Ok(())
        })?;

        progress("checkpoint", 0, 1);
        sessions[0].run("CHECKPOINT").context("Cannot write a checkpoint")?;
        progress("checkpoint", 1, 1);
        Ok(counts)
    }

    /// The units of copying. Tables that are split are created first.
    fn shares(&self, sessions: &mut [Connection]) -> Result<Vec<Share>> {
        let connections = sessions.len();
        let mut shares = Vec::new();
        for table in Table::BY_SIZE {
            if connections < SPLIT_FROM || !matches!(table, Table::Lineitem | Table::Orders | Table::Partsupp) {
                shares.push(Share { table, portion: Portion::WHOLE });
                continue;
            }
            sessions[0].run(&table.create(Dialect::Postgres))?;
            let of = connections as i32;
            shares.extend((1..=of).map(|number| Share { table, portion: Portion { number, of } }));
        }
        Ok(shares)
    }

    fn fill(&self, session: &mut Connection, share: &Share, handed: &dyn Fn(u64)) -> Result<()> {
        let Share { table, portion } = *share;
        let is_whole = portion == Portion::WHOLE;
        if is_whole {
            session.run("BEGIN")?;
            session.run(&table.create(Dialect::Postgres))?;
        }
        let freeze = if is_whole { ", FREEZE" } else { "" };
        let mut copy = session.copy_in(&format!("COPY {} FROM STDIN (FORMAT binary{freeze})", table.name()))?;
        let mut binary = BinaryRows::new(table.columns().len(), |piece: &[u8], count| {
            copy.write(piece)?;
            handed(count);
            if self.failed.load(Relaxed) {
                bail!("The load was abandoned");
            }
            Ok(())
        });
        rows::write(table, self.scale, portion, &mut binary)?;
        let sent = binary.finish()?;
        let taken = copy.finish()?;
        ensure!(taken == sent, "The server stored {taken} of {sent} rows");
        if is_whole {
            session.run("COMMIT")?;
        }
        Ok(())
    }

    /// The primary key, and the statistics.
    fn finish(&self, session: &mut Connection, table: Table) -> Result<()> {
        let name = table.name();
        if self.has_key(table) {
            session.run(&format!("ALTER TABLE {name} ADD PRIMARY KEY USING INDEX {name}_key"))?;
        }
        session.run(&format!("VACUUM (FREEZE, ANALYZE) {name}"))?;
        Ok(())
    }

    /// Whether a table gets its primary key: at tiny scales the generator repeats some keys of `partsupp`.
    fn has_key(&self, table: Table) -> bool {
        table != Table::Partsupp || self.scale.has_distinct_offers()
    }

    /// The indexes of a table.
    fn builds(&self, table: Table) -> Vec<Build> {
        let name = table.name();
        let unique = if self.has_key(table) { "UNIQUE " } else { "" };
        let key = format!("CREATE {unique}INDEX {name}_key ON {name} ({})", table.key().join(", "));
        let others = table.indexes(Dialect::Postgres).map(|index| index.create());
        std::iter::once(key).chain(others).map(|sql| Build { table, sql }).collect()
    }
}
