//! The modes on a server that runs: the same rows from each of them, and nothing broken by many at once.
//!
//! The server is named by `BIGIRON_TEST_PG=postgresql://…`, whose user may create databases; each test makes and drops its own.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use crate::workload::oltp::config::Mode;
use crate::workload::oltp::database::{Database, Dialect, Value};
use crate::workload::oltp::input::{Customer, Input, Line, Request};
use crate::workload::oltp::output::{Output, TransactionError};
use crate::workload::oltp::pg::{Channel, Connection, Url};
use crate::workload::oltp::random::Rng;
use crate::workload::oltp::scale::{DISTRICTS, UNUSED_ITEM};
use crate::workload::oltp::schema::{INDEXES, TABLES};

use super::{Call, Step, install_procedures, prepare};

const WAREHOUSES: u32 = 2;
const CUSTOMERS: u32 = 30;
const ITEMS: u32 = 60;
const MODES: [Mode; 3] = [Mode::Procedures, Mode::Pipelined, Mode::RoundTrips];

/// Few rows that keep the conditions: an order for every customer, the last ten of each district not delivered. Names and first names are
/// shared by several customers, so that the middle one has to be found.
const ROWS: &str = "
    INSERT INTO item SELECT i, i, 100 + i * 37 % 9900, 'item ' || i, 'data' FROM generate_series(1, 60) i;
    INSERT INTO warehouse SELECT w, 1000 + w, 300 * 1000, 'house ' || w, '', '', '', 'WA', '123411111' FROM generate_series(1, 2) w;
    INSERT INTO district SELECT w, d, 31, 100 * d, 30 * 1000, 'part ' || d, '', '', '', 'WA', '123411111'
        FROM generate_series(1, 2) w, generate_series(1, 10) d;
    INSERT INTO stock SELECT w, i, 10 + (w * 31 + i * 17) % 91, 0, 0, 0, 'd1', 'd2', 'd3', 'd4', 'd5', 'd6', 'd7', 'd8', 'd9', 'd10', 'data'
        FROM generate_series(1, 2) w, generate_series(1, 60) i;
    INSERT INTO customer SELECT w, d, c, c * 150, 1, 0, 5000000, -1000, 1000, '2024-01-01',
            (ARRAY['BARBARBAR', 'BARBAROUGHT', 'BARBARABLE', 'BARBARPRI', 'BARBARPRES', 'BARBARESE'])[c % 6 + 1],
            chr(65 + c * 7 % 3) || CASE c % 2 WHEN 0 THEN 'a' ELSE 'Z' END, 'OE', CASE c % 3 WHEN 0 THEN 'BC' ELSE 'GC' END,
            '', '', '', 'WA', '123411111', '0123456789', repeat(chr(96 + c % 26 + 1), 480)
        FROM generate_series(1, 2) w, generate_series(1, 10) d, generate_series(1, 30) c;
    INSERT INTO history SELECT c, d, w, d, w, 1000, '2024-01-01', 'data'
        FROM generate_series(1, 2) w, generate_series(1, 10) d, generate_series(1, 30) c;
    INSERT INTO orders SELECT w, d, o, 31 - o, CASE WHEN o <= 20 THEN 1 + o % 10 END, 3, 1, '2024-01-01'
        FROM generate_series(1, 2) w, generate_series(1, 10) d, generate_series(1, 30) o;
    INSERT INTO new_order SELECT w, d, o FROM generate_series(1, 2) w, generate_series(1, 10) d, generate_series(21, 30) o;
    INSERT INTO order_line SELECT w, d, o, n, (o * 3 + n) % 60 + 1, w, 5, CASE WHEN o <= 20 THEN 0 ELSE o * 100 + n END,
            CASE WHEN o <= 20 THEN timestamp '2024-01-01' END, 'd'
        FROM generate_series(1, 2) w, generate_series(1, 10) d, generate_series(1, 30) o, generate_series(1, 3) n";

