use std::cell::RefCell;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::super::check;
use super::super::population::{self, values};
use super::super::scale::Scale;
use super::super::schema::{INDEXES, TABLES};
use super::super::sqlite;
use super::*;
use bigiron_sql::database::{Database, SqlValue};
use bigiron_sql::pg::{self, Url};
use bigiron_sql::server::Transport;
use bigiron_sql::server::testing::Running;
use bigiron_sql::server::{Cluster, Listen};
use bigiron_sql::server::{cluster, testing};
use bigiron_sql::sqlite::SqliteJournal;

/// Progress that never decreases and reaches its end.
#[derive(Default)]
struct Told(RefCell<Vec<(String, u64, u64)>>);

impl Told {
    fn tell(&self, what: &str, done: u64, of: u64) {
        self.0.borrow_mut().push((what.to_owned(), done, of));
    }

    fn check(&self, rows: u64) {
        let told = self.0.borrow();
        let mut stages: Vec<&str> = told.iter().map(|(what, ..)| what.as_str()).collect();
        stages.dedup();
        assert!(stages.starts_with(&["rows", "indexes", "statistics"]), "{stages:?}");
        for stage in stages {
            let of: Vec<&(String, u64, u64)> = told.iter().filter(|(what, ..)| what == stage).collect();
            assert!(of.windows(2).all(|two| two[0].1 <= two[1].1 && two[0].2 == two[1].2), "{of:?}");
            assert!(of.last().is_some_and(|(_, done, of)| done == of && (stage != "rows" || *of == rows)), "{of:?}");
        }
    }
}

/// TPC-C's conditions of a fresh database.
fn consistent(database: &mut dyn Database) {
    let report = check::conditions(database, true).unwrap();
    assert!(report.passed(), "{:?}", report.failures().collect::<Vec<_>>());
}

fn open(path: &Path) -> Connection {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn sqlite_rows(connection: &Connection, sql: &str) -> Vec<Vec<SqlValue>> {
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut all = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let value = |i| match row.get_ref(i).unwrap() {
            ValueRef::Null => SqlValue::Null,
            ValueRef::Integer(i) => SqlValue::Integer(i),
            ValueRef::Text(text) => SqlValue::Text(String::from_utf8(text.to_vec()).unwrap()),
            other => panic!("{other:?}"),
        };
        all.push((0..columns).map(value).collect());
    }
    all
}

#[test]
fn a_file_of_sqlite_holds_exactly_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("oltp.db");
    let told = Told::default();
    let loaded = sqlite(&path, Scale { warehouses: 1 }, false, &|what, done, of| told.tell(what, done, of)).unwrap();
    assert_eq!(loaded.rows.len(), TABLES.len());
    told.check(loaded.rows.iter().map(|(_, count)| count).sum());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "Nothing but the database is left");

    consistent(&mut sqlite::Engine::open(&path, SqliteJournal::Rollback).unwrap());
    let connection = open(&path);
    for (table, (name, count)) in TABLES.iter().zip(&loaded.rows) {
        assert_eq!(*name, table.name);
        assert_eq!(*count, population::total(table, Scale { warehouses: 1 }));
        let order = if table.key.is_empty() { "rowid".to_owned() } else { table.key.join(", ") };
        let there = sqlite_rows(&connection, &format!("SELECT * FROM {name} ORDER BY {order}"));
        let warehouse = *population::warehouses(table, Scale { warehouses: 1 }).end();
        assert!(there == values::rows(table, warehouse), "{name}");
    }
    for index in INDEXES {
        let plan = sqlite_rows(
            &connection,
            &format!("SELECT tbl_name FROM sqlite_schema WHERE type = 'index' AND name = '{}'", index.name),
        );
        assert_eq!(plan, [[SqlValue::Text(index.table.to_owned())]]);
    }
    assert_eq!(sqlite_rows(&connection, "PRAGMA integrity_check"), [[SqlValue::Text("ok".to_owned())]]);
    assert_eq!(sqlite_rows(&connection, "PRAGMA journal_mode"), [[SqlValue::Text("delete".to_owned())]]);
    let statistics = sqlite_rows(&connection, "SELECT count(DISTINCT tbl) FROM sqlite_stat1");
    assert_eq!(statistics, [[SqlValue::Integer(TABLES.len() as i64)]]);
}

