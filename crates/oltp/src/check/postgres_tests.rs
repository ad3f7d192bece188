//! The same checks through PostgreSQL: the SQL must have the same meaning there.
//!
//! Invariant: each test has its own server and leaves nothing behind.

use super::super::sqlite::fixture;
use super::conditions::of_load;
use super::tests::{DELIVERED, PLANTED, failed, ledger_of_a_run};
use super::*;
use bigiron_sql::pg::{Connection, Url};
use bigiron_sql::server::Listen;
use bigiron_sql::server::Transport;
use bigiron_sql::server::testing::Running;
use bigiron_sql::server::{cluster, testing};

/// A connection to the test's own server, in drop order.
struct Scratch(Connection, #[allow(dead_code, reason = "keeps the server")] Running);

impl Scratch {
    fn new() -> Self {
        let server = testing::start(Listen::Socket, &[("fsync", "off"), ("full_page_writes", "off")]);
        Self(Connection::connect(&cluster::url(&server.cluster, Transport::Unix).unwrap()).unwrap(), server)
    }
}

#[test]
fn equal_rows_have_equal_sums_and_digests() {
    let (_directory, mut engine) = fixture::engine(2);
    let mut server = Scratch::new();
    fixture::fill(&mut server.0, 2);
    assert_eq!(sums(&mut server.0).unwrap(), sums(&mut engine).unwrap());
    assert_eq!(digest(&mut server.0).unwrap(), digest(&mut engine).unwrap());
    server
        .0
        .run("UPDATE customer SET c_since = c_since + interval '1 microsecond' WHERE c_w_id = 1 AND c_id = 3")
        .unwrap();
    assert_eq!(sums(&mut server.0).unwrap(), sums(&mut engine).unwrap());
    assert_ne!(digest(&mut server.0).unwrap(), digest(&mut engine).unwrap());
}

#[test]
fn each_condition_catches_its_violation() {
    let mut server = Scratch::new();
    fixture::fill(&mut server.0, 2);
    for (sql, conditions) in PLANTED {
        assert_eq!(failed(&of_load(&mut server.0, Some(DELIVERED)).unwrap()), [""; 0]);
        server.0.run("BEGIN").unwrap();
        server.0.run(sql).unwrap();
        assert_eq!(failed(&of_load(&mut server.0, Some(DELIVERED)).unwrap()), *conditions, "{sql}");
        server.0.run("ROLLBACK").unwrap();
    }
}

#[test]
fn a_run_is_judged_alike() {
    let (_directory, mut engine, marks, account) = ledger_of_a_run();
    let mut server = Scratch::new();
    fixture::copy(&mut engine, &mut server.0);
    assert_eq!(digest(&mut server.0).unwrap(), digest(&mut engine).unwrap());
    assert_eq!(Marks::take(&mut server.0).unwrap(), Marks::take(&mut engine).unwrap());
    assert_eq!(audit(&mut server.0, &marks).unwrap(), audit(&mut engine, &marks).unwrap());
    assert_eq!(server_new_orders(&mut server.0).unwrap(), server_new_orders(&mut engine).unwrap());
    assert!(conditions(&mut server.0, false).unwrap().passed());
    assert!(prove(&mut server.0, &marks, &account).unwrap().passed());
    server.0.run("DELETE FROM history WHERE h_date = (SELECT max(h_date) FROM history)").unwrap();
    assert_eq!(failed(&prove(&mut server.0, &marks, &account).unwrap()), ["acknowledged-payments"]);
}

/// Prints the duration of the checks of a loaded database; used for the figures of the benches.
#[test]
#[ignore = "needs a PostgreSQL server with a loaded database: BIGIRON_TEST_PG_LOADED=postgresql://…"]
fn all_conditions_hold_of_a_loaded_database() {
    let url = std::env::var("BIGIRON_TEST_PG_LOADED").expect("BIGIRON_TEST_PG_LOADED is the URL of a loaded database");
    let mut connection = Connection::connect(&Url::parse(&url).unwrap()).unwrap();
    let started = std::time::Instant::now();
    let marks = Marks::take(&mut connection).unwrap();
    let report = conditions(&mut connection, true).unwrap();
    let conditions = started.elapsed();
    let added = audit(&mut connection, &marks).unwrap();
    eprintln!("conditions {conditions:?}, with audit {:?}", started.elapsed());
    for check in report.checks.iter().chain(&added.checks) {
        eprintln!("{check}");
    }
    assert!(report.passed() && added.passed());
}
