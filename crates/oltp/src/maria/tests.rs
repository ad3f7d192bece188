//! The transactions on a real server.

use std::net::SocketAddrV4;
use std::sync::mpsc::channel;

use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::check;
use crate::config::Mode;
use crate::driver::fixture as driver_fixture;
use crate::driver::{DriveTarget, NextStep, Session as _};
use crate::input::{Customer, Input, Request};
use crate::load;
use crate::output::{Output, TransactionError};
use crate::population;
use crate::scale::Scale;
use crate::schema::TABLES;
use crate::sqlite::Transact as _;
use crate::sqlite::fixture::{self, FIRST_NAMES, MORE_CONDITIONS};
use crate::trial;
use bigiron_service::mariadb;
use bigiron_sql::database::{Database as _, SqlValue};
use bigiron_sql::maria::testing::Running;
use bigiron_sql::maria::{Connection, Place};
use bigiron_sql::server::Listen;

#[test]
fn a_server_holds_exactly_the_rows_and_the_conditions() {
    let running = Running::start(Listen::Socket);
    let scale = Scale { warehouses: 1 };
    let loaded = load::mariadb(&running.socket(), scale, 2, &|_, _, _| {}).unwrap();
    let mut session = running.session();
    for (table, (name, count)) in TABLES.iter().zip(&loaded.rows) {
        let columns = table.columns.iter().map(|(name, kind)| match *kind {
            "timestamp" => check::micros(session.dialect(), name),
            _ => (*name).to_owned(),
        });
        let columns = columns.collect::<Vec<_>>().join(", ");
        let order = if table.key.is_empty() { "h_c_w_id, h_c_d_id, h_c_id".to_owned() } else { table.key.join(", ") };
        // The two largest have no kind of value that others lack.
        if ["stock", "order_line"].contains(name) {
            let there = session.query(&format!("SELECT count(*) FROM {name}")).unwrap();
            assert_eq!(there, [[SqlValue::Integer(*count as i64)]], "{name}");
            continue;
        }
        let there = session.query(&format!("SELECT {columns} FROM {name} ORDER BY {order}")).unwrap();
        assert_eq!(there.len() as u64, *count, "{name}");
        let whole = population::warehouses(table, scale);
        assert!(there == whole.flat_map(|w| population::values::rows(table, w)).collect::<Vec<_>>(), "{name}");
    }
    let report = check::conditions(&mut session, true).unwrap();
    assert!(report.passed() && report.checks.len() == 12, "{:?}", report.failures().collect::<Vec<_>>());
    let again = load::mariadb(&running.socket(), scale, 1, &|_, _, _| {}).unwrap_err();
    assert!(again.to_string().contains("item, new_order"), "{again}");

    // What is wrong is found.
    session.run("UPDATE district SET d_ytd = d_ytd + 1 WHERE d_id = 3; DELETE FROM new_order LIMIT 1").unwrap();
    let report = check::conditions(&mut session, true).unwrap();
    let failed: Vec<&str> = report.failures().map(|check| check.name).collect();
    assert!(["condition-1", "condition-5", "condition-9"].iter().all(|name| failed.contains(name)), "{failed:?}");
}

const MODES: [Mode; 3] = [Mode::Procedures, Mode::Pipelined, Mode::RoundTrips];

/// Runs one transaction on a session of the event loop.
fn execute(session: &mut MariaSession, request: &Request) -> Result<Output, TransactionError> {
    session.begin(request);
    loop {
        assert!(session.flush(), "a transaction fits the socket");
        poll(&mut [PollFd::new(&session.fd(), PollFlags::IN)], None).unwrap();
        let (step, lost) = session.receive();
        match step {
            NextStep::Wait => assert_eq!(lost, None),
            NextStep::Send => session.go_on(),
            NextStep::Done(result) => return result,
        }
    }
}

fn check(database: &mut Connection) {
    let report = check::conditions(database, false).unwrap();
    assert!(report.passed(), "{:?}", report.failures().map(ToString::to_string).collect::<Vec<_>>());
    for sql in MORE_CONDITIONS {
        assert_eq!(database.query(sql).unwrap(), [[SqlValue::Integer(0)]], "{sql}");
    }
}

