//! What the server counted during a run: differences of its statistics views, and wait events sampled in between.
//!
//! Invariant: a counter keeps its name here when a version of PostgreSQL moves it to another view, and a server that does not have it leaves it out:
//! what is there was counted.
//!
//! A backend tells its counts at most once a second while it works, and the rest when it ends: the differences are whole when the run's connections have
//! been closed before [`Before::after`].

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::error::PgError;
use crate::workload::oltp::database::{Database, Dialect, Value};

/// Counters that one statement gives.
struct View {
    /// `server_version_num` from which on, and up to which (exclusive), it is so.
    versions: (i64, i64),
    from: &'static str,
    /// Name here, and expression there.
    counters: &'static [(&'static str, &'static str)],
}

const ALL: i64 = i64::MAX;

const VIEWS: &[View] = &[
    View {
        versions: (0, ALL),
        from: "pg_stat_database WHERE datname = current_database()",
        counters: &[
            ("database.xact_commit", "xact_commit"),
            ("database.xact_rollback", "xact_rollback"),
            ("database.blks_read", "blks_read"),
            ("database.blks_hit", "blks_hit"),
            ("database.deadlocks", "deadlocks"),
            ("database.temp_files", "temp_files"),
            ("database.temp_bytes", "temp_bytes"),
        ],
    },
    View {
        versions: (140_000, ALL),
        from: "pg_stat_wal",
        counters: &[
            ("wal.records", "wal_records"),
            ("wal.full_page_images", "wal_fpi"),
            ("wal.bytes", "wal_bytes"),
            ("wal.buffers_full", "wal_buffers_full"),
        ],
    },
    View {
        versions: (140_000, 180_000),
        from: "pg_stat_wal",
        counters: &[("wal.writes", "wal_write"), ("wal.syncs", "wal_sync")],
    },
    View {
        versions: (180_000, ALL),
        // Without what is written when a segment is made, which the older view did not count either.
        from: "pg_stat_io WHERE object = 'wal' AND context = 'normal'",
        counters: &[("wal.writes", "sum(writes)"), ("wal.syncs", "sum(fsyncs)")],
    },
    View {
        versions: (0, ALL),
        from: "pg_stat_bgwriter",
        counters: &[
            ("bgwriter.buffers_written", "buffers_clean"),
            ("bgwriter.rounds_cut", "maxwritten_clean"),
            ("buffers_allocated", "buffers_alloc"),
        ],
    },
    View {
        versions: (0, 170_000),
        from: "pg_stat_bgwriter",
        counters: &[
            ("checkpoints.timed", "checkpoints_timed"),
            ("checkpoints.requested", "checkpoints_req"),
            ("checkpoints.buffers_written", "buffers_checkpoint"),
            ("backends.buffers_written", "buffers_backend"),
            ("backends.fsyncs", "buffers_backend_fsync"),
        ],
    },
    View {
        versions: (170_000, ALL),
        from: "pg_stat_checkpointer",
        counters: &[
            ("checkpoints.timed", "num_timed"),
            ("checkpoints.requested", "num_requested"),
            ("checkpoints.buffers_written", "buffers_written"),
        ],
    },
];

/// `pg_stat_io` (16 and later) has a row per kind of backend, of object, and of access.
const IO_SINCE: i64 = 160_000;
const IO: &[&str] = &["reads", "writes", "extends", "hits", "evictions", "fsyncs"];

/// The counters before the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    counters: BTreeMap<String, i64>,
}

impl Before {
    /// Reads the counters of the server and of the database that `database` is connected to. SQLite has none.
    ///
    /// # Errors
    /// A connection that is gone.
    pub fn take(database: &mut dyn Database) -> Result<Before> {
        Ok(Before { counters: counters(database)? })
    }

