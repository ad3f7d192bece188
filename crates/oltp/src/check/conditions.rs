//! The twelve consistency conditions (TPC-C, clauses 3.3.2.1 to 3.3.2.12).
//!
//! Invariant: the large, growing tables are read once (HISTORY twice) and joined once; conditions per district are compared here,
//! those per order or per customer on the server.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::super::scale::FIRST_NEW_ORDER;
use super::query::{integer_row, integers, is_refused, temporary, tune, whole_sum};
use super::{Check, CheckOutcome, CheckReport, EXAMPLES, Violations};
use bigiron_sql::database::{Database, Dialect};

/// Number of orders of a district that are delivered right after load.
const DELIVERED: i64 = FIRST_NEW_ORDER as i64 - 1;

const CLAIMS: [(&str, &str); 12] = [
    ("condition-1", "W_YTD = sum(D_YTD)"),
    ("condition-2", "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)"),
    ("condition-3", "NO_O_ID of a district have no gaps"),
    ("condition-4", "sum(O_OL_CNT) = order lines of a district"),
    ("condition-5", "an order has no carrier if and only if it is a new order"),
    ("condition-6", "O_OL_CNT = lines of an order"),
    ("condition-7", "a line has no delivery date if and only if its order has no carrier"),
    ("condition-8", "W_YTD = sum(H_AMOUNT)"),
    ("condition-9", "D_YTD = sum(H_AMOUNT)"),
    ("condition-10", "C_BALANCE = sum(OL_AMOUNT delivered) - sum(H_AMOUNT)"),
    ("condition-11", "orders - new orders = 2100 in each district"),
    ("condition-12", "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT delivered)"),
];

/// Checks all twelve; the eleventh holds only right after load (`fresh`). Nobody may write meanwhile.
///
/// # Errors
/// If the database refuses a query, or has no warehouse: every condition holds for empty tables.
pub fn conditions(database: &mut dyn Database, fresh: bool) -> Result<CheckReport> {
    of_load(database, fresh.then_some(DELIVERED))
}

/// With this many delivered orders in each district, if known.
pub(super) fn of_load(database: &mut dyn Database, delivered: Option<i64>) -> Result<CheckReport> {
    tune(database);
    let mut found: [Violations; 12] = Default::default();
    let orders = Orders::collect(database)?;
    let totals = districts(database, &orders, delivered, &mut found)?;
    single_orders(database, &orders, totals.new_orders, &mut found)?;
    customers(database, &orders, totals.paid, &mut found)?;
    orders.drop(database);
    let mut report = CheckReport::default();
    for (number, (found, (name, claim))) in (1..).zip(found.into_iter().zip(CLAIMS)) {
        report.checks.push(match delivered {
            None if number == 11 => {
                Check { name, claim, outcome: CheckOutcome::Skipped("it holds only right after load") }
            }
            _ => found.check(name, claim),
        });
    }
    Ok(report)
}

/// A temporary table with a row for each order, and for each order that has only lines (its `c` is NULL): customer, lines
/// promised and found, the number of those with a date and their amount, the carrier, and the order's number if it waits for
/// delivery.
struct Orders {
    table: String,
}