#[test]
fn a_file_is_replaced_only_when_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("oltp.db");
    std::fs::write(&path, "precious").unwrap();
    let refused = sqlite(&path, Scale { warehouses: 1 }, false, &|_, _, _| {}).unwrap_err();
    assert!(matches!(refused, LoadError::FileExists { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");

    // Journals of the old file would be replayed into the new one.
    std::fs::write(folder.path().join("oltp.db-wal"), "old").unwrap();
    sqlite(&path, Scale { warehouses: 1 }, true, &|_, _, _| {}).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let warehouses = sqlite_rows(&open(&path), "SELECT count(*) FROM warehouse");
    assert_eq!(warehouses, [[SqlValue::Integer(1)]]);
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/oltp.db");
    let error = sqlite(&path, Scale { warehouses: 1 }, false, &|_, _, _| {}).unwrap_err().to_string();
    assert!(error.contains("missing/oltp.db"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// An empty database on the test's own server.
fn server() -> (Running, Url, pg::Connection) {
    // Autovacuum off, as during bigiron's own loads: it wakes every minute, and while it analyses a table, its snapshot keeps the load's VACUUM
    // from marking pages as visible to all.
    let running = testing::start(Listen::Socket, &[("autovacuum", "off")]);
    let url = cluster::url(&running.cluster, Transport::Unix).unwrap();
    let session = pg::Connection::connect(&url).unwrap();
    (running, url, session)
}

fn tables_there(session: &mut pg::Connection) -> SqlValue {
    let rows = session.query("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()").unwrap();
    rows[0][0].clone()
}

#[test]
fn a_server_holds_exactly_the_rows() {
    let (_running, url, mut session) = server();
    session.run("CREATE EXTENSION pg_visibility").unwrap();
    // Whole tables over two connections, then tables split over eight, which replace the first ones.
    for (jobs, replace, warehouses) in [(2, false, 1), (8, true, 2)] {
        let scale = Scale { warehouses };
        let told = Told::default();
        let loaded = postgres(&url, scale, jobs, replace, &|what, done, of| told.tell(what, done, of)).unwrap();
        told.check(loaded.rows.iter().map(|(_, count)| count).sum());
        for (table, (name, count)) in TABLES.iter().zip(&loaded.rows) {
            let there = session.query(&format!("SELECT count(*) FROM {name}")).unwrap();
            assert_eq!(there, [[SqlValue::Integer(*count as i64)]], "{name}");
            // Dates as microseconds, and HISTORY ordered by its generating keys.
            let columns = table.columns.iter().map(|(name, kind)| match *kind {
                "timestamp" => format!("(extract(epoch FROM {name} - timestamp '2000-01-01') * 1000000)::bigint"),
                _ => (*name).to_owned(),
            });
            let columns = columns.collect::<Vec<_>>().join(", ");
            let order =
                if table.key.is_empty() { "h_c_w_id, h_c_d_id, h_c_id".to_owned() } else { table.key.join(", ") };
            let whole = population::warehouses(table, scale);
            let all: Vec<Vec<SqlValue>> = whole.flat_map(|w| values::rows(table, w)).collect();
            assert!(session.query(&format!("SELECT {columns} FROM {name} ORDER BY {order}")).unwrap() == all, "{name}");
            // Of pages with rows only: connections that extend a table at the same time can leave pages without any at its end.
            let frozen = session.query(&format!(
                "SELECT bool_and(m.all_visible AND m.all_frozen)::int, (SELECT (reltuples > 0)::int FROM pg_class WHERE oid = '{name}'::regclass)
                FROM (SELECT DISTINCT (ctid::text::point)[0]::bigint AS block FROM {name}) AS pages,
                    LATERAL pg_visibility_map('{name}'::regclass, pages.block) AS m"
            ));
            assert_eq!(frozen.unwrap(), [[SqlValue::Integer(1), SqlValue::Integer(1)]], "{name}");
        }
        let keys = session.query("SELECT count(*) FROM pg_indexes WHERE schemaname = current_schema()").unwrap();
        assert_eq!(keys, [[SqlValue::Integer(10)]]);
        consistent(&mut session);
    }
}

#[test]
fn rows_in_words_are_the_same_rows() {
    let (_running, _url, mut session) = server();
    for table in TABLES.iter().filter(|table| ["customer", "orders", "order_line"].contains(&table.name)) {
        let order = table.key.join(", ");
        let columns = table.columns.iter().map(|(name, kind)| match *kind {
            "timestamp" => format!("(extract(epoch FROM {name} - timestamp '2000-01-01') * 1000000)::bigint"),
            _ => (*name).to_owned(),
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        session.run(&table.create(bigiron_sql::database::Dialect::Postgres)).unwrap();
        let mut copy = session.copy_in(&super::method::LoadMethod::Text.copy(table.name)).unwrap();
        let mut rows = super::text_rows::TextRows::copy(|piece: &[u8], _| copy.write(piece));
        population::write(table, 1, &mut rows).unwrap();
        assert_eq!(rows.finish().unwrap(), copy.finish().unwrap());
        let there = session.query(&format!("SELECT {columns} FROM {} ORDER BY {order}", table.name)).unwrap();
        assert!(there == values::rows(table, 1), "{}", table.name);
    }
}

#[test]
fn a_servers_tables_are_replaced_only_when_told_so_and_a_failed_load_leaves_none() {
    let (_running, url, mut session) = server();
    session.run("CREATE TABLE stock (x integer); CREATE TABLE item (y integer)").unwrap();
    let refused = postgres(&url, Scale { warehouses: 1 }, 2, false, &|_, _, _| {}).unwrap_err();
    assert!(matches!(&refused, LoadError::Exists { tables, .. } if *tables == ["item", "stock"]), "{refused}");
    assert_eq!(tables_there(&mut session), SqlValue::Integer(2));

    // An index that cannot be created, after all rows are loaded.
    session.run("DROP TABLE item, stock; CREATE TABLE orders_customer (x integer)").unwrap();
    let failed = postgres(&url, Scale { warehouses: 1 }, 2, false, &|_, _, _| {}).unwrap_err();
    assert!(failed.to_string().contains("Cannot load table orders: creating its index"), "{failed}");
    assert_eq!(tables_there(&mut session), SqlValue::Integer(1));
}

#[test]
fn a_server_that_goes_away_ends_the_load_with_the_tables_name() {
    let (running, url, _session) = server();
    let Running { cluster, place: _place, server: _server } = running;
    let cluster = RefCell::new(Some(cluster));
    let kill_in_the_middle = |what: &str, done: u64, of: u64| {
        if what == "rows" && done > of / 10 {
            cluster.take().into_iter().for_each(Cluster::kill);
        }
    };
    let failed = postgres(&url, Scale { warehouses: 4 }, 2, false, &kill_in_the_middle).unwrap_err();
    assert!(matches!(failed, LoadError::Table { .. }), "{failed}");
    assert!(cluster.into_inner().is_none());
}
