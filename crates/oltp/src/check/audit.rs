//! Checks whether the inputs of a run met the specification (TPC-C, clause 9.2.2.5), judged by the rows that it added.
//!
//! Invariant: rows from before the run are ignored.

use anyhow::{Context, Result, bail};

use super::super::scale::CUSTOMERS;
use super::query::{instant, integer_row, integers, is_refused, micros, temporary, tune};
use super::skew::top_share;
use super::{Check, CheckOutcome, CheckReport, Violations};
use bigiron_sql::database::{Database, Dialect};

/// Standard errors by which a correct sample may miss the band: exceeded by chance once in 16,000.
const ERRORS: f64 = 4.0;

/// The state before a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// D_W_ID, D_ID, D_NEXT_O_ID.
    pub next: Vec<(u32, u32, u32)>,
    /// Rows of HISTORY.
    pub payments: u64,
    /// Microseconds since 2000-01-01, later than every date in the database: dates of the run must be later still.
    pub latest: i64,
}

/// The last delivery may be later than the last payment and order, by the few dates of transactions in progress with it; there
/// are too many lines to query their latest date.
const UNSEEN: i64 = 1_000_000;

impl Marks {
    /// Records the marks; nobody may write meanwhile.
    ///
    /// # Errors
    /// If the database refuses a query, or has no district.
    pub fn take(database: &mut dyn Database) -> Result<Self> {
        tune(database);
        let dialect = database.dialect();
        let districts =
            integers::<3>(database, "SELECT d_w_id, d_id, d_next_o_id FROM district ORDER BY d_w_id, d_id")?;
        if districts.is_empty() {
            bail!("No district in the database: load it first");
        }
        let number = |n: i64| u32::try_from(n).context("A district's number is negative or too large");
        let next = districts
            .into_iter()
            .map(|[w, d, next]| Ok((number(w)?, number(d)?, number(next)?)))
            .collect::<Result<_>>()?;
        let sql = format!("SELECT count(*), {} FROM history", micros(dialect, "max(h_date)"));
        let [payments, paid] = integer_row(database, &sql)?;
        let [ordered] = integer_row(database, &format!("SELECT {} FROM orders", micros(dialect, "max(o_entry_d)")))?;
        Ok(Self { next, payments: payments.unsigned_abs(), latest: paid.max(ordered) + UNSEEN })
    }

    /// Puts the districts into the temporary table `oltp_marks (mw, md, mo)`, for joins; without temporary tables they are a
    /// list.
    pub(super) fn store(&self, database: &mut dyn Database) -> Result<String> {
        let table = format!("{}.oltp_marks", temporary(database.dialect()));
        let _ = database.execute(&format!("DROP TABLE IF EXISTS {table}"));
        let rows = |marks: &[(u32, u32, u32)]| {
            marks.iter().map(|(w, d, o)| format!("({w}, {d}, {o})")).collect::<Vec<_>>().join(", ")
        };
        match database
            .execute("CREATE TEMPORARY TABLE oltp_marks (mw INTEGER, md INTEGER, mo INTEGER, PRIMARY KEY (mw, md))")
        {
            Err(e) if is_refused(&e) => return Ok(format!("(VALUES {}) AS oltp_marks (mw, md, mo)", rows(&self.next))),
            other => other?,
        }
        for chunk in self.next.chunks(500) {
            database.execute(&format!("INSERT INTO {table} VALUES {}", rows(chunk)))?;
        }
        if database.dialect() == Dialect::Postgres {
            // Only helps the planner.
            let _ = database.execute("ANALYZE oltp_marks");
        }
        Ok(table)
    }

    /// Drops the table created by [`Marks::store`].
    pub(super) fn forget(table: &str, database: &mut dyn Database) -> Result<()> {
        if table.starts_with('(') { Ok(()) } else { database.execute(&format!("DROP TABLE IF EXISTS {table}")) }
    }

    /// A lower bound of all districts' marks: a constant, which helps the planner.
    pub(super) fn least(&self) -> u32 {
        self.next.iter().map(|(_, _, next)| *next).min().unwrap_or(0)
    }
}

/// The next orders of all districts together: what the server grew by is how many new orders were committed.
/// The sum of all districts' next orders: its growth is the number of committed new orders.
///
/// # Errors
/// If the database refuses the query.
pub fn server_new_orders(database: &mut dyn Database) -> Result<u64> {
    Ok(integer_row::<1>(database, "SELECT sum(d_next_o_id) FROM district")?[0].unsigned_abs())
}