impl Orders {
    fn collect(database: &mut dyn Database) -> Result<Self> {
        let dialect = database.dialect();
        let mut orders = Self { table: format!("{}.oltp_orders", temporary(dialect)) };
        let lines = "SELECT ol_w_id AS l_w, ol_d_id AS l_d, ol_o_id AS l_o, count(*) AS l_count, count(ol_delivery_d) AS l_dated, \
                     sum(CASE WHEN ol_delivery_d IS NOT NULL THEN ol_amount ELSE 0 END) AS l_amount \
                     FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id";
        let waiting = "LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id";
        orders.drop(database);
        match dialect {
            // Without a key, because PostgreSQL joins and groups by hash; as one statement, because only then may it read in
            // parallel.
            Dialect::Postgres => {
                let all = format!(
                    "SELECT COALESCE(o_w_id, l_w) AS w, COALESCE(o_d_id, l_d) AS d, \
                     COALESCE(o_id, l_o) AS o, o_c_id AS c, o_ol_cnt AS promised, o_carrier_id AS carrier, no_o_id AS waiting, \
                     COALESCE(l_count, 0) AS line_count, COALESCE(l_dated, 0) AS dated, COALESCE(l_amount, 0) AS amount FROM orders \
                     FULL JOIN ({lines}) AS lines_of ON l_w = o_w_id AND l_d = o_d_id AND l_o = o_id {waiting}"
                );
                match database.execute(&format!("CREATE TEMPORARY TABLE oltp_orders AS {all}")) {
                    // Only helps the planner.
                    Ok(()) => _ = database.execute("ANALYZE oltp_orders"),
                    // If the server or role has no temporary tables, the query is repeated each time.
                    Err(e) if is_refused(&e) => orders.table = format!("({all}) AS oltp_orders"),
                    Err(e) => return Err(e),
                }
            }
            // With a key, in whose order all three tables are stored: otherwise SQLite's full join would compare every order with
            // every other.
            Dialect::Sqlite => database.execute(&format!(
                "CREATE TEMPORARY TABLE oltp_orders (w INTEGER, d INTEGER, o INTEGER, c INTEGER, promised INTEGER, carrier INTEGER, \
                 waiting INTEGER, line_count INTEGER DEFAULT 0, dated INTEGER DEFAULT 0, amount INTEGER DEFAULT 0, PRIMARY KEY (w, d, o)) \
                 WITHOUT ROWID; \
                 INSERT INTO {table} (w, d, o, c, promised, carrier, waiting) \
                 SELECT o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_carrier_id, no_o_id FROM orders {waiting} ORDER BY o_w_id, o_d_id, o_id; \
                 INSERT INTO {table} (w, d, o, line_count, dated, amount) SELECT * FROM ({lines}) WHERE TRUE \
                 ON CONFLICT DO UPDATE SET line_count = excluded.line_count, dated = excluded.dated, amount = excluded.amount",
                table = orders.table
            ))?,
            // With a key, as it has no full join.
            Dialect::MariaDb => database.execute(&format!(
                "CREATE TEMPORARY TABLE {table} (w integer, d integer, o integer, c integer, promised integer, carrier integer, \
                 waiting integer, line_count integer DEFAULT 0, dated integer DEFAULT 0, amount bigint DEFAULT 0, PRIMARY KEY (w, d, o)); \
                 INSERT INTO {table} (w, d, o, c, promised, carrier, waiting) \
                 SELECT o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_carrier_id, no_o_id FROM orders {waiting}; \
                 INSERT INTO {table} (w, d, o, line_count, dated, amount) {lines} \
                 ON DUPLICATE KEY UPDATE line_count = VALUES(line_count), dated = VALUES(dated), amount = VALUES(amount)",
                table = orders.table
            ))?,
        }
        Ok(orders)
    }

    /// A table that cannot be dropped did not exist, or disappears with the connection.
    fn drop(&self, database: &mut dyn Database) {
        if !self.table.starts_with('(') {
            let _ = database.execute(&format!("DROP TABLE IF EXISTS {}", self.table));
        }
    }
}

/// The figures of a district, even if it has no row in DISTRICT.
#[derive(Default)]
struct District {
    /// D_NEXT_O_ID and D_YTD.
    row: Option<(i64, i64)>,
    last_order: i64,
    orders: i64,
    promised_lines: i64,
    lines: i64,
    first_new: i64,
    last_new: i64,
    new_orders: i64,
    paid: i64,
}

/// Sums over all districts, for the other conditions.
struct Totals {
    new_orders: i64,
    paid: i64,
}

