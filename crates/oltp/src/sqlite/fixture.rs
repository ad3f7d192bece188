//! A small database with all kinds of rows of a loaded one, for tests: all conditions hold, and every engine's transactions run
//! on it.
//!
//! Invariant: the same rows every time.

use super::super::input::{Customer, Input, OrderLine, Request};
use super::super::scale::UNUSED_ITEM;
use super::super::schema::{INDEXES, TABLES};
use super::Engine;
use bigiron_sql::database::{Database, Dialect, SqlValue};
use bigiron_sql::sqlite::SqliteJournal;

/// Customers of a district, and orders right after load.
pub const CUSTOMERS: u32 = 30;
/// Orders from this one on are not delivered.
pub const FIRST_NEW_ORDER: u32 = 22;
pub const ITEMS: u32 = 120;
/// The date of all loaded rows.
pub const LOADED: i64 = 1_000_000;

/// First names that several customers share, and that no dictionary would order like their bytes.
pub const FIRST_NAMES: &str =
    "UPDATE customer SET c_first = CASE c_id % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'Z' ELSE 'B' END";

/// Conditions in addition to TPC-C's: counts of stock rows or customers that contradict the orders.
pub const MORE_CONDITIONS: [&str; 3] = [
    "SELECT count(*) FROM stock WHERE s_quantity NOT BETWEEN 10 AND 100",
    "SELECT count(*) FROM stock LEFT JOIN (SELECT ol_supply_w_id, ol_i_id, sum(ol_quantity) AS taken, count(*) AS times, \
     sum(CASE ol_w_id WHEN ol_supply_w_id THEN 0 ELSE 1 END) AS remote FROM order_line WHERE ol_o_id > 30 GROUP BY 1, 2) AS sold \
     ON ol_supply_w_id = s_w_id AND ol_i_id = s_i_id \
     WHERE s_ytd <> coalesce(taken, 0) OR s_order_cnt <> coalesce(times, 0) OR s_remote_cnt <> coalesce(remote, 0)",
    "SELECT count(*) FROM customer WHERE c_delivery_cnt <> (SELECT count(*) FROM orders WHERE o_w_id = c_w_id \
     AND o_d_id = c_d_id AND o_c_id = c_id AND o_carrier_id IS NOT NULL AND o_id >= 22)",
];

/// A database of this many warehouses, with its directory.
pub fn engine(warehouses: u32) -> (tempfile::TempDir, Engine) {
    let directory = tempfile::tempdir().unwrap();
    let mut engine = Engine::open(&directory.path().join("oltp.db"), SqliteJournal::Wal).unwrap();
    fill(&mut engine, warehouses);
    (directory, engine)
}

/// Copies all rows of one database to another of the same dialect or to PostgreSQL, which must have none of the tables.
pub fn copy(from: &mut Engine, to: &mut dyn Database) {
    for table in TABLES {
        to.execute(&table.create(to.dialect())).unwrap();
        let dialect = to.dialect();
        let rows = from.rows(&format!("SELECT * FROM {}", table.name)).unwrap();
        let spell = |(value, (_, kind)): (&SqlValue, &(&str, &str))| match value {
            SqlValue::Null => "NULL".to_owned(),
            SqlValue::Integer(n) if *kind == "timestamp" => date(*n, dialect),
            SqlValue::Integer(n) => n.to_string(),
            SqlValue::Text(text) => format!("'{text}'"),
        };
        let rows: Vec<String> = rows
            .iter()
            .map(|row| format!("({})", row.iter().zip(table.columns).map(spell).collect::<Vec<_>>().join(", ")))
            .collect();
        for chunk in rows.chunks(500) {
            to.execute(&format!("INSERT INTO {} VALUES {}", table.name, chunk.join(","))).unwrap();
        }
    }
}

fn date(micros: i64, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => micros.to_string(),
        Dialect::Postgres => format!("timestamp '2000-01-01' + interval '{micros} microseconds'"),
        Dialect::MariaDb => format!("TIMESTAMPADD(MICROSECOND, {micros}, TIMESTAMP '2000-01-01 00:00:00')"),
    }
}

/// Puts the same rows into any database that has none of the tables.
pub fn fill(database: &mut dyn Database, warehouses: u32) {
    for table in TABLES {
        database.execute(&table.create(database.dialect())).unwrap();
    }
    let mut sql = String::from("BEGIN;");
    for table in rows(warehouses, database.dialect()) {
        for chunk in table.1.chunks(500) {
            sql.push_str(&format!("INSERT INTO {} VALUES {};", table.0, chunk.join(",")));
        }
    }
    sql.push_str("COMMIT;");
    database.execute(&sql).unwrap();
    let keyed = database.dialect() != Dialect::Postgres;
    for table in TABLES.iter().filter(|table| !keyed && !table.key.is_empty()) {
        database.execute(&format!("ALTER TABLE {} ADD PRIMARY KEY ({})", table.name, table.key.join(", "))).unwrap();
    }
    for index in INDEXES {
        database
            .execute(&format!("CREATE INDEX {} ON {} ({})", index.name, index.table, index.columns.join(", ")))
            .unwrap();
    }
}

