//! Into a PostgreSQL server, by `COPY` over several connections at once.
//!
//! Invariant: with one connection per table, each table is made in the transaction that fills it, so that its rows are frozen from the start
//! (no vacuum rewrites them later) and a server with `wal_level=minimal` writes no log for them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};

use super::super::database::{Dialect, Value};
use super::super::pg::{Connection, PgError, Url};
use super::super::population;
use super::super::scale::Scale;
use super::super::schema::{INDEXES, TABLES, Table};
use super::copy::Rows;
use super::{LoadError, Loaded, Progress};

/// With so many connections, tables are split over them: what is lost by rows that are not frozen is less than what idle processors lose.
const SPLIT_FROM: u32 = 8;
/// For sorting keys, of each connection.
const SORT_MEMORY: &str = "256MB";
/// Tables by their size, the largest first, so that no connection is left alone with one of them at the end.
const BY_SIZE: [&str; 9] =
    ["stock", "customer", "order_line", "history", "orders", "item", "new_order", "district", "warehouse"];

/// Loads the tables of `scale` into the current schema of the URL's database, over `jobs` connections.
///
/// # Errors
/// [`LoadError::Exists`] if tables of these names are there and not to be replaced; [`LoadError::Table`] with the server's words. The
/// tables that were made are dropped again then.
pub fn postgres(
    url: &Url,
    scale: Scale,
    jobs: u32,
    replace: bool,
    progress: Progress<'_>,
) -> Result<Loaded, LoadError> {
    let mut first = Connection::connect(url)?;
    let there = existing(&mut first)?;
    if !there.is_empty() && !replace {
        return Err(LoadError::Exists { place: url.to_string(), tables: there });
    }
    let mut sessions = vec![first];
    for _ in 1..jobs {
        sessions.push(Connection::connect(url)?);
    }
    // Processors are kept busy by connections; a sort that starts helpers would only have them compete.
    let helpers = if jobs > 1 { "SET max_parallel_maintenance_workers = 0;" } else { "" };
    for session in &mut sessions {
        session.run(&format!(
            "SET client_min_messages = warning; SET maintenance_work_mem = '{SORT_MEMORY}'; {helpers}"
        ))?;
    }
    let made = Mutex::new(Vec::new());
    let loaded = Load { scale, replace, made: &made, failed: AtomicBool::new(false) }.run(&mut sessions, progress);
    if loaded.is_err() {
        let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        drop(sessions);
        // A server that is gone has nothing to be tidied; the load's own error is the one to tell.
        if let (false, Ok(mut session)) = (made.is_empty(), Connection::connect(url)) {
            let _ = session.run(&format!("DROP TABLE IF EXISTS {}", made.join(", ")));
        }
    }
    loaded
}

/// Our tables that are in the current schema.
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
            Value::Text(name) => Some(name),
            _ => None,
        })
        .collect())
}

/// Rows of a table, copied in one statement.
struct Share {
    table: &'static Table,
    /// First and last, as [`population::write`] takes them.
    warehouses: (u32, u32),
    /// The whole table, which is made in the same transaction.
    whole: bool,
}

struct Load<'a> {
    scale: Scale,
    replace: bool,
    /// Tables that are there because of this load.
    made: &'a Mutex<Vec<&'static str>>,
    failed: AtomicBool,
}

impl Load<'_> {
    fn run(&self, sessions: &mut [Connection], progress: Progress<'_>) -> Result<Loaded, LoadError> {
        let tables = BY_SIZE.map(|name| TABLES.iter().find(|t| t.name == name).expect("A table of the schema"));
        let split = sessions.len() as u32 >= SPLIT_FROM;
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
        self.stage(sessions, &shares, ("rows", total), progress, |session, share, handed| {
            self.fill(session, share, handed)
        })?;
        let count = tables.len() as u64;
        self.stage(sessions, &tables, ("indexes", count), progress, |session, table, done| {
            index(session, table)?;
            done(1);
            Ok(())
        })?;
        self.stage(sessions, &tables, ("statistics", count), progress, |session, table, done| {
            let sql = format!("VACUUM (FREEZE, ANALYZE) {}", table.name);
            session.run(&sql).map_err(LoadError::table(table.name, "gathering statistics"))?;
            done(1);
            Ok(())
        })?;
        progress("checkpoint", 0, 1);
        checkpoint(&mut sessions[0])?;
        progress("checkpoint", 1, 1);
        Ok(Loaded { rows })
    }

    /// What is copied in one go: a table, or some warehouses of it.
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
        let freeze = if share.whole { ", FREEZE" } else { "" };
        let refused = LoadError::table(name, "copying rows");
        let mut copy = session.copy_in(&format!("COPY {name} FROM STDIN (FORMAT binary{freeze})")).map_err(&refused)?;
        let mut rows = Rows::new(share.table.columns.len(), |piece: &[u8], count| {
            copy.write(piece).map_err(&refused)?;
            handed(count);
            if self.failed.load(Relaxed) { Err(LoadError::GivenUp) } else { Ok(()) }
        });
        for warehouse in share.warehouses.0..=share.warehouses.1 {
            population::write(share.table, warehouse, &mut rows)?;
        }
        let sent = rows.finish()?;
        let taken = copy.finish().map_err(&refused)?;
        if taken != sent {
            return Err(refused(PgError::Protocol(format!("{taken} rows were taken of {sent} sent"))));
        }
        if share.whole {
            // Noted before: a commit whose answer is lost may have been done.
            self.note(share.table);
            session.run("COMMIT").map_err(LoadError::table(name, "committing its rows"))?;
        }
        Ok(())
    }

    /// Has the sessions do the tasks, each the next one that is left. The first error ends the stage.
    fn stage<T: Sync>(
        &self,
        sessions: &mut [Connection],
        tasks: &[T],
        (what, of): (&str, u64),
        progress: Progress<'_>,
        each: impl Fn(&mut Connection, &T, &dyn Fn(u64)) -> Result<(), LoadError> + Sync,
    ) -> Result<(), LoadError> {
        let next = AtomicUsize::new(0);
        let error = Mutex::new(None);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for session in sessions {
                let (sender, next, error, each) = (sender.clone(), &next, &error, &each);
                scope.spawn(move || {
                    while let Some(task) = tasks.get(next.fetch_add(1, Relaxed)) {
                        if self.failed.load(Relaxed) {
                            break;
                        }
                        // The receiver lives as long as the stage.
                        let told = |count: u64| {
                            let _ = sender.send(count);
                        };
                        if let Err(e) = each(session, task, &told) {
                            let mut first = error.lock().unwrap_or_else(PoisonError::into_inner);
                            if !self.failed.swap(true, Relaxed) {
                                *first = Some(e);
                            }
                        }
                    }
                });
            }
            drop(sender);
            let mut done = 0;
            progress(what, done, of);
            for count in receiver {
                done += count;
                progress(what, done, of);
            }
        });
        error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
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

/// All of it on stable storage, where the role may ask for that. Where it may not (insufficient privilege), or the server knows no checkpoints
/// (a feature not supported, a syntax error), they are the server's business.
fn checkpoint(session: &mut Connection) -> Result<(), LoadError> {
    match session.run("CHECKPOINT") {
        Err(cause) => match cause.sqlstate().map(|state| state.to_string()) {
            Some(state) if ["42501", "0A000", "42601"].contains(&state.as_str()) => Ok(()),
            _ => Err(cause.into()),
        },
        Ok(()) => Ok(()),
    }
}