#[test]
fn every_mode_leaves_the_rows_and_gives_the_answers_of_sqlite() {
    const WAREHOUSES: u32 = 2;
    let running = Running::start(Listen::Socket);
    let requests = fixture::requests(600, WAREHOUSES);
    let (_directory, mut engine) = fixture::engine(WAREHOUSES);
    engine.connection().execute_batch(FIRST_NAMES).unwrap();
    let expected: Vec<Output> = requests.iter().map(|request| engine.transact(request).unwrap()).collect();
    let digests = check::digest(&mut engine).unwrap();
    assert!(expected.contains(&Output::RolledBack));
    for mode in MODES {
        let mut database = running.session();
        let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        database.run(&format!("DROP TABLE IF EXISTS {}", names.join(", "))).unwrap();
        fixture::fill(&mut database, WAREHOUSES);
        database.run(FIRST_NAMES).unwrap();
        install_procedures(&mut database).unwrap();
        let mut session = connect(&running.socket(), mode, 1, &channel().0).unwrap().remove(0);
        for (request, expected) in requests.iter().zip(&expected) {
            assert_eq!(execute(&mut session, request).as_ref(), Ok(expected), "{mode:?} {request:?}");
        }
        assert_eq!(check::digest(&mut database).unwrap(), digests, "{mode:?}");
        check(&mut database);
    }
}

/// Whole trials: the load's conditions, the run, the audit of its inputs, the server's count of orders, the ledger of what was acknowledged.
#[test]
fn a_live_server_agrees_with_the_driver() {
    let running = Running::start(Listen::Tcp);
    let place = running.socket();
    load::mariadb(&place, Scale { warehouses: 1 }, 2, &|_, _, _| {}).unwrap();
    install_procedures(&mut running.session()).unwrap();
    let at = running.server.server().tcp().unwrap();
    let address = SocketAddrV4::new(at.address, at.port);
    let tcp = Place::Tcp { address, password: mariadb::password(running.place.path()).unwrap() };
    let dir = tempfile::tempdir().unwrap();
    let cx = driver_fixture::context(dir.path());
    for (mode, place) in [("procedures", &place), ("pipelined", &tcp), ("round-trips", &place)] {
        let target = DriveTarget::MariaDb { place, server: running.server.pid() };
        let job = driver_fixture::job(&[
            ("mode", mode),
            ("length", "300"),
            ("ramp", "20"),
            ("limits", "600/600/600/600/600"),
        ]);
        if mode == "procedures" {
            trial::prepare(&job, &target, &cx).unwrap();
        }
        let outcome = trial::run(&job, &target, &cx).unwrap();
        trial::verify(&target, &cx).unwrap();
        assert!(outcome.values.values().all(|v| *v > 0.0), "{:?}", outcome.values);
        let fact = |name: &str| outcome.facts[name].as_str();
        assert!(fact("agreement").contains("by the database's"));
        assert!(fact("durability").contains("innodb_flush_log_at_trx_commit=0"), "{}", fact("durability"));
        assert!(outcome.facts.contains_key("counter.status.Innodb_os_log_written"), "{:?}", outcome.facts);
    }
}

#[test]
fn many_at_once_keep_the_conditions_and_what_fails_leaves_nothing() {
    let running = Running::start(Listen::Socket);
    let mut database = running.session();
    fixture::fill(&mut database, 1);
    install_procedures(&mut database).unwrap();
    let requests = fixture::requests(800, 1);
    let place = running.socket();
    let retries: usize = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let mode = MODES[thread % MODES.len()];
            let mut session = connect(&place, mode, 1, &channel().0).unwrap().remove(0);
            let mut retries = 0;
            for request in requests.iter().skip(thread).step_by(4) {
                loop {
                    match execute(&mut session, request) {
                        Ok(_) => break,
                        Err(TransactionError::Retry(_)) => retries += 1,
                        Err(other) => panic!("{other}: {request:?}"),
                    }
                }
            }
            retries
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    eprintln!("{retries} retries");
    check(&mut database);

    // A customer that does not exist, after rows were changed.
    for mode in MODES {
        let mut session = connect(&place, mode, 1, &channel().0).unwrap().remove(0);
        let before = check::digest(&mut database).unwrap();
        let input = Input::Payment {
            warehouse: 1,
            district: 1,
            customer_warehouse: 1,
            customer_district: 1,
            customer: Customer::Id(99_999),
            amount: 100,
        };
        let failed = execute(&mut session, &Request { input, date: 1 }).unwrap_err();
        assert!(
            matches!(&failed, TransactionError::Failed(why) if why.contains("instead of one") || why.contains("No such customer")),
            "{failed}"
        );
        assert_eq!(check::digest(&mut database).unwrap(), before, "{mode:?}");
        // The session is still of use.
        assert!(execute(&mut session, &requests[0]).is_ok());
    }

    let mut session = connect(&place, Mode::RoundTrips, 1, &channel().0).unwrap().remove(0);
    running.server.kill();
    session.begin(&requests[0]);
    session.flush();
    let (_, lost) = session.receive();
    assert!(lost.is_some());
    assert!(matches!(session.lost(&lost.unwrap()), Ok(TransactionError::Disconnected(_))));
}