    /// What has been counted since, by name; numbers of events, blocks (usually 8 KiB) or bytes. Commits include those of whoever asked for statistics. Of
    /// the counters by kind of backend (`io.…`; blocks up to version 17, requests since) those that moved.
    ///
    /// # Errors
    /// A connection that is gone, or counters that began anew: after a crash, or a reset.
    pub fn after(&self, database: &mut dyn Database) -> Result<BTreeMap<String, i64>> {
        let mut moved = counters(database)?;
        for (name, value) in &mut moved {
            // A kind of backend may do its first I/O during the run.
            *value -= self.counters.get(name).unwrap_or(&0);
            if *value < 0 {
                bail!(
                    "The server's statistics began anew during the run (`{name}` fell): it crashed, or somebody reset them"
                );
            }
        }
        moved.retain(|name, value| *value > 0 || !name.starts_with("io."));
        Ok(moved)
    }
}

fn counters(database: &mut dyn Database) -> Result<BTreeMap<String, i64>> {
    let mut found = BTreeMap::new();
    if database.dialect() != Dialect::Postgres {
        return Ok(found);
    }
    let version = version(database)?;
    for view in VIEWS.iter().filter(|v| (v.versions.0..v.versions.1).contains(&version)) {
        let expressions: Vec<String> = view.counters.iter().map(|(_, e)| format!("({e})::bigint")).collect();
        let sql = format!("SELECT {} FROM {}", expressions.join(", "), view.from);
        for row in rows_if_known(database, &sql)? {
            for ((name, _), value) in view.counters.iter().zip(row) {
                if let Value::Integer(count) = value {
                    found.insert((*name).to_owned(), count);
                }
            }
        }
    }
    if version >= IO_SINCE {
        let sums: Vec<String> = IO.iter().map(|counter| format!("sum({counter})::bigint")).collect();
        let sql =
            format!("SELECT backend_type, object, {} FROM pg_stat_io GROUP BY 1, 2 ORDER BY 1, 2", sums.join(", "));
        for row in rows_if_known(database, &sql)? {
            let [Value::Text(backend), Value::Text(object), counts @ ..] = &row[..] else { continue };
            for (counter, value) in IO.iter().zip(counts) {
                // NULL where there is no such operation.
                if let Value::Integer(count) = value {
                    found.insert(format!("io.{}.{}.{counter}", word(backend), word(object)), *count);
                }
            }
        }
    }
    Ok(found)
}

/// `server_version_num`, e.g. 150018.
fn version(database: &mut dyn Database) -> Result<i64> {
    let rows = database.rows("SHOW server_version_num")?;
    match rows.first().and_then(|row| row.first()) {
        Some(Value::Text(text)) => text.parse().with_context(|| format!("`{text}` for server_version_num")),
        Some(Value::Integer(number)) => Ok(*number),
        _ => bail!("The server does not tell its server_version_num"),
    }
}

/// The rows of a view, none if this server does not have it, not so, or not for us: SQLSTATE class 42 (unknown table or column, not allowed) and
/// 0A (not supported).
fn rows_if_known(database: &mut dyn Database, sql: &str) -> Result<Vec<Vec<Value>>> {
    match database.rows(sql) {
        Err(error) => match error.downcast_ref::<PgError>().and_then(PgError::sqlstate) {
            Some(state) if state.0.starts_with(b"42") || state.0.starts_with(b"0A") => Ok(Vec::new()),
            _ => Err(error),
        },
        rows => rows,
    }
}

/// A name of several words as one.
fn word(text: &str) -> String {
    text.replace(' ', "_")
}

/// What the server's active backends waited for, sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    samples: u64,
    seen: BTreeMap<String, u64>,
}

/// A backend that waits for nothing has a CPU, or wants one.
const RUNNING: &str = "running";

