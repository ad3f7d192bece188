//! The conditions of the business's data: on the data alone, and beside what the servlets said they had done.
//!
//! Invariant: a sum is compared with every response of the run, those outside the window too.

use anyhow::{Context as _, Result, ensure};

use bigiron_sql::database::{Database, SqlValue};
use bigiron_web::call::CallTally;
use bigiron_workload::WrongData;

use crate::calls::{ACCOUNT, ADVANCE, CANCEL, DELIVER, ORDER, SCHEDULE};

/// What must be true of each row, and how many there are of which it is not.
const CONDITIONS: [(&str, &str); 7] = [
    (
        "an order's total is the sum of its lines",
        "SELECT count(*) FROM orders o LEFT JOIN (SELECT order_id, sum(amount) AS amount FROM line GROUP BY order_id) l \
         ON l.order_id = o.id WHERE l.amount IS NULL OR o.total <> l.amount",
    ),
    (
        "a line's amount is its quantity times the item's price",
        "SELECT count(*) FROM line LEFT JOIN item ON item.id = line.item WHERE price IS NULL OR amount <> quantity * price",
    ),
    (
        "a dealer's balance is the sum of its open orders and within its credit, and its payments are the sum of its paid orders",
        "SELECT count(*) FROM dealer d LEFT JOIN (SELECT dealer, sum(CASE state WHEN 0 THEN total ELSE 0 END) AS due, \
         sum(CASE state WHEN 1 THEN total ELSE 0 END) AS settled FROM orders GROUP BY dealer) o ON o.dealer = d.id \
         WHERE balance <> coalesce(due, 0) OR paid <> coalesce(settled, 0) OR balance > credit",
    ),
    (
        "an item's stock is the quantity loaded and built for it, less the quantity ordered from it",
        "SELECT count(*) FROM item i LEFT JOIN (SELECT item, sum(quantity) AS n FROM work WHERE stage = 3 AND order_id IS NULL \
         GROUP BY item) b ON b.item = i.id LEFT JOIN (SELECT item, sum(quantity) AS n FROM line JOIN orders o ON o.id = order_id \
         WHERE built = 0 AND state <> 2 GROUP BY item) s ON s.item = i.id \
         WHERE stock <> loaded + coalesce(b.n, 0) - coalesce(s.n, 0) OR stock < 0",
    ),
    (
        "each line that is built has one work order, and each work order of an order has one line",
        "SELECT (SELECT count(*) FROM line l JOIN orders o ON o.id = l.order_id \
         LEFT JOIN work w ON w.order_id = l.order_id AND w.item = l.item AND w.quantity = l.quantity \
         WHERE l.built = 1 AND o.state <> 2 AND w.id IS NULL) + (SELECT count(*) FROM work w \
         LEFT JOIN (SELECT order_id, item, quantity FROM line JOIN orders o ON o.id = order_id WHERE built = 1 AND state <> 2) l \
         ON w.order_id = l.order_id AND w.item = l.item AND w.quantity = l.quantity WHERE w.order_id IS NOT NULL AND l.item IS NULL)",
    ),
    (
        "a component's stock is the quantity loaded and delivered, less the quantity used by work orders, and its quantity on order is \
         that of the undelivered purchases",
        "SELECT count(*) FROM component c LEFT JOIN (SELECT component, sum(CASE delivered WHEN 1 THEN quantity ELSE 0 END) AS here, \
         sum(CASE delivered WHEN 0 THEN quantity ELSE 0 END) AS due FROM purchase GROUP BY component) p ON p.component = c.id \
         LEFT JOIN (SELECT component, sum(work.quantity * part.quantity) AS n FROM work JOIN part ON part.item = work.item \
         GROUP BY component) u ON u.component = c.id \
         WHERE stock <> loaded + coalesce(here, 0) - coalesce(u.n, 0) OR ordered <> coalesce(due, 0)",
    ),
    ("a work order has a stage from 0 to 3", "SELECT count(*) FROM work WHERE stage NOT BETWEEN 0 AND 3"),
];

/// The tallies of a run, by kind.
struct Run<'a>(&'a [CallTally]);

