//! The modes on a live server: the same rows from each of them, and no errors with many connections at once.
//!
//! Each test has its own server; syncing is off, because no test here is about crashes.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use crate::check::{Digest, conditions, digest};
use crate::config::Mode;
use crate::input::{Customer, Input, Request};
use crate::output::{Output, TransactionError};
use crate::sqlite::Transact as _;
use crate::sqlite::fixture;
use crate::sqlite::fixture::{CUSTOMERS, FIRST_NAMES, FIRST_NEW_ORDER, MORE_CONDITIONS};
use bigiron_sql::database::{Database, SqlValue};
use bigiron_sql::pg::{Channel, Connection, Url};
use bigiron_sql::server::Listen;
use bigiron_sql::server::Transport;
use bigiron_sql::server::testing::Running;
use bigiron_sql::server::{cluster, testing};

use super::{Call, install_procedures, prepare};
use crate::driver::NextStep;

const WAREHOUSES: u32 = 2;
const MODES: [Mode; 3] = [Mode::Procedures, Mode::Pipelined, Mode::RoundTrips];

fn server() -> Running {
    testing::start(Listen::Socket, &[("fsync", "off"), ("full_page_writes", "off")])
}

/// A separate database on the server.
struct Scratch {
    url: Url,
}

impl Scratch {
    fn new(server: &Running) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut url = cluster::url(&server.cluster, Transport::Unix).unwrap();
        let mut first = Connection::connect(&url).unwrap();
        url.database = format!("scratch_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        first.run(&format!("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'", url.database)).unwrap();
        let scratch = Scratch { url };
        let mut db = scratch.connect();
        fixture::fill(&mut db, WAREHOUSES);
        db.run(FIRST_NAMES).unwrap();
        install_procedures(&mut db).unwrap();
        scratch
    }

    fn connect(&self) -> Connection {
        Connection::connect(&self.url).unwrap()
    }

    fn session(&self, mode: Mode) -> Session {
        let mut connection = self.connect();
        prepare(&mut connection, mode).unwrap();
        Session { channel: connection.channel().unwrap(), mode }
    }

    fn digest(&self) -> Vec<Digest> {
        digest(&mut self.connect()).unwrap()
    }

    fn check(&self) {
        let mut db = self.connect();
        let report = conditions(&mut db, false).unwrap();
        assert!(report.passed(), "{:?}", report.failures().map(ToString::to_string).collect::<Vec<_>>());
        for sql in MORE_CONDITIONS {
            assert_eq!(db.rows(sql).unwrap(), [[SqlValue::Integer(0)]], "{sql}");
        }
    }
}

struct Session {
    channel: Channel,
    mode: Mode,
}

impl Session {
    fn run(&mut self, request: &Request) -> Result<Output, TransactionError> {
        let Session { channel, mode } = self;
        let mut call = Call::begin(*mode, request, &mut channel.out);
        loop {
            channel.flush().unwrap();
            poll(&mut [PollFd::new(&channel.fd(), PollFlags::IN)], None).unwrap();
            let mut step = NextStep::Wait;
            channel
                .receive(|message| {
                    assert_eq!(step, NextStep::Wait, "nothing follows it");
                    step = call.receive(&message);
                })
                .unwrap();
            match step {
                NextStep::Wait => {}
                NextStep::Send => call.send(&mut channel.out),
                NextStep::Done(result) => return result,
            }
        }
    }
}

#[test]
fn every_mode_leaves_the_rows_and_gives_the_answers_of_sqlite() {
    let server = server();
    let requests = fixture::requests(2000, WAREHOUSES);
    let (_directory, mut engine) = fixture::engine(WAREHOUSES);
    engine.connection().execute_batch(FIRST_NAMES).unwrap();
    let expected: Vec<Output> = requests.iter().map(|request| engine.transact(request).unwrap()).collect();
    let expected_digest = digest(&mut engine).unwrap();
    assert!(expected.contains(&Output::RolledBack));
    assert!(expected.iter().any(|o| matches!(o, Output::Delivery { delivered: 0..10 })), "some district was empty");
    assert!(expected.iter().any(|o| matches!(o, Output::StockLevel { low: 1.. })));
    for mode in MODES {
        let scratch = Scratch::new(&server);
        let mut session = scratch.session(mode);
        for (request, expected) in requests.iter().zip(&expected) {
            assert_eq!(session.run(request).as_ref(), Ok(expected), "{mode:?} {request:?}");
        }
        assert_eq!(scratch.digest(), expected_digest, "{mode:?}");
        scratch.check();
    }
}