/// Conditions 1 to 4, 8, 9 and 11.
fn districts(
    database: &mut dyn Database,
    orders: &Orders,
    delivered: Option<i64>,
    found: &mut [Violations; 12],
) -> Result<Totals> {
    let dialect = database.dialect();
    let mut all: BTreeMap<(i64, i64), District> = BTreeMap::new();
    for [w, d, next, ytd] in integers(database, "SELECT d_w_id, d_id, d_next_o_id, d_ytd FROM district")? {
        all.entry((w, d)).or_default().row = Some((next, ytd));
    }
    let sql = format!(
        "SELECT w, d, max(CASE WHEN c IS NOT NULL THEN o END), count(c), {}, {} FROM {} GROUP BY w, d",
        whole_sum(dialect, "promised"),
        whole_sum(dialect, "line_count"),
        orders.table
    );
    for [w, d, last, count, promised, lines] in integers(database, &sql)? {
        let district = all.entry((w, d)).or_default();
        (district.last_order, district.orders, district.promised_lines, district.lines) =
            (last, count, promised, lines);
    }
    let sql = "SELECT no_w_id, no_d_id, min(no_o_id), max(no_o_id), count(*) FROM new_order GROUP BY no_w_id, no_d_id";
    for [w, d, first, last, count] in integers(database, sql)? {
        let district = all.entry((w, d)).or_default();
        (district.first_new, district.last_new, district.new_orders) = (first, last, count);
    }
    for [w, d, paid] in integers(database, "SELECT h_w_id, h_d_id, sum(h_amount) FROM history GROUP BY h_w_id, h_d_id")?
    {
        all.entry((w, d)).or_default().paid = paid;
    }

    for (&(w, d), it) in &all {
        let place = format!("warehouse {w}, district {d}");
        let (next, ytd) = it.row.unwrap_or((1, 0));
        if next - 1 != it.last_order || (it.new_orders > 0 && it.last_new != it.last_order) {
            found[1].add(|| {
                format!("{place}: D_NEXT_O_ID {next}, max(O_ID) {}, max(NO_O_ID) {}", it.last_order, it.last_new)
            });
        }
        if it.new_orders > 0 && it.last_new - it.first_new + 1 != it.new_orders {
            found[2].add(|| format!("{place}: {} new orders from {} to {}", it.new_orders, it.first_new, it.last_new));
        }
        if it.promised_lines != it.lines {
            found[3].add(|| format!("{place}: sum(O_OL_CNT) {}, lines {}", it.promised_lines, it.lines));
        }
        if ytd != it.paid {
            found[8].add(|| format!("{place}: D_YTD {ytd}, sum(H_AMOUNT) {}", it.paid));
        }
        if let Some(delivered) = delivered
            && it.orders - it.new_orders != delivered
        {
            found[10].add(|| format!("{place}: {} orders, {} new orders", it.orders, it.new_orders));
        }
    }
    warehouses(database, &all, found)?;
    Ok(Totals { new_orders: all.values().map(|d| d.new_orders).sum(), paid: all.values().map(|d| d.paid).sum() })
}

/// Conditions 1 and 8.
fn warehouses(
    database: &mut dyn Database,
    districts: &BTreeMap<(i64, i64), District>,
    found: &mut [Violations; 12],
) -> Result<()> {
    // W_YTD, the sum of D_YTD, and what was paid.
    let mut all: BTreeMap<i64, [i64; 3]> = BTreeMap::new();
    for [w, ytd] in integers(database, "SELECT w_id, w_ytd FROM warehouse")? {
        all.insert(w, [ytd, 0, 0]);
    }
    if all.is_empty() {
        bail!("No warehouse in the database: load it first");
    }
    for (&(w, _), district) in districts {
        let sums = all.entry(w).or_default();
        sums[1] += district.row.map_or(0, |(_, ytd)| ytd);
        sums[2] += district.paid;
    }
    for (w, [ytd, districts, paid]) in all {
        if ytd != districts {
            found[0].add(|| format!("warehouse {w}: W_YTD {ytd}, sum(D_YTD) {districts}"));
        }
        if ytd != paid {
            found[7].add(|| format!("warehouse {w}: W_YTD {ytd}, sum(H_AMOUNT) {paid}"));
        }
    }
    Ok(())
}

