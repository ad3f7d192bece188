//! Checks that a database has everything acknowledged to the driver after a crash, and no rows that nobody requested.
//!
//! Invariant: rows are identified by their date, which is unique in a run; the conditions check that a transaction is complete.

use std::collections::HashMap;

use anyhow::{Result, bail};

use super::super::ledger::{Account, Entry, Fact};
use super::audit::Marks;
use super::query::{instant, integers, micros, tune};
use super::{Check, CheckReport, Violations};
use bigiron_sql::database::Database;

/// The entries by date; those found in the database are ticked off.
struct EntriesByDate<'a> {
    entries: HashMap<i64, (&'a Fact, bool)>,
    /// Rows of the run that no entry explains.
    unasked: Violations,
}

impl EntriesByDate<'_> {
    /// Compares a row that represents a transaction with its entry.
    fn found(&mut self, date: i64, fact: &Fact, wrong: &mut Violations) {
        match self.entries.get_mut(&date) {
            Some((Fact::Unknown, _)) => {}
            Some((told, ticked)) if *told == fact => *ticked = true,
            Some((told, ticked)) => {
                *ticked = true;
                wrong.add(|| format!("acknowledged {told:?}, found {fact:?}"));
            }
            None => self.unasked.add(|| format!("{fact:?}")),
        }
    }

    /// Adds the acknowledged entries that were not found.
    fn lost(&self, of_kind: impl Fn(&Fact) -> bool, wrong: &mut Violations) {
        let mut lost: Vec<_> = self.entries.iter().filter(|(_, (fact, ticked))| !ticked && of_kind(fact)).collect();
        lost.sort_by_key(|(date, _)| **date);
        for (_, (fact, _)) in lost {
            wrong.add(|| format!("acknowledged and lost: {fact:?}"));
        }
    }
}

/// Checks the driver's ledger. If the driver was killed, as many unexplained transactions are allowed as were in flight; if it
/// survived, its entries cover those too.
///
/// # Errors
/// If the database refuses a query, or two entries have the same date.
pub fn prove(database: &mut dyn Database, since: &Marks, account: &Account) -> Result<CheckReport> {
    tune(database);
    let mut by_date =
        EntriesByDate { entries: HashMap::with_capacity(account.entries.len()), unasked: Violations::default() };
    for Entry { date, fact } in &account.entries {
        if by_date.entries.insert(*date, (fact, false)).is_some() {
            bail!("Two transactions of the ledger have the date {date}");
        }
    }
    let mut wrong: [Violations; 3] = Default::default();
    orders(database, since, &mut by_date, &mut wrong[0])?;
    payments(database, since, &mut by_date, &mut wrong[1])?;
    deliveries(database, since, &mut by_date, &mut wrong[2])?;
    by_date.lost(|fact| matches!(fact, Fact::NewOrder { .. }), &mut wrong[0]);
    by_date.lost(|fact| matches!(fact, Fact::Payment { .. }), &mut wrong[1]);
    by_date.lost(|fact| matches!(fact, Fact::Delivery { .. }), &mut wrong[2]);
    let [new_orders, payments, deliveries] = wrong;
    let mut unasked = by_date.unasked;
    unasked.count = unasked.count.saturating_sub(u64::from(account.in_flight));
    Ok(CheckReport { checks: checks(new_orders, payments, deliveries, unasked) })
}

fn checks(new_orders: Violations, payments: Violations, deliveries: Violations, unasked: Violations) -> Vec<Check> {
    vec![
        new_orders.check("acknowledged-new-orders", "every acknowledged new order is there"),
        payments.check("acknowledged-payments", "every acknowledged payment is there"),
        deliveries.check("acknowledged-deliveries", "every acknowledged delivery is there"),
        unasked.check("unasked", "nothing exists that was not acknowledged or in flight"),
    ]
}

fn orders(
    database: &mut dyn Database,
    since: &Marks,
    by_date: &mut EntriesByDate<'_>,
    wrong: &mut Violations,
) -> Result<()> {
    let marks = since.store(database)?;
    let date = micros(database.dialect(), "o_entry_d");
    for [warehouse] in integers(database, "SELECT w_id FROM warehouse ORDER BY w_id")? {
        let sql = format!(
            "SELECT o_d_id, o_id, o_c_id, o_ol_cnt, {date} FROM orders JOIN {marks} ON mw = o_w_id AND md = o_d_id AND o_id >= mo \
             WHERE o_w_id = {warehouse} AND o_id >= {}",
            since.least()
        );
        for [district, order, customer, lines, date] in integers(database, &sql)? {
            let [warehouse, district, order, customer, lines] = small([warehouse, district, order, customer, lines]);
            by_date.found(date, &Fact::NewOrder { warehouse, district, order, customer, lines }, wrong);
        }
    }
    Marks::forget(&marks, database)
}

fn payments(
    database: &mut dyn Database,
    since: &Marks,
    by_date: &mut EntriesByDate<'_>,
    wrong: &mut Violations,
) -> Result<()> {
    let dialect = database.dialect();
    let sql = format!(
        "SELECT {}, h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_amount FROM history WHERE h_date > {}",
        micros(dialect, "h_date"),
        instant(dialect, since.latest)
    );
    for [date, w, d, c_w, c_d, c, amount] in integers(database, &sql)? {
        let [warehouse, district, customer_warehouse, customer_district, customer, amount] =
            small([w, d, c_w, c_d, c, amount]);
        let fact = Fact::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount };
        by_date.found(date, &fact, wrong);
    }
    Ok(())
}

fn deliveries(
    database: &mut dyn Database,
    since: &Marks,
    by_date: &mut EntriesByDate<'_>,
    wrong: &mut Violations,
) -> Result<()> {
    let dialect = database.dialect();
    let sql = format!(
        "SELECT {}, ol_w_id, count(DISTINCT ol_d_id) FROM order_line WHERE ol_delivery_d > {} GROUP BY ol_delivery_d, ol_w_id",
        micros(dialect, "ol_delivery_d"),
        instant(dialect, since.latest)
    );
    for [date, warehouse, delivered] in integers(database, &sql)? {
        let [warehouse, delivered] = small([warehouse, delivered]);
        by_date.found(date, &Fact::Delivery { warehouse, delivered }, wrong);
    }
    Ok(())
}

/// Columns that are 32 bits wide or count rows of a district; a value that does not fit matches nothing acknowledged.
fn small<const N: usize>(numbers: [i64; N]) -> [u32; N] {
    numbers.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}