impl Waits {
    /// Looks once at all backends that work for a client of this database, the own one aside. On a connection of its own.
    ///
    /// # Errors
    /// A connection that is gone.
    pub fn sample(&mut self, database: &mut dyn Database) -> Result<()> {
        if database.dialect() != Dialect::Postgres {
            return Ok(());
        }
        let sql = format!(
            "SELECT coalesce(wait_event_type || ':' || wait_event, '{RUNNING}'), count(*) FROM pg_stat_activity \
             WHERE state = 'active' AND backend_type = 'client backend' AND datname = current_database() \
             AND pid <> pg_backend_pid() GROUP BY 1 ORDER BY 1"
        );
        for row in rows_if_known(database, &sql)? {
            let [Value::Text(event), Value::Integer(count)] = &row[..] else { continue };
            *self.seen.entry(event.clone()).or_default() += u64::try_from(*count).unwrap_or(0);
        }
        self.samples += 1;
        Ok(())
    }

    /// Of all sightings of an active backend, the share of each wait event, `type:event` or `running`; together 1, or nothing if none was seen.
    pub fn shares(&self) -> BTreeMap<String, f64> {
        let all: u64 = self.seen.values().sum();
        self.seen.iter().map(|(event, &count)| (event.clone(), count as f64 / all as f64)).collect()
    }