/// Requests of all kinds that fit the rows; one in ten new orders must be rolled back.
pub fn requests(count: u32, warehouses: u32) -> Vec<Request> {
    let mut state = 0x9e37_79b9_u64;
    let mut below = |n: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(n)) as u32
    };
    let mut requests = Vec::new();
    for number in 1..=count {
        let warehouse = 1 + below(warehouses);
        let district = 1 + below(10);
        let customer = match below(3) {
            0 => Customer::Id(1 + below(CUSTOMERS)),
            _ => Customer::LastName([0, 123, 371, 999][below(4) as usize]),
        };
        let input = match below(20) {
            0..9 => {
                let mut lines: Vec<OrderLine> = (0..5 + below(11))
                    .map(|_| OrderLine {
                        // Few items, so that an order often has one twice.
                        item: 1 + below(ITEMS / 4),
                        supply_warehouse: if below(8) == 0 { 1 + below(warehouses) } else { warehouse },
                        quantity: 1 + below(10),
                    })
                    .collect();
                if below(10) == 0 {
                    lines.last_mut().unwrap().item = UNUSED_ITEM;
                }
                Input::NewOrder { warehouse, district, customer: 1 + below(CUSTOMERS), lines }
            }
            9..16 => Input::Payment {
                warehouse,
                district,
                customer_warehouse: if below(4) == 0 { 1 + below(warehouses) } else { warehouse },
                customer_district: 1 + below(10),
                customer,
                amount: 100 + below(499_901),
            },
            16 => Input::OrderStatus { warehouse, district, customer },
            17 => Input::StockLevel { warehouse, district, threshold: 10 + below(11) },
            _ => Input::Delivery { warehouse, carrier: 1 + below(10) },
        };
        requests.push(Request { input, date: LOADED + 2_000_000 + i64::from(number) * 1_000 });
    }
    requests
}

fn rows(warehouses: u32, dialect: Dialect) -> Vec<(&'static str, Vec<String>)> {
    let date = date(LOADED, dialect);
    let address = "'Street', 'Street', 'City', 'ST', '123411111'";
    let mut item = Vec::new();
    for i in 1..=ITEMS {
        item.push(format!("({i}, {i}, {}, 'Item {i}', 'Data of {i}')", 100 + i * 37 % 9900));
    }
    let (mut warehouse, mut district, mut stock, mut customer) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut history, mut orders, mut new_order, mut line) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for w in 1..=warehouses {
        let paid = CUSTOMERS * 1000;
        warehouse.push(format!("({w}, {}, {}, 'W{w}', {address})", w * 311 % 2001, paid * 10));
        for i in 1..=ITEMS {
            let dist: Vec<String> = (1..=10).map(|d| format!("'dist {d} of {i} in {w}'")).collect();
            stock.push(format!("({w}, {i}, {}, 0, 0, 0, {}, 'Stock')", 10 + (i * 7 + w) % 91, dist.join(", ")));
        }
        for d in 1..=10 {
            let (next, tax) = (CUSTOMERS + 1, (w * 13 + d * 97) % 2001);
            district.push(format!("({w}, {d}, {next}, {tax}, {paid}, 'D{d}', {address})"));
            let mut balances = vec![-1000_i64; CUSTOMERS as usize];
            for o in 1..=CUSTOMERS {
                // A permutation: 7 and 30 have no common factor.
                let c = (o * 7 + d) % CUSTOMERS + 1;
                let count = 5 + (o * 3 + d + w) % 11;
                let delivered = o < FIRST_NEW_ORDER;
                let carrier = if delivered { (1 + o % 10).to_string() } else { "NULL".into() };
                orders.push(format!("({w}, {d}, {o}, {c}, {carrier}, {count}, 1, {date})"));
                if !delivered {
                    new_order.push(format!("({w}, {d}, {o})"));
                }
                for n in 1..=count {
                    let i = (o * 31 + n * 17 + d) % ITEMS + 1;
                    let when = if delivered { date.clone() } else { "NULL".into() };
                    // Not 0 for delivered lines as in the specification, so that a sum that omits them is detected.
                    let amount = o * 13 + n;
                    if delivered {
                        balances[c as usize - 1] += i64::from(amount);
                    }
                    line.push(format!("({w}, {d}, {o}, {n}, {i}, {w}, 5, {amount}, {when}, 'info {n}')"));
                }
            }
            for c in 1..=CUSTOMERS {
                let credit = if c % 10 == 3 { "BC" } else { "GC" };
                // Three of each name, so that the middle one is well defined.
                let name = ["BARBARBAR", "OUGHTABLEPRI", "PRICALLYOUGHT", "EINGEINGEING"][(c % 4) as usize];
                let balance = balances[c as usize - 1];
                customer.push(format!(
                    "({w}, {d}, {c}, {}, 1, 0, 5000000, {balance}, 1000, {date}, '{name}', 'First{}', 'OE', '{credit}', {address}, \
                     '0123456789012345', '{}')",
                    c * 161 % 5001,
                    c * 11 % 30,
                    "data ".repeat(95)
                ));
                history.push(format!("({c}, {d}, {w}, {d}, {w}, 1000, {date}, 'W{w}    D{d}')"));
            }
        }
    }
    vec![
        ("item", item),
        ("warehouse", warehouse),
        ("district", district),
        ("stock", stock),
        ("customer", customer),
        ("history", history),
        ("orders", orders),
        ("new_order", new_order),
        ("order_line", line),
    ]
}
