//! Loads into a PostgreSQL server, or one with its protocol, by `COPY` over several parallel connections.
//!
//! Invariant: with one connection per table, and if the server supports it, each table is created in the transaction that fills
//! it, so that its rows are frozen from the start (no vacuum rewrites them later) and a server with `wal_level=minimal` writes no
//! log for them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::super::population;
use super::super::scale::Scale;
use super::super::schema::{INDEXES, TABLES, Table};
use super::method::{self, LoadMethod};
use super::stage::{by_size, stage};
use super::text_rows::TextRows;
use super::{LoadError, LoadSummary, Progress};
use bigiron_sql::database::{Dialect, SqlValue};
use bigiron_sql::pg::binary_rows::BinaryRows;
use bigiron_sql::pg::{Connection, PgError, Url};

/// From this many connections on, tables are split over them: unfrozen rows cost less than idle processors.
const SPLIT_FROM: u32 = 8;
/// Memory of each connection for sorting keys.
const SORT_MEMORY: &str = "256MB";
/// Loads the tables of `scale` into the current schema of the URL's database, over `jobs` connections.
///
/// # Errors
/// [`LoadError::Exists`] if tables of these names exist and may not be replaced; [`LoadError::Table`] with the server's message.
/// The tables created are then dropped again.
pub fn postgres(
    url: &Url,
    scale: Scale,
    jobs: u32,
    replace: bool,
    progress: Progress<'_>,
) -> Result<LoadSummary, LoadError> {
    let mut first = Connection::connect(url)?;
    let there = existing(&mut first)?;
    if !there.is_empty() && !replace {
        return Err(LoadError::Exists { place: url.to_string(), tables: there });
    }
    let mut sessions = vec![first];
    for _ in 1..jobs {
        sessions.push(Connection::connect(url)?);
    }
    // The connections keep the processors busy; parallel workers of a sort would only compete with them.
    let helpers = (jobs > 1).then_some("max_parallel_maintenance_workers = 0".to_owned());
    let sorting = format!("maintenance_work_mem = '{SORT_MEMORY}'");
    let settings: Vec<String> =
        ["client_min_messages = warning".to_owned(), sorting].into_iter().chain(helpers).collect();
    let (way, refused) = method::find(&mut sessions[0])?;
    let unavailable = Mutex::new(BTreeSet::from_iter(refused));
    let without = |what: String| _ = unavailable.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    for session in &mut sessions {
        for setting in &settings {
            or_without(session, &format!("SET {setting}"), &without)?;
        }
    }
    let made = Mutex::new(Vec::new());
    let load = Load { scale, replace, way, without: &without, made: &made, failed: AtomicBool::new(false) };
    let loaded = load.run(&mut sessions, progress);
    if loaded.is_err() {
        let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        drop(sessions);
        // A lost server cannot be cleaned up; the load's own error is the one to report.
        if let (false, Ok(mut session)) = (made.is_empty(), Connection::connect(url)) {
            let _ = session.run(&format!("DROP TABLE IF EXISTS {}", made.join(", ")));
        }
    }
    let unavailable = unavailable.into_inner().unwrap_or_else(PoisonError::into_inner);
    loaded.map(|rows| LoadSummary { rows, unavailable: unavailable.into_iter().collect() })
}

/// Runs an optional statement; reports the server's refusal to `without`. Returns whether it succeeded.
fn or_without(session: &mut Connection, sql: &str, without: &dyn Fn(String)) -> Result<bool, PgError> {
    match session.run(sql) {
        Ok(()) => Ok(true),
        Err(PgError::Server(why)) if !why.sqlstate.is_disk_full() && !why.sqlstate.is_shutdown() => {
            without(format!("{sql} ({})", why.text));
            Ok(false)
        }
        Err(other) => Err(other),
    }
}

/// The tables of this schema that already exist.
fn existing(session: &mut Connection) -> Result<Vec<String>, PgError> {
    let names: Vec<String> = TABLES.iter().map(|table| format!("'{}'", table.name)).collect();
    let rows = session.query(&format!(
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema() AND table_name IN ({}) ORDER BY 1",
        names.join(", ")
    ))?;
    Ok(rows
        .into_iter()
        .flatten()
        .filter_map(|value| match value {
            SqlValue::Text(name) => Some(name),
            _ => None,
        })
        .collect())
}

/// Rows of a table, copied in one statement.
struct Share {
    table: &'static Table,
    /// First and last, in the form that [`population::write`] accepts.
    warehouses: (u32, u32),
    /// The whole table, which is created in the same transaction.
    whole: bool,
}

struct Load<'a> {
    scale: Scale,
    replace: bool,
    way: LoadMethod,
    /// Receives the server's refusals.
    without: &'a (dyn Fn(String) + Sync),
    /// Tables created by this load.
    made: &'a Mutex<Vec<&'static str>>,
    failed: AtomicBool,
}