    /// Active backends per sample, on average; `None` without a sample.
    pub fn mean_active(&self) -> Option<f64> {
        let all: u64 = self.seen.values().sum();
        (self.samples > 0).then(|| all as f64 / self.samples as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::{ServerError, SqlState};
    use super::*;

    /// A server of some version: what `SELECT … FROM x` gives, per view; a view that is not there is refused.
    struct Server {
        version: &'static str,
        views: BTreeMap<&'static str, Vec<Vec<Value>>>,
        asked: Vec<String>,
        code: &'static [u8; 5],
    }

    impl Server {
        fn new(version: &'static str) -> Server {
            Server { version, views: BTreeMap::new(), asked: Vec::new(), code: b"42P01" }
        }

        fn with(mut self, view: &'static str, rows: Vec<Vec<Value>>) -> Server {
            self.views.insert(view, rows);
            self
        }
    }

    impl Database for Server {
        fn dialect(&self) -> Dialect {
            Dialect::Postgres
        }

        fn execute(&mut self, sql: &str) -> Result<()> {
            bail!("{sql} is for nothing here")
        }

        fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Value>>> {
            if sql == "SHOW server_version_num" {
                return Ok(vec![vec![Value::Text(self.version.to_owned())]]);
            }
            self.asked.push(sql.to_owned());
            let view = self.views.iter().find(|(view, _)| sql.contains(&format!("FROM {view}")));
            view.map(|(_, rows)| rows.clone()).ok_or_else(|| {
                let refused = ServerError {
                    severity: "ERROR".to_owned(),
                    sqlstate: SqlState(*self.code),
                    text: sql.to_owned(),
                    detail: None,
                    hint: None,
                };
                PgError::from(refused).into()
            })
        }
    }

    fn integers(values: impl IntoIterator<Item = i64>) -> Vec<Value> {
        values.into_iter().map(Value::Integer).collect()
    }

    fn io(backend: &str, object: &str, counts: [Value; 6]) -> Vec<Value> {
        [Value::Text(backend.to_owned()), Value::Text(object.to_owned())].into_iter().chain(counts).collect()
    }

    #[test]
    fn differences_are_taken_of_what_the_server_has() {
        let mut server = Server::new("130010").with("pg_stat_database", vec![integers([100, 1, 50, 900, 0, 0, 0])]);
        let before = Before::take(&mut server).unwrap();
        server.views.insert("pg_stat_database", vec![integers([350, 4, 50, 5000, 2, 0, 0])]);
        let moved = before.after(&mut server).unwrap();
        let got: Vec<(&str, i64)> = moved.iter().map(|(name, &count)| (name.as_str(), count)).collect();
        let expected = [
            ("database.blks_hit", 4100),
            ("database.blks_read", 0),
            ("database.deadlocks", 2),
            ("database.temp_bytes", 0),
            ("database.temp_files", 0),
            ("database.xact_commit", 250),
            ("database.xact_rollback", 3),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn a_counter_keeps_its_name_when_it_moves() {
        let names = |version: &'static str, views: &[(&'static str, usize)]| {
            let mut server = Server::new(version);
            for &(view, columns) in views {
                server.views.insert(view, vec![integers((0..).take(columns))]);
            }
            let names: Vec<String> = counters(&mut server).unwrap().into_keys().collect();
            (names, server.asked.join("\n"))
        };
        let (old, asked) = names("150018", &[("pg_stat_wal", 4), ("pg_stat_bgwriter", 5)]);
        assert!(asked.contains("wal_sync") && asked.contains("checkpoints_req") && !asked.contains("pg_stat_io"));
        let (new, asked) = names(
            "180001",
            &[("pg_stat_wal", 4), ("pg_stat_io WHERE", 2), ("pg_stat_bgwriter", 3), ("pg_stat_checkpointer", 3)],
        );
        assert!(!asked.contains("wal_sync") && !asked.contains("checkpoints_req") && asked.contains("num_requested"));
        for name in
            ["wal.syncs", "wal.bytes", "checkpoints.requested", "checkpoints.buffers_written", "buffers_allocated"]
        {
            assert!(old.iter().any(|n| n == name) && new.iter().any(|n| n == name), "{name} in {old:?}, {new:?}");
        }
    }

    #[test]
    fn io_is_told_by_kind_of_backend_where_it_moved() {
        let number = Value::Integer;
        let counts = |reads, writes| [number(reads), number(writes), number(0), number(7), Value::Null, number(0)];
        let mut server =
            Server::new("160004").with("pg_stat_io", vec![io("client backend", "relation", counts(10, 20))]);
        let before = Before::take(&mut server).unwrap();
        let later =
            vec![io("client backend", "relation", counts(15, 20)), io("checkpointer", "relation", counts(0, 3))];
        server.views.insert("pg_stat_io", later);
        let moved: Vec<(String, i64)> = before.after(&mut server).unwrap().into_iter().collect();
        let expected = [
            ("io.checkpointer.relation.hits", 7),
            ("io.checkpointer.relation.writes", 3),
            ("io.client_backend.relation.reads", 5),
        ];
        assert_eq!(moved, expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn counters_that_fell_are_no_result() {
        let mut server = Server::new("150018").with("pg_stat_database", vec![integers([100; 7])]);
        let before = Before::take(&mut server).unwrap();
        server.views.insert("pg_stat_database", vec![integers([3; 7])]);
        assert!(before.after(&mut server).unwrap_err().to_string().contains("began anew"));
    }

    #[test]
    fn only_what_is_unknown_is_left_out() {
        let mut server = Server::new("150018");
        assert_eq!(Before::take(&mut server).unwrap().after(&mut server).unwrap(), BTreeMap::new());
        server.code = b"57P01";
        assert!(Before::take(&mut server).is_err());
        assert!(Waits::default().sample(&mut server).is_err());
    }

    #[test]
    fn shares_of_waits_are_of_all_sightings() {
        let seen = |event: &str, count| vec![Value::Text(event.to_owned()), Value::Integer(count)];
        let mut waits = Waits::default();
        assert_eq!((waits.shares(), waits.mean_active()), (BTreeMap::new(), None));
        let mut server =
            Server::new("150018").with("pg_stat_activity", vec![seen("IO:WALSync", 3), seen("running", 2)]);
        waits.sample(&mut server).unwrap();
        server.views.insert("pg_stat_activity", vec![seen("running", 1), seen("Lock:transactionid", 2)]);
        waits.sample(&mut server).unwrap();
        server.views.insert("pg_stat_activity", Vec::new());
        waits.sample(&mut server).unwrap();
        waits.sample(&mut server).unwrap();
        let expected = [("IO:WALSync", 0.375), ("Lock:transactionid", 0.25), ("running", 0.375)];
        assert_eq!(waits.shares(), expected.map(|(event, share)| (event.to_owned(), share)).into());
        assert_eq!(waits.mean_active(), Some(2.0));
    }
}
