//! Loads, queries and refreshes on real databases: one load of each engine serves all checks.

use std::cell::RefCell;
use std::path::Path;

use bigiron_sql::database::{Database, Dialect, SqlValue};
use bigiron_sql::pg::{self, Url};
use bigiron_sql::server::{Listen, Transport, cluster, testing};
use bigiron_sql::sqlite::{Engine, SqliteJournal};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::answers_sf1;

use crate::answer::{Answer, run};
use crate::load::{self, RowCounts};
use crate::parameters::Parameters;
use crate::query::{Sql, text};
use crate::refresh::{Refresh, Transaction};
use crate::scale::Scale;
use crate::table::Table;

const QUESTIONS: std::ops::RangeInclusive<u8> = 1..=22;
/// Queries whose answers are null at scale 0.01 with the validation values: no part of that brand and container has a small order there.
const EMPTY: [u8; 1] = [17];

/// Rows of each table that are compared with the generator's.
const SAMPLE: usize = 200;

/// Progress that never decreases and reaches its end.
#[derive(Default)]
struct Told(RefCell<Vec<(String, u64, u64)>>);

impl Told {
    fn tell(&self, what: &str, done: u64, of: u64) {
        self.0.borrow_mut().push((what.to_owned(), done, of));
    }

    fn check(&self, counts: &RowCounts) {
        let told = self.0.borrow();
        let rows: u64 = counts.iter().map(|(_, count)| count).sum();
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

fn answers(database: &mut dyn Database, parameters: &Parameters, scale: Scale) -> Vec<Answer> {
    let sql = match database.dialect() {
        Dialect::Sqlite => Sql::Sqlite,
        _ => Sql::Postgres,
    };
    QUESTIONS.map(|question| run(database, &text(question, sql, parameters, scale)).unwrap()).collect()
}

fn counts(database: &mut dyn Database) -> RowCounts {
    let count =
        |table: Table| match run(database, &format!("SELECT count(*) FROM {}", table.name())).unwrap().rows[0][0] {
            SqlValue::Integer(count) => (table, count as u64),
            ref other => panic!("{other:?}"),
        };
    Table::ALL.into_iter().map(count).collect()
}

fn apply(database: &mut dyn Database, transactions: impl Iterator<Item = Transaction>) -> (u64, u64) {
    let mut sum = (0, 0);
    for transaction in transactions {
        database.execute(&format!("BEGIN; {}; COMMIT", transaction.statements.join("; "))).unwrap();
        sum = (sum.0 + transaction.orders, sum.1 + transaction.lines);
    }
    sum
}

/// Inserts and deletes a set. The answers stay the same throughout; at the end, so do the rows.
fn refreshes_change_nothing(database: &mut dyn Database, sets: &[Parameters], scale: Scale) {
    let digests = |database: &mut dyn Database| -> Vec<String> {
        sets.iter().flat_map(|set| answers(database, set, scale)).map(|answer| answer.digest()).collect()
    };
    let refresh = Refresh::new(scale);
    let (rows, before) = (counts(database), digests(database));
    let inserted = apply(database, refresh.insert(5));
    let between = counts(database);
    assert_eq!(between[6].1, rows[6].1 + refresh.orders());
    assert_eq!(between[7].1, rows[7].1 + inserted.1);
    assert_eq!(digests(database), before);
    // A second set does not conflict with the first.
    apply(database, refresh.insert(6));
    assert_eq!(apply(database, refresh.delete(5)), inserted);
    apply(database, refresh.delete(6));
    assert_eq!(counts(database), rows);
    assert_eq!(digests(database), before);
}

/// The first rows of a table, as the generator itself prints them.
fn printed(table: Table, scale: Scale) -> Answer {
    let factor = scale.factor();
    let lines = match table {
        Table::Region => first(RegionGenerator::default().iter()),
        Table::Nation => first(NationGenerator::default().iter()),
        Table::Supplier => first(SupplierGenerator::new(factor, 1, 1).iter()),
        Table::Customer => first(CustomerGenerator::new(factor, 1, 1).iter()),
        Table::Part => first(PartGenerator::new(factor, 1, 1).iter()),
        Table::Partsupp => first(PartSuppGenerator::new(factor, 1, 1).iter()),
        Table::Orders => first(OrderGenerator::new(factor, 1, 1).iter()),
        Table::Lineitem => first(LineItemGenerator::new(factor, 1, 1).iter()),
    };
    let row =
        |line: &String| line.trim_end_matches('|').split('|').map(|field| SqlValue::Text(field.to_owned())).collect();
    Answer { rows: lines.iter().map(row).collect() }
}

fn first<R: ToString>(rows: impl Iterator<Item = R>) -> Vec<String> {
    rows.take(SAMPLE).map(|row| row.to_string()).collect()
}

/// Compares the first rows of all tables with the generator's.
fn rows_are_the_generators(database: &mut dyn Database, scale: Scale) {
    for table in Table::ALL {
        let columns: Vec<&str> = table.columns().iter().map(|(name, _)| *name).collect();
        let (columns, key) = (columns.join(", "), table.key()[0]);
        // The offers of a part are in the generator's own order.
        let order = if table == Table::Partsupp { "ps_partkey, ps_comment".to_owned() } else { table.key().join(", ") };
        let sql = format!(
            "SELECT {columns} FROM {} WHERE {key} <= {SAMPLE} * 4 ORDER BY {order} LIMIT {SAMPLE}",
            table.name()
        );
        let mut expected = printed(table, scale);
        if table == Table::Partsupp {
            expected.rows.sort_by_key(|row| match (&row[0], &row[4]) {
                (SqlValue::Text(part), SqlValue::Text(comment)) => (part.parse::<u32>().unwrap(), comment.clone()),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(run(database, &sql).unwrap().agrees(&expected), Ok(()), "{table:?}");
    }
}

fn sqlite(path: &Path) -> Engine {
    Engine::open(path, SqliteJournal::Rollback).unwrap()
}

#[test]
fn engines_agree_and_refreshes_change_no_answer() {
    let scale: Scale = "0.01".parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dss.sqlite");
    let told = Told::default();
    let loaded = load::sqlite(&path, scale, &|what, done, of| told.tell(what, done, of)).unwrap();
    told.check(&loaded);
    assert_eq!(loaded[7], (Table::Lineitem, 60_175));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "Nothing but the database is left");
    let refused = load::sqlite(&path, scale, &|_, _, _| {}).unwrap_err();
    assert!(refused.to_string().contains("already exists"), "{refused}");
    let mut sqlite = sqlite(&path);
    assert_eq!(counts(&mut sqlite), loaded);
    let wrong = load::check(&mut sqlite, Table::Region, 6).unwrap_err();
    assert_eq!(wrong.to_string(), "Table region has 5 rows after the load instead of 6");

    let running = testing::start(Listen::Socket, &[("autovacuum", "off")]);
    let url = cluster::url(&running.cluster, Transport::Unix).unwrap();
    // Tables split over eight connections, and whole tables over two.
    for jobs in [8, 2] {
        load_postgres(&url, scale, jobs, &loaded);
    }
    let mut postgres = pg::Connection::connect(&url).unwrap();

    rows_are_the_generators(&mut sqlite, scale);
    rows_are_the_generators(&mut postgres, scale);
    let sets = [Parameters::validation(), Parameters::drawn(1, 0)];
    let mut empty = Vec::new();
    for (number, parameters) in sets.iter().enumerate() {
        let both = answers(&mut sqlite, parameters, scale).into_iter().zip(answers(&mut postgres, parameters, scale));
        for (question, (ours, theirs)) in QUESTIONS.zip(both) {
            assert_eq!(ours.agrees(&theirs), Ok(()), "Question {question}, set {number}");
            if number == 0 && ours.rows.iter().flatten().all(|value| *value == SqlValue::Null) {
                empty.push(question);
            }
        }
    }
    assert_eq!(empty, EMPTY, "Nothing but nulls");
    refreshes_change_nothing(&mut sqlite, &[Parameters::drawn(1, 0), Parameters::drawn(2, 7)], scale);
    refreshes_change_nothing(&mut postgres, &sets[..1], scale);
}

/// Loads into an empty schema, and compares with the rows in SQLite.
fn load_postgres(url: &Url, scale: Scale, jobs: u32, expected: &RowCounts) {
    let mut session = pg::Connection::connect(url).unwrap();
    session.run("DROP SCHEMA public CASCADE; CREATE SCHEMA public").unwrap();
    let told = Told::default();
    let loaded = load::postgres(url, scale, jobs, &|what, done, of| told.tell(what, done, of)).unwrap();
    told.check(&loaded);
    assert_eq!(loaded, *expected);
    let again = load::postgres(url, scale, jobs, &|_, _, _| {}).unwrap_err();
    assert!(format!("{again:#}").contains("already exists"), "{again:#}");
    let keys =
        "SELECT count(*) FROM pg_constraint WHERE contype = 'p' AND connamespace = current_schema()::regnamespace";
    assert_eq!(run(&mut session, keys).unwrap().rows, [[SqlValue::Integer(8)]]);
    // Connections that fill one table at once also leave pages without rows, which no `VACUUM` marks as visible.
    for table in Table::BY_SIZE {
        let finished = format!(
            "SELECT relallvisible >= (SELECT count(DISTINCT (ctid::text::point)[0]) FROM {name}) AND reltuples > 0 \
             FROM pg_class WHERE oid = '{name}'::regclass",
            name = table.name()
        );
        assert_eq!(run(&mut session, &finished).unwrap().rows, [[SqlValue::Text("t".into())]], "{}", table.name());
    }
}

#[test]
fn at_tiny_scales_the_generator_repeats_keys_and_the_load_accepts_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dss.sqlite");
    let loaded = load::sqlite(&path, "0.001".parse().unwrap(), &|_, _, _| {}).unwrap();
    assert_eq!(loaded[5], (Table::Partsupp, 800));
    let pairs = "SELECT count(DISTINCT ps_partkey * 100 + ps_suppkey) < 800 FROM partsupp";
    assert_eq!(run(&mut sqlite(&path), pairs).unwrap().rows, [[SqlValue::Integer(1)]]);
}

/// The answers at scale 1 that come with the generator, to the second decimal. Its keys of question 11 are cut, and its answer to question 17 is that
/// of an engine that rounds in between.
#[test]
#[ignore = "scale 1 takes minutes"]
fn answers_at_scale_1_are_the_published_ones() {
    let scale: Scale = "1".parse().unwrap();
    let running = testing::start(Listen::Socket, &[("autovacuum", "off")]);
    let url = cluster::url(&running.cluster, Transport::Unix).unwrap();
    load::postgres(&url, scale, 2, &|_, _, _| {}).unwrap();
    let mut postgres = pg::Connection::connect(&url).unwrap();
    for (question, answer) in QUESTIONS.zip(answers(&mut postgres, &Parameters::validation(), scale)) {
        let text = answers_sf1::answer(i32::from(question)).unwrap();
        let published: Vec<Vec<&str>> =
            text.lines().filter(|line| !line.trim().is_empty()).skip(1).map(|line| line.split('|').collect()).collect();
        assert_eq!(published.len(), answer.rows.len(), "{question}");
        let (skipped, tolerance) = match question {
            11 => (1, 0.01),
            17 => (0, 0.05),
            _ => (0, 0.01),
        };
        for (ours, theirs) in answer.rows.iter().zip(&published) {
            assert_eq!(ours.len(), theirs.len(), "{question}");
            for (ours, theirs) in ours.iter().zip(theirs).skip(skipped) {
                let ours = match ours {
                    SqlValue::Integer(number) => number.to_string(),
                    SqlValue::Text(text) => text.trim().to_owned(),
                    SqlValue::Null => String::new(),
                };
                let near = || Some((ours.parse::<f64>().ok()? - theirs.trim().parse::<f64>().ok()?).abs() <= tolerance);
                assert!(ours == theirs.trim() || near() == Some(true), "{question}: {ours} and {theirs}");
            }
        }
    }
}