/// Conditions 5 to 7.
fn single_orders(
    database: &mut dyn Database,
    orders: &Orders,
    new_orders: i64,
    found: &mut [Violations; 12],
) -> Result<()> {
    let from = format!("FROM {} WHERE c IS NOT NULL", orders.table);
    let carrier = "CASE WHEN (carrier IS NULL) <> (waiting IS NOT NULL) THEN 1 ELSE 0 END";
    let count = "CASE WHEN promised <> line_count THEN 1 ELSE 0 END";
    let dates = "CASE WHEN carrier IS NULL THEN dated ELSE line_count - dated END";
    let sql =
        format!("SELECT sum({carrier}), sum({count}), {}, count(waiting) {from}", whole_sum(database.dialect(), dates));
    let [carriers, counts, undated, waiting] = integer_row(database, &sql)?;
    for (index, violations, wrong) in [(4, carriers, carrier), (5, counts, count), (6, undated, dates)] {
        if violations == 0 {
            continue;
        }
        let sql = format!("SELECT w, d, o {from} AND {wrong} > 0 ORDER BY w, d, o LIMIT {EXAMPLES}");
        found[index].count = violations.unsigned_abs();
        found[index].examples = named(database, &sql, ["warehouse", "district", "order"])?;
    }
    // New orders without an order are not in the sums above.
    found[4].add_many((new_orders - waiting).unsigned_abs(), || {
        format!("{} new orders without an order", new_orders - waiting)
    });
    Ok(())
}

/// Conditions 10 and 12.
fn customers(database: &mut dyn Database, orders: &Orders, paid: i64, found: &mut [Violations; 12]) -> Result<()> {
    let dialect = database.dialect();
    let from = format!(
        "FROM customer \
         LEFT JOIN (SELECT w, d, c, {} AS delivered FROM {} GROUP BY w, d, c) AS orders_of \
         ON w = c_w_id AND d = c_d_id AND c = c_id \
         LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid \
         FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS payments_of \
         ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id",
        whole_sum(dialect, "amount"),
        orders.table
    );
    let balance = "CASE WHEN c_balance <> COALESCE(delivered, 0) - COALESCE(paid, 0) THEN 1 ELSE 0 END";
    let volume = "CASE WHEN c_balance + c_ytd_payment <> COALESCE(delivered, 0) THEN 1 ELSE 0 END";
    let sql = format!(
        "SELECT sum({balance}), sum({volume}), {}, {} {from}",
        whole_sum(dialect, "delivered"),
        whole_sum(dialect, "paid")
    );
    let [balances, volumes, delivered_to, paid_by] = integer_row(database, &sql)?;
    for (index, violations, wrong) in [(9, balances, balance), (11, volumes, volume)] {
        if violations == 0 {
            continue;
        }
        let sql = format!(
            "SELECT c_w_id, c_d_id, c_id {from} WHERE {wrong} > 0 ORDER BY c_w_id, c_d_id, c_id LIMIT {EXAMPLES}"
        );
        found[index].count = violations.unsigned_abs();
        found[index].examples = named(database, &sql, ["warehouse", "district", "customer"])?;
    }
    // Amounts of a customer that does not exist are in no customer's sum.
    let sql = format!("SELECT {} FROM {} WHERE c IS NOT NULL", whole_sum(dialect, "amount"), orders.table);
    let [delivered] = integer_row(database, &sql)?;
    if delivered != delivered_to {
        found[9].add(|| format!("{} cents delivered to customers that do not exist", delivered - delivered_to));
        found[11].add(|| format!("{} cents delivered to customers that do not exist", delivered - delivered_to));
    }
    if paid != paid_by {
        found[9].add(|| format!("{} cents paid by customers that do not exist", paid - paid_by));
    }
    Ok(())
}

/// Rows of three numbers in words.
fn named(database: &mut dyn Database, sql: &str, names: [&str; 3]) -> Result<Vec<String>> {
    let rows = integers::<3>(database, sql)?;
    Ok(rows.into_iter().map(|[a, b, c]| format!("{} {a}, {} {b}, {} {c}", names[0], names[1], names[2])).collect())
}