#[test]
fn many_at_once_keep_the_conditions() {
    let server = server();
    let scratch = Scratch::new(&server);
    let requests = fixture::requests(4800, WAREHOUSES);
    let retries = AtomicU32::new(0);
    let delivered = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (scratch, requests, retries, delivered) = (&scratch, &requests, &retries, &delivered);
            scope.spawn(move || {
                let mut session = scratch.session(MODES[number % 3]);
                for request in requests.iter().skip(number).step_by(8) {
                    loop {
                        match session.run(request) {
                            Ok(Output::Delivery { delivered: count }) => {
                                delivered.fetch_add(i64::from(count), Ordering::Relaxed);
                            }
                            Ok(_) => {}
                            Err(TransactionError::Retry(_)) => {
                                retries.fetch_add(1, Ordering::Relaxed);
                                continue;
                            }
                            Err(error) => panic!("{request:?}: {error}"),
                        }
                        break;
                    }
                }
            });
        }
    });
    scratch.check();
    let sql = format!("SELECT count(*) FROM orders WHERE o_carrier_id IS NOT NULL AND o_id >= {FIRST_NEW_ORDER}");
    let rows = scratch.connect().rows(&sql).unwrap();
    assert_eq!(rows, [[SqlValue::Integer(delivered.load(Ordering::Relaxed))]], "an order delivered twice, or told so");
    println!("{} retries", retries.load(Ordering::Relaxed));
}

#[test]
fn deliveries_of_one_warehouse_never_share_an_order() {
    let server = server();
    for mode in MODES {
        let scratch = Scratch::new(&server);
        let delivered: u32 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|number: u32| {
                    let scratch = &scratch;
                    scope.spawn(move || {
                        let mut session = scratch.session(mode);
                        let mut delivered = 0;
                        for date in 0..3 {
                            let input = Input::Delivery { warehouse: 1, carrier: number % 10 + 1 };
                            match session.run(&Request { input, date }) {
                                Ok(Output::Delivery { delivered: count }) => delivered += count,
                                other => panic!("{mode:?}: {other:?}"),
                            }
                        }
                        delivered
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        // Nine orders wait in each of ten districts, and there are 24 deliveries.
        assert_eq!(delivered, 90, "{mode:?}");
        scratch.check();
    }
}

#[test]
fn after_an_error_the_connection_serves_the_next_request() {
    let server = server();
    let scratch = Scratch::new(&server);
    scratch.connect().run("ALTER TABLE history ADD CHECK (h_amount < 400000)").unwrap();
    let before = scratch.digest();
    for mode in MODES {
        let mut session = scratch.session(mode);
        let payment = |customer, amount| Request {
            input: Input::Payment {
                warehouse: 1,
                district: 1,
                customer_warehouse: 1,
                customer_district: 1,
                customer,
                amount,
            },
            date: 1,
        };
        let refused = payment(Customer::Id(1), 400_000);
        assert!(matches!(session.run(&refused), Err(TransactionError::Failed(_))), "{mode:?}");
        // In a pipeline the COMMIT is already sent before the client can know that a row is missing.
        if mode != Mode::Pipelined {
            let missing = payment(Customer::Id(CUSTOMERS + 1), 100);
            assert!(matches!(session.run(&missing), Err(TransactionError::Failed(_))), "{mode:?}");
        }
        let status =
            Request { input: Input::OrderStatus { warehouse: 1, district: 1, customer: Customer::Id(1) }, date: 2 };
        let answer = session.run(&status);
        assert!(matches!(answer, Ok(Output::OrderStatus { customer: 1, lines: 5.., .. })), "{mode:?}: {answer:?}");
    }
    assert_eq!(scratch.digest(), before);
}