/// Judges the rows added since the marks were taken. Rollbacks and look-ups by name leave no trace in the rows; the driver counts
/// them.
///
/// # Errors
/// If the database refuses a query.
pub fn audit(database: &mut dyn Database, since: &Marks) -> Result<CheckReport> {
    tune(database);
    let marks = since.store(database)?;
    let [warehouses] = integer_row(database, "SELECT count(*) FROM warehouse")?;
    // A run of one warehouse has no remote ones, even if they are loaded.
    let alone = |homes: [i64; 2], remote: i64| {
        (warehouses < 2 || (homes[0] == homes[1] && remote == 0)).then_some("only one warehouse was touched")
    };
    let least = since.least();

    let sql = format!(
        "SELECT count(*), sum(CASE WHEN ol_supply_w_id <> ol_w_id THEN 1 ELSE 0 END), \
         sum(CASE WHEN w_id IS NULL THEN 1 ELSE 0 END), min(ol_w_id), max(ol_w_id) \
         FROM order_line JOIN {marks} ON mw = ol_w_id AND md = ol_d_id AND ol_o_id >= mo \
         LEFT JOIN warehouse ON w_id = ol_supply_w_id WHERE ol_o_id >= {least}"
    );
    let [lines, remote_lines, nowhere, first, last] = integer_row(database, &sql)?;
    let no_lines = alone([first, last], remote_lines);

    let sql = format!(
        "SELECT o_c_id, count(*), sum(CASE WHEN o_ol_cnt BETWEEN 5 AND 15 THEN 0 ELSE 1 END), min(o_ol_cnt), max(o_ol_cnt) \
         FROM orders JOIN {marks} ON mw = o_w_id AND md = o_d_id AND o_id >= mo WHERE o_id >= {least} GROUP BY o_c_id"
    );
    let mut counts = vec![0; CUSTOMERS as usize];
    let mut sizes = Violations::default();
    for [customer, orders, wrong, least, most] in integers(database, &sql)? {
        if let Some(count) = usize::try_from(customer - 1).ok().and_then(|i| counts.get_mut(i)) {
            *count = orders.unsigned_abs();
        }
        sizes.add_many(wrong.unsigned_abs(), || format!("orders of {least} to {most} lines by customer {customer}"));
    }

    let sql = format!(
        "SELECT count(*), sum(CASE WHEN h_w_id <> h_c_w_id THEN 1 ELSE 0 END), min(h_w_id), max(h_w_id) FROM history WHERE h_date > {}",
        instant(database.dialect(), since.latest)
    );
    let [payments, remote_payments, first, last] = integer_row(database, &sql)?;
    let no_payments = alone([first, last], remote_payments);
    let [history] = integer_row(database, "SELECT count(*) FROM history")?;
    let added = history - since.payments as i64;
    Marks::forget(&marks, database)?;

    let mut dates = Violations::default();
    dates.add_many((added - payments).unsigned_abs(), || {
        format!("{added} payments added, {payments} with a date of the run")
    });
    let mut places = Violations::default();
    places.add_many(nowhere.unsigned_abs(), || format!("{nowhere} order lines"));

    let checks = vec![
        share(
            "remote-lines",
            "order lines supplied by another warehouse",
            (0.0095, 0.0105),
            remote_lines,
            lines,
            no_lines,
        ),
        share(
            "remote-payments",
            "payments by customers of another warehouse",
            (0.14, 0.16),
            remote_payments,
            payments,
            no_payments,
        ),
        sizes.check("order-size", "orders have 5 to 15 lines"),
        favoured(&counts),
        places.check("suppliers", "warehouses that supply exist"),
        dates.check("dates", "payments have dates of their run"),
    ];
    Ok(CheckReport { checks })
}

/// Orders of the tenth of the customers that NURand favours.
fn favoured(counts: &[u64]) -> Check {
    let orders: u64 = counts.iter().sum();
    let hits = (top_share(counts) * orders as f64).round() as i64;
    share("customer-skew", "orders of the favoured tenth of the customers", (0.60, 0.64), hits, orders as i64, None)
}

/// A share that must be in a band. A sample is too small if a band of four standard errors on both sides would be wider than half
/// of the band's centre, because it then says little.
fn share(
    name: &'static str,
    claim: &'static str,
    band: (f64, f64),
    hits: i64,
    sample: i64,
    skip: Option<&'static str>,
) -> Check {
    let outcome = if let Some(why) = skip {
        CheckOutcome::Skipped(why)
    } else {
        let centre = f64::midpoint(band.0, band.1);
        let variance = centre * (1.0 - centre);
        let needed = (variance * (ERRORS / (centre / 2.0)).powi(2)).ceil().max(500.0) as u64;
        let sample = sample.unsigned_abs();
        if sample < needed {
            CheckOutcome::TooFew { sample, needed }
        } else {
            let tolerance = ERRORS * (variance / sample as f64).sqrt();
            CheckOutcome::Share {
                value: hits as f64 / sample as f64,
                low: band.0 - tolerance,
                high: band.1 + tolerance,
                sample,
            }
        }
    };
    Check { name, claim, outcome }
}