impl Run<'_> {
    fn done(&self, kind: usize) -> i64 {
        self.0.get(kind).map_or(0, |calls| calls.done as i64)
    }

    fn sum(&self, kind: usize, number: usize) -> i64 {
        self.0.get(kind).map_or(0, |calls| calls.sums[number])
    }
}

/// A sum over the data, and by how much a run must change it.
type Sum = (&'static str, &'static str, fn(&Run<'_>) -> i64);

const SUMS: [Sum; 12] = [
    ("orders", "count(*) FROM orders", |run| run.done(ORDER)),
    ("the orders' totals", "sum(total) FROM orders", |run| run.sum(ORDER, 0)),
    ("cancelled orders", "count(*) FROM orders WHERE state = 2", |run| run.done(CANCEL)),
    ("the cancelled orders' totals", "sum(total) FROM orders WHERE state = 2", |run| run.sum(CANCEL, 0)),
    ("what dealers paid", "sum(paid) FROM dealer", |run| run.sum(ACCOUNT, 0)),
    ("the dealers' balances", "sum(balance) FROM dealer", |run| {
        run.sum(ORDER, 0) - run.sum(CANCEL, 0) - run.sum(ACCOUNT, 0)
    }),
    ("work orders", "count(*) FROM work", |run| run.done(SCHEDULE) + run.sum(ORDER, 1)),
    ("the work orders' stages", "sum(stage) FROM work", |run| run.done(ADVANCE)),
    ("complete work orders", "count(*) FROM work WHERE stage = 3", |run| run.sum(ADVANCE, 0)),
    ("purchases", "count(*) FROM purchase", |run| run.sum(SCHEDULE, 1) + run.sum(ORDER, 2)),
    ("deliveries", "count(*) FROM purchase WHERE delivered = 1", |run| run.done(DELIVER)),
    ("the deliveries' cost", "sum(cost) FROM purchase WHERE delivered = 1", |run| run.sum(DELIVER, 0)),
];

/// The sums over the data at one time.
pub struct Sums([i64; SUMS.len()]);

fn number(database: &mut dyn Database, sql: &str) -> Result<i64> {
    let rows = database.rows(sql)?;
    match rows.first().map(Vec::as_slice) {
        Some([SqlValue::Integer(n)]) => Ok(*n),
        // Sums of large numbers.
        Some([SqlValue::Text(text)]) => text.parse().with_context(|| format!("`{sql}` is `{text}`")),
        other => anyhow::bail!("`{sql}` is {other:?}"),
    }
}

impl Sums {
    /// # Errors
    /// The database does not answer.
    pub fn read(database: &mut dyn Database) -> Result<Self> {
        let mut sums = [0; SUMS.len()];
        for (sum, (_, sql, _)) in sums.iter_mut().zip(&SUMS) {
            let (value, from) = sql.split_once(" FROM ").unwrap_or((sql, ""));
            *sum = number(database, &format!("SELECT coalesce({value}, 0) FROM {from}"))?;
        }
        Ok(Self(sums))
    }
}

/// Checks the data after a run that began with the sums `before`, and whose responses are tallied in `calls`. Returns the number of conditions.
///
/// # Errors
/// A [`WrongData`] that names the first violated condition; or the database does not answer.
pub fn check(database: &mut dyn Database, before: &Sums, calls: &[CallTally]) -> Result<usize> {
    let (after, run) = (Sums::read(database)?, Run(calls));
    for (((what, _, expected), before), after) in SUMS.iter().zip(before.0).zip(after.0) {
        let (said, found) = (expected(&run), after - before);
        ensure!(
            said == found,
            WrongData(format!(
                "The servlets reported that {what} grew by {said}, but in the database they grew by {found}"
            ))
        );
    }
    alone(database)?;
    Ok(SUMS.len() + CONDITIONS.len())
}

/// Checks the conditions on the data alone. Returns their names.
///
/// # Errors
/// As [`check`].
pub fn alone(database: &mut dyn Database) -> Result<Vec<String>> {
    for (condition, sql) in &CONDITIONS {
        let wrong = number(database, sql)?;
        ensure!(wrong == 0, WrongData(format!("Violated in {wrong} rows: {condition}")));
    }
    Ok(CONDITIONS.iter().map(|(condition, _)| (*condition).to_owned()).collect())
}