impl Load<'_> {
    fn run(&self, sessions: &mut [Connection], progress: Progress<'_>) -> Result<Vec<(&'static str, u64)>, LoadError> {
        let tables = by_size();
        // Rows that cannot be frozen do not depend on how their table was created.
        let split = sessions.len() as u32 >= SPLIT_FROM || self.way != LoadMethod::Frozen;
        if split {
            for table in tables {
                self.create(&mut sessions[0], table).map_err(LoadError::table(table.name, "creating it"))?;
                self.note(table);
            }
        }
        let shares: Vec<Share> = tables.into_iter().flat_map(|table| self.shares(table, split)).collect();
        let rows: Vec<(&'static str, u64)> =
            TABLES.iter().map(|t| (t.name, population::total(t, self.scale))).collect();
        let total = rows.iter().map(|(_, count)| count).sum();
        stage(sessions, &self.failed, &shares, ("rows", total), progress, |session, share, handed| {
            self.fill(session, share, handed)
        })?;
        let count = tables.len() as u64;
        stage(sessions, &self.failed, &tables, ("indexes", count), progress, |session, table, done| {
            index(session, table)?;
            done(1);
            Ok(())
        })?;
        stage(sessions, &self.failed, &tables, ("statistics", count), progress, |session, table, done| {
            let refused = LoadError::table(table.name, "gathering statistics");
            let sql = format!("VACUUM (FREEZE, ANALYZE) {}", table.name);
            if !or_without(session, &sql, &|what| self.say(table, &what)).map_err(&refused)? {
                let sql = format!("ANALYZE {}", table.name);
                or_without(session, &sql, &|what| self.say(table, &what)).map_err(&refused)?;
            }
            done(1);
            Ok(())
        })?;
        progress("checkpoint", 0, 1);
        checkpoint(&mut sessions[0])?;
        progress("checkpoint", 1, 1);
        Ok(rows)
    }

    /// The units of copying: a table, or some warehouses of it.
    fn shares(&self, table: &'static Table, split: bool) -> Vec<Share> {
        let all = population::warehouses(table, self.scale);
        let (first, last) = (*all.start(), *all.end());
        if !split {
            return vec![Share { table, warehouses: (first, last), whole: true }];
        }
        (first..=last).map(|w| Share { table, warehouses: (w, w), whole: false }).collect()
    }

    fn create(&self, session: &mut Connection, table: &Table) -> Result<(), PgError> {
        if self.replace {
            session.run(&format!("DROP TABLE IF EXISTS {}", table.name))?;
        }
        session.run(&table.create(Dialect::Postgres))
    }

    /// A refusal for one table applies to all.
    fn say(&self, table: &Table, what: &str) {
        (self.without)(what.replace(table.name, "TABLE"));
    }

    fn note(&self, table: &Table) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(table.name);
    }

    fn fill(&self, session: &mut Connection, share: &Share, handed: &dyn Fn(u64)) -> Result<(), LoadError> {
        let name = share.table.name;
        if share.whole {
            session
                .run("BEGIN")
                .and_then(|()| self.create(session, share.table))
                .map_err(LoadError::table(name, "creating it"))?;
        }
        let refused = LoadError::table(name, "copying rows");
        let on = |count| {
            handed(count);
            if self.failed.load(Relaxed) { Err(LoadError::GivenUp) } else { Ok(()) }
        };
        let warehouses = share.warehouses.0..=share.warehouses.1;
        if self.way == LoadMethod::Insert {
            let mut rows = TextRows::insert(name, |statement: &[u8], count| {
                let statement = std::str::from_utf8(statement).expect("Letters and digits");
                session.run(statement).map_err(&refused)?;
                on(count)
            });
            warehouses.into_iter().try_for_each(|w| population::write(share.table, w, &mut rows))?;
            rows.finish()?;
            return Ok(());
        }
        let way = if self.way == LoadMethod::Frozen && !share.whole { LoadMethod::Binary } else { self.way };
        let mut copy = session.copy_in(&way.copy(name)).map_err(&refused)?;
        let hand = |piece: &[u8], count| {
            copy.write(piece).map_err(&refused)?;
            on(count)
        };
        let sent = if way == LoadMethod::Text {
            let mut rows = TextRows::copy(hand);
            warehouses.into_iter().try_for_each(|w| population::write(share.table, w, &mut rows))?;
            rows.finish()?
        } else {
            let mut rows = BinaryRows::new(share.table.columns.len(), hand);
            warehouses.into_iter().try_for_each(|w| population::write(share.table, w, &mut rows))?;
            rows.finish()?
        };
        let taken = copy.finish().map_err(&refused)?;
        if taken != sent {
            return Err(refused(PgError::Protocol(format!("{taken} rows were taken of {sent} sent"))));
        }
        if share.whole {
            // Noted before: a commit whose response is lost may have succeeded.
            self.note(share.table);
            session.run("COMMIT").map_err(LoadError::table(name, "committing its rows"))?;
        }
        Ok(())
    }
}

/// The keys of a table.
fn index(session: &mut Connection, table: &Table) -> Result<(), LoadError> {
    if !table.key.is_empty() {
        session
            .run(&format!("ALTER TABLE {} ADD PRIMARY KEY ({})", table.name, table.key.join(", ")))
            .map_err(LoadError::table(table.name, "creating the primary key"))?;
    }
    for index in INDEXES.iter().filter(|index| index.table == table.name) {
        session
            .run(&format!("CREATE INDEX {} ON {} ({})", index.name, index.table, index.columns.join(", ")))
            .map_err(LoadError::table(table.name, "creating its index"))?;
    }
    Ok(())
}

/// Puts everything on stable storage, if the role may request that. If it may not (insufficient privilege), or the server has no
/// checkpoints (feature not supported, syntax error), that is left to the server.
fn checkpoint(session: &mut Connection) -> Result<(), LoadError> {
    match session.run("CHECKPOINT") {
        Err(cause) => match cause.sqlstate().map(|state| state.to_string()) {
            Some(state) if ["42501", "0A000", "42601"].contains(&state.as_str()) => Ok(()),
            _ => Err(cause.into()),
        },
        Ok(()) => Ok(()),
    }
}