/// Rows that break one of TPC-C's conditions 1 to 10 and 12 (clause 3.3.2), as a count of each. Condition 11 is one of a fresh load alone.
const CONDITIONS: &[(&str, &str)] = &[
    ("1", "SELECT count(*) FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)"),
    (
        "2",
        "SELECT count(*) FROM district WHERE d_next_o_id - 1 <> (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) \
         OR d_next_o_id - 1 <> (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)",
    ),
    (
        "3",
        "SELECT count(*) FROM (SELECT 1 FROM new_order GROUP BY no_w_id, no_d_id \
         HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) AS broken",
    ),
    (
        "4",
        "SELECT count(*) FROM district WHERE (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) \
         <> (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)",
    ),
    (
        "5",
        "SELECT count(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    ),
    (
        "6",
        "SELECT count(*) FROM orders WHERE o_ol_cnt <> (SELECT count(*) FROM order_line \
         WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id)",
    ),
    (
        "7",
        "SELECT count(*) FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE (o_carrier_id IS NULL) <> (ol_delivery_d IS NULL)",
    ),
    ("8", "SELECT count(*) FROM warehouse WHERE w_ytd <> (SELECT sum(h_amount) FROM history WHERE h_w_id = w_id)"),
    (
        "9",
        "SELECT count(*) FROM district WHERE d_ytd <> (SELECT sum(h_amount) FROM history WHERE h_w_id = d_w_id AND h_d_id = d_id)",
    ),
    (
        "10 and 12",
        "WITH sold AS (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS amount FROM orders \
         JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3), \
         paid AS (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS amount FROM history GROUP BY 1, 2, 3) \
         SELECT count(*) FROM customer LEFT JOIN sold ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
         LEFT JOIN paid ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
         WHERE c_balance <> coalesce(sold.amount, 0) - coalesce(paid.amount, 0) OR c_balance + c_ytd_payment <> coalesce(sold.amount, 0)",
    ),
    ("stock", "SELECT count(*) FROM stock WHERE s_quantity NOT BETWEEN 10 AND 100 OR (s_ytd = 0) <> (s_order_cnt = 0)"),
    (
        "stock against lines",
        "SELECT count(*) FROM stock LEFT JOIN (SELECT ol_supply_w_id, ol_i_id, sum(ol_quantity) AS taken, count(*) AS times FROM order_line \
         WHERE ol_o_id > 30 GROUP BY 1, 2) AS lines ON ol_supply_w_id = s_w_id AND ol_i_id = s_i_id \
         WHERE s_ytd <> coalesce(taken, 0) OR s_order_cnt <> coalesce(times, 0)",
    ),
    (
        "deliveries",
        "SELECT count(*) FROM (SELECT 1 FROM customer WHERE c_delivery_cnt <> (SELECT count(*) FROM orders WHERE o_w_id = c_w_id \
         AND o_d_id = c_d_id AND o_c_id = c_id AND o_carrier_id IS NOT NULL AND o_id > 20)) AS broken",
    ),
];

/// A database of its own on the server, dropped at the end.
struct Scratch {
    server: Url,
    url: Url,
}

impl Scratch {
    fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let text = std::env::var("BIGIRON_TEST_PG").expect("BIGIRON_TEST_PG=postgresql://… names a server");
        let server = Url::parse(&text).unwrap();
        let mut url = server.clone();
        url.database = format!("bigiron_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let create = format!("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'", url.database);
        Connection::connect(&server).unwrap().run(&create).unwrap();
        let scratch = Scratch { server, url };
        let mut db = scratch.connect();
        for table in TABLES {
            db.run(&table.create(Dialect::Postgres)).unwrap();
        }
        db.run(ROWS).unwrap();
        for table in TABLES.iter().filter(|t| !t.key.is_empty()) {
            db.run(&format!("ALTER TABLE {} ADD PRIMARY KEY ({})", table.name, table.key.join(", "))).unwrap();
        }
        for index in INDEXES {
            db.run(&format!("CREATE INDEX {} ON {} ({})", index.name, index.table, index.columns.join(", "))).unwrap();
        }
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

    /// All rows of all tables, in an order of their own.
    fn contents(&self) -> Vec<(&'static str, Vec<Vec<Value>>)> {
        let mut db = self.connect();
        let rows = |t: &str, db: &mut Connection| db.rows(&format!("SELECT x::text FROM {t} AS x ORDER BY 1")).unwrap();
        TABLES.iter().map(|t| (t.name, rows(t.name, &mut db))).collect()
    }

    fn check(&self) {
        let mut db = self.connect();
        for (name, sql) in CONDITIONS {
            assert_eq!(db.rows(sql).unwrap(), [[Value::Integer(0)]], "condition {name}");
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Ok(mut server) = Connection::connect(&self.server) {
            let _ = server.run(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.url.database));
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
            let mut step = Step::Wait;
            channel
                .receive(|message| {
                    assert_eq!(step, Step::Wait, "nothing follows it");
                    step = call.receive(&message);
                })
                .unwrap();
            match step {
                Step::Wait => {}
                Step::Send => call.send(&mut channel.out),
                Step::Done(result) => return result,
            }
        }
    }
}

fn customer(rng: &mut Rng) -> Customer {
    if rng.percent(60) { Customer::LastName(rng.range(0, 5)) } else { Customer::Id(rng.range(1, CUSTOMERS)) }
}

/// Like TPC-C's mix, but with few items, so that orders name one twice, and one order in ten to be rolled back.
fn request(rng: &mut Rng, date: i64) -> Request {
    let (warehouse, district) = (rng.range(1, WAREHOUSES), rng.range(1, DISTRICTS));
    let input = match rng.range(0, 99) {
        0..45 => {
            let count = rng.range(5, 15);
            let mut lines: Vec<Line> = (0..count)
                .map(|_| Line {
                    item: rng.range(1, ITEMS),
                    supply_warehouse: if rng.percent(20) { rng.range(1, WAREHOUSES) } else { warehouse },
                    quantity: rng.range(1, 10),
                })
                .collect();
            if rng.percent(10) {
                lines.last_mut().unwrap().item = UNUSED_ITEM;
            }
            Input::NewOrder { warehouse, district, customer: rng.range(1, CUSTOMERS), lines }
        }
        45..80 => Input::Payment {
            warehouse,
            district,
            customer_warehouse: rng.range(1, WAREHOUSES),
            customer_district: rng.range(1, DISTRICTS),
            customer: customer(rng),
            amount: rng.range(100, 500_000),
        },
        80..86 => Input::OrderStatus { warehouse, district, customer: customer(rng) },
        86..94 => Input::Delivery { warehouse, carrier: rng.range(1, 10) },
        _ => Input::StockLevel { warehouse, district, threshold: rng.range(10, 60) },
    };
    Request { input, date }
}

#[test]
#[ignore = "needs a PostgreSQL server, named by BIGIRON_TEST_PG=postgresql://…"]
fn every_mode_leaves_the_same_rows_and_gives_the_same_answers() {
    let mut rng = Rng::new(7, 1);
    let requests: Vec<Request> = (0..2000).map(|date| request(&mut rng, date)).collect();
    let mut first: Option<(Vec<Output>, Vec<_>)> = None;
    for mode in MODES {
        let scratch = Scratch::new();
        scratch.check();
        let mut session = scratch.session(mode);
        let outputs: Vec<Output> = requests
            .iter()
            .map(|request| session.run(request).unwrap_or_else(|e| panic!("{mode:?} {request:?}: {e}")))
            .collect();
        scratch.check();
        let contents = scratch.contents();
        let Some((expected_outputs, expected_contents)) = &first else {
            assert!(outputs.contains(&Output::RolledBack));
            assert!(
                outputs.iter().any(|o| matches!(o, Output::Delivery { delivered: 1..10 })),
                "some district was empty"
            );
            assert!(outputs.iter().any(|o| matches!(o, Output::StockLevel { low: 1.. })));
            first = Some((outputs, contents));
            continue;
        };
        for ((request, output), expected) in requests.iter().zip(&outputs).zip(expected_outputs) {
            assert_eq!(output, expected, "{mode:?} {request:?}");
        }
        for ((table, rows), (_, expected)) in contents.iter().zip(expected_contents) {
            assert!(rows == expected, "{mode:?}: the rows of {table} differ");
        }
    }
}

#[test]
#[ignore = "needs a PostgreSQL server, named by BIGIRON_TEST_PG=postgresql://…"]
fn many_at_once_keep_the_conditions() {
    let scratch = Scratch::new();
    let retries = AtomicU32::new(0);
    let delivered = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for number in 0..8_u32 {
            let (scratch, retries, delivered) = (&scratch, &retries, &delivered);
            scope.spawn(move || {
                let mut session = scratch.session(MODES[number as usize % 3]);
                let mut rng = Rng::new(11, u64::from(number));
                for date in 0..600 {
                    let request = request(&mut rng, date * 8 + i64::from(number));
                    loop {
                        match session.run(&request) {
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
    let sql = "SELECT count(*) FROM orders WHERE o_carrier_id IS NOT NULL AND o_id > 20";
    let rows = scratch.connect().rows(sql).unwrap();
    assert_eq!(rows, [[Value::Integer(delivered.load(Ordering::Relaxed))]], "an order delivered twice, or told so");
    println!("{} retries", retries.load(Ordering::Relaxed));
}

#[test]
#[ignore = "needs a PostgreSQL server, named by BIGIRON_TEST_PG=postgresql://…"]
fn deliveries_of_one_warehouse_never_share_an_order() {
    for mode in MODES {
        let scratch = Scratch::new();
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
        // Ten orders wait in each of ten districts, and 24 deliveries ask for them.
        assert_eq!(delivered, 100, "{mode:?}");
        scratch.check();
    }
}

#[test]
#[ignore = "needs a PostgreSQL server, named by BIGIRON_TEST_PG=postgresql://…"]
fn after_an_error_the_connection_serves_the_next_request() {
    let scratch = Scratch::new();
    scratch.connect().run("ALTER TABLE history ADD CHECK (h_amount < 400000)").unwrap();
    let before = scratch.contents();
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
        for bad in [payment(Customer::Id(1), 400_000), payment(Customer::Id(CUSTOMERS + 1), 100)] {
            assert!(matches!(session.run(&bad), Err(TransactionError::Failed(_))), "{mode:?}");
        }
        let status =
            Request { input: Input::OrderStatus { warehouse: 1, district: 1, customer: Customer::Id(1) }, date: 2 };
        assert_eq!(
            session.run(&status),
            Ok(Output::OrderStatus { customer: 1, balance: -1000, order: 30, lines: 3 }),
            "{mode:?}"
        );
    }
    assert!(scratch.contents() == before);
}
