use super::super::input::{Input, Request};
use super::super::ledger::{Account, Entry, Fact};
use super::super::output::Output;
use super::super::sqlite::{Engine, Transact as _, fixture};
use super::conditions::of_load;
use super::*;
use bigiron_sql::database::Database;

/// Delivered orders of each district of the fixture.
pub(super) const DELIVERED: i64 = fixture::FIRST_NEW_ORDER as i64 - 1;

pub(super) fn failed(report: &CheckReport) -> Vec<&'static str> {
    report.failures().map(|check| check.name).collect()
}

/// Plants a violation and returns the conditions that detect it, once right after load and once after work on the database.
fn caught(sql: &str) -> Vec<&'static str> {
    let (_directory, mut engine) = fixture::engine(2);
    assert_eq!(failed(&of_load(&mut engine, Some(DELIVERED)).unwrap()), [""; 0]);
    Database::execute(&mut engine, sql).unwrap();
    let report = of_load(&mut engine, Some(DELIVERED)).unwrap();
    for check in report.failures() {
        let CheckOutcome::Violations { count, examples } = &check.outcome else { panic!("{check}") };
        assert!(*count > 0 && !examples.is_empty() && examples.len() <= 3, "{check}");
    }
    failed(&report)
}

pub(super) fn work(engine: &mut Engine, count: u32) -> Vec<Output> {
    fixture::requests(count, 2).iter().map(|request| engine.transact(request).unwrap()).collect()
}

/// A violation, planted in a consistent database, and the conditions that must detect it.
pub(super) const PLANTED: &[(&str, &[&str])] = &[
    // W_YTD alone: against the districts and against the payments.
    ("UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 2", &["condition-1", "condition-8"]),
    // A cent moved from one district to another: the warehouse's sum is unchanged.
    (
        "UPDATE district SET d_ytd = d_ytd + CASE d_id WHEN 1 THEN 1 ELSE -1 END WHERE d_w_id = 1 AND d_id IN (1, 2)",
        &["condition-9"],
    ),
    (
        "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1; UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1",
        &["condition-8", "condition-9"],
    ),
    ("UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 1 AND d_id = 1", &["condition-1", "condition-9"]),
    ("UPDATE district SET d_next_o_id = 32 WHERE d_w_id = 2 AND d_id = 10", &["condition-2"]),
    // The last order of a district is delivered before earlier ones.
    (
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 30",
        &["condition-2", "condition-5", "condition-11"],
    ),
    // One in the middle: leaves a gap.
    (
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 25",
        &["condition-3", "condition-5", "condition-11"],
    ),
    // A new order without an order, not contiguous with the others.
    ("INSERT INTO new_order VALUES (1, 1, 21)", &["condition-5", "condition-11"]),
    ("INSERT INTO new_order VALUES (1, 1, 99)", &["condition-2", "condition-3", "condition-5", "condition-11"]),
    ("INSERT INTO order_line VALUES (1, 1, 99, 1, 1, 1, 5, 10, NULL, '')", &["condition-4"]),
    (
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + CASE o_id WHEN 3 THEN 1 ELSE -1 END WHERE o_w_id = 1 AND o_d_id = 4 AND o_id IN (3, 4)",
        &["condition-6"],
    ),
    (
        "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = 29 AND ol_number = 1",
        &["condition-4", "condition-6"],
    ),
    ("DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = 29", &["condition-4", "condition-6"]),
    (
        "UPDATE order_line SET ol_amount = 0, ol_delivery_d = (SELECT max(h_date) FROM history) WHERE ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = 29",
        &["condition-7"],
    ),
    (
        "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = 9 AND ol_number = 2",
        &["condition-7", "condition-10", "condition-12"],
    ),
    (
        "UPDATE orders SET o_carrier_id = 3 WHERE o_w_id = 1 AND o_d_id = 4 AND o_id = 29",
        &["condition-5", "condition-7"],
    ),
    (
        "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 4 AND o_id = 9",
        &["condition-5", "condition-7"],
    ),
    // A payment that is lost for its customer, but kept where it was made.
    ("UPDATE history SET h_c_id = 30 WHERE h_c_id = 29 AND h_c_d_id = 3", &["condition-10"]),
    ("UPDATE history SET h_c_id = 31 WHERE h_c_id = 29 AND h_c_d_id = 3", &["condition-10"]),
    (
        "DELETE FROM history WHERE h_c_id = 29 AND h_c_d_id = 3 AND h_c_w_id = 1",
        &["condition-8", "condition-9", "condition-10"],
    ),
    (
        "UPDATE customer SET c_balance = c_balance + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        &["condition-10", "condition-12"],
    ),
    ("UPDATE customer SET c_ytd_payment = 999 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1", &["condition-12"]),
    ("UPDATE orders SET o_c_id = 31 WHERE o_w_id = 1 AND o_d_id = 4 AND o_id = 9", &["condition-10", "condition-12"]),
    // Delivered in order, but not right after load.
    (
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 22; \
         UPDATE orders SET o_carrier_id = 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 22; \
         UPDATE order_line SET ol_amount = 0, ol_delivery_d = (SELECT max(h_date) FROM history) WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 22",
        &["condition-11"],
    ),
    // Rows of a district that does not exist.
    ("DELETE FROM district WHERE d_w_id = 1 AND d_id = 1", &["condition-1", "condition-2", "condition-9"]),
];

#[test]
fn each_condition_catches_its_violation() {
    for (sql, conditions) in PLANTED {
        assert_eq!(caught(sql), *conditions, "{sql}");
    }
}

#[test]
fn violations_are_counted_and_the_first_three_shown() {
    let (_directory, mut engine) = fixture::engine(2);
    Database::execute(&mut engine, "UPDATE customer SET c_ytd_payment = 1 WHERE c_w_id = 2").unwrap();
    let report = of_load(&mut engine, None).unwrap();
    let text: Vec<String> = report.failures().map(Check::to_string).collect();
    assert_eq!(
        text,
        [
            "condition-12: FAILED, 300 times (C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT delivered)): warehouse 2, district 1, customer 1; \
          warehouse 2, district 1, customer 2; warehouse 2, district 1, customer 3"
        ]
    );
    assert_eq!(report.checks[10].outcome, CheckOutcome::Skipped("it holds only right after load"));
}

#[test]
fn all_conditions_hold_after_work_and_in_empty_districts() {
    let (_directory, mut engine) = fixture::engine(2);
    work(&mut engine, 400);
    let [waiting] = query::integer_row(&mut engine, "SELECT count(*) FROM new_order").unwrap();
    assert!(conditions(&mut engine, false).unwrap().passed());
    // Deliver until nothing waits.
    for date in 0..waiting {
        let input = Input::Delivery { warehouse: 1 + (date % 2) as u32, carrier: 1 };
        engine.transact(&Request { input, date: 10_000_000 + date }).unwrap();
    }
    assert_eq!(query::integer_row(&mut engine, "SELECT count(*) FROM new_order").unwrap(), [0]);
    assert_eq!(failed(&conditions(&mut engine, false).unwrap()), [""; 0]);
}

#[test]
fn nothing_holds_of_nothing() {
    let (_directory, mut engine) = fixture::engine(0);
    assert!(conditions(&mut engine, false).unwrap_err().to_string().contains("No warehouse"));
    assert!(Marks::take(&mut engine).is_err());
}

/// A run of this many orders, of which `remote` lines and `remote` payments go to other warehouses, without transactions.
fn planted(orders: u32, remote_lines: u32, remote_payments: u32, customer: &str) -> CheckReport {
    let (_directory, mut engine) = fixture::engine(2);
    let marks = Marks::take(&mut engine).unwrap();
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {orders}) \
         INSERT INTO orders SELECT 1 + i % 2, 1, 31 + i, {customer}, NULL, 10, 1, 3000000 + i FROM n; \
         INSERT INTO order_line SELECT o_w_id, o_d_id, o_id, s_i_id, 1, CASE WHEN (o_id - 31) * 10 + s_i_id <= {remote_lines} THEN 3 - o_w_id ELSE o_w_id END, \
         5, 100, NULL, '' FROM orders, stock WHERE o_entry_d >= 3000000 AND s_w_id = 1 AND s_i_id <= 10; \
         INSERT INTO history SELECT 1, 1, CASE WHEN o_id - 31 < {remote_payments} THEN 3 - o_w_id ELSE o_w_id END, 1, o_w_id, 100, o_entry_d, '' \
         FROM orders WHERE o_entry_d >= 3000000"
    );
    Database::execute(&mut engine, &sql).unwrap();
    audit(&mut engine, &marks).unwrap()
}

/// Draws like NURand(1023, 1, 3000) with C = 77, from hashed numbers.
const SKEWED: &str = "1 + (((i * 7919 % 1024) | (1 + i * 104729 / 1024 % 3000)) + 77) % 3000";

#[test]
fn the_audit_judges_what_was_added() {
    let report = planted(3000, 300, 450, SKEWED);
    assert_eq!(failed(&report), [""; 0], "{:#?}", report.checks);
    let shares: Vec<_> =
        report.checks.iter().filter(|c| matches!(c.outcome, CheckOutcome::Share { .. })).map(|c| c.name).collect();
    assert_eq!(shares, ["remote-lines", "remote-payments", "customer-skew"]);
    assert_eq!(failed(&planted(3000, 0, 450, SKEWED)), ["remote-lines"]);
    assert_eq!(failed(&planted(3000, 600, 450, SKEWED)), ["remote-lines"]);
    assert_eq!(failed(&planted(3000, 300, 0, SKEWED)), ["remote-payments"]);
    assert_eq!(failed(&planted(3000, 300, 900, SKEWED)), ["remote-payments"]);
    assert_eq!(failed(&planted(3000, 300, 450, "1 + i % 3000")), ["customer-skew"]);
    let few = planted(20, 0, 0, "1");
    assert!(few.passed());
    assert_eq!(few.checks.iter().filter(|c| matches!(c.outcome, CheckOutcome::TooFew { .. })).count(), 3);
}

#[test]
fn the_audit_sees_rows_that_no_run_may_add() {
    for (sql, name) in [
        ("INSERT INTO orders VALUES (1, 1, 31, 1, NULL, 16, 1, 2000000)", "order-size"),
        ("INSERT INTO orders VALUES (1, 1, 31, 1, NULL, 4, 1, 2000000)", "order-size"),
        ("INSERT INTO order_line VALUES (1, 1, 31, 1, 1, 3, 5, 100, NULL, '')", "suppliers"),
        ("INSERT INTO history VALUES (1, 1, 1, 1, 1, 100, 1000000, '')", "dates"),
    ] {
        let (_directory, mut engine) = fixture::engine(2);
        let marks = Marks::take(&mut engine).unwrap();
        assert!(audit(&mut engine, &marks).unwrap().passed());
        Database::execute(&mut engine, sql).unwrap();
        assert_eq!(failed(&audit(&mut engine, &marks).unwrap()), [name], "{sql}");
    }
}

#[test]
fn one_warehouse_has_no_others() {
    let (_directory, mut engine) = fixture::engine(1);
    let marks = Marks::take(&mut engine).unwrap();
    let report = audit(&mut engine, &marks).unwrap();
    assert!(matches!(report.checks[0].outcome, CheckOutcome::Skipped(_)));
    assert!(matches!(report.checks[1].outcome, CheckOutcome::Skipped(_)));
}

#[test]
fn the_server_counts_new_orders() {
    let (_directory, mut engine) = fixture::engine(2);
    let before = server_new_orders(&mut engine).unwrap();
    assert_eq!(before, 20 * 31);
    let outputs = work(&mut engine, 100);
    let committed = outputs.iter().filter(|output| matches!(output, Output::NewOrder { .. })).count();
    assert!(outputs.contains(&Output::RolledBack) && committed > 0);
    assert_eq!(server_new_orders(&mut engine).unwrap() - before, committed as u64);
}

#[test]
fn sums_are_exact() {
    let (_directory, mut engine) = fixture::engine(2);
    let before = sums(&mut engine).unwrap();
    assert_eq!(before[1], TableSum { table: "warehouse", rows: 2, sums: vec![("w_ytd", 600_000)] });
    assert_eq!(before[7].rows, 2 * 10 * 9);
    let [dated] = query::integer_row(&mut engine, "SELECT count(*) FROM order_line WHERE ol_o_id < 22").unwrap();
    assert_eq!(before[8].sums[2], ("ol_delivery_d", dated));
    work(&mut engine, 50);
    assert_ne!(sums(&mut engine).unwrap(), before);
}

#[test]
fn a_digest_sees_every_value_and_no_order() {
    let (_first, mut one) = fixture::engine(2);
    let (_second, mut two) = fixture::engine(2);
    let before = digest(&mut one).unwrap();
    // The same rows at other places in the file.
    Database::execute(
        &mut two,
        "CREATE TEMP TABLE old AS SELECT * FROM history ORDER BY h_c_id DESC; DELETE FROM history; INSERT INTO history SELECT * FROM old",
    )
    .unwrap();
    assert_eq!(digest(&mut two).unwrap(), before);
    for (index, sql) in [
        (0, "UPDATE item SET i_data = i_data || ' ' WHERE i_id = 7"),
        (3, "UPDATE stock SET s_dist_10 = 'x' WHERE s_w_id = 2 AND s_i_id = 3"),
        (5, "INSERT INTO history SELECT * FROM history WHERE h_c_w_id = 1 AND h_c_d_id = 1 AND h_c_id = 1"),
        (
            6,
            "UPDATE orders SET o_carrier_id = 0 WHERE o_carrier_id IS NULL AND o_w_id = 1 AND o_d_id = 1 AND o_id = 30",
        ),
        // A row in an unexpected place.
        (7, "INSERT INTO new_order VALUES (77, 1, 1)"),
        (
            8,
            "UPDATE order_line SET ol_delivery_d = ol_delivery_d + 1 WHERE ol_w_id = 1 AND ol_d_id = 11 - 1 AND ol_o_id = 1 AND ol_number = 1",
        ),
    ] {
        let before = digest(&mut one).unwrap();
        Database::execute(&mut one, sql).unwrap();
        let after = digest(&mut one).unwrap();
        let changed: Vec<usize> = (0..before.len()).filter(|i| before[*i] != after[*i]).collect();
        assert_eq!(changed, [index], "{sql}");
    }
}

/// A database after a run, its ledger, and the marks before.
pub(super) fn ledger_of_a_run() -> (tempfile::TempDir, Engine, Marks, Account) {
    let (directory, mut engine) = fixture::engine(2);
    let marks = Marks::take(&mut engine).unwrap();
    let mut account = Account { in_flight: 0, entries: Vec::new() };
    for request in fixture::requests(200, 2) {
        let output = engine.transact(&request).unwrap();
        account.entries.extend(Entry::answered(&request, &output));
    }
    (directory, engine, marks, account)
}

#[test]
fn the_ledger_proves_what_is_there() {
    let (_directory, mut engine, marks, account) = ledger_of_a_run();
    assert!(account.entries.len() > 100);
    assert_eq!(failed(&prove(&mut engine, &marks, &account).unwrap()), [""; 0]);
}

#[test]
fn the_ledger_finds_what_was_lost() {
    for (sql, name) in [
        ("DELETE FROM orders WHERE o_w_id = 1 AND o_d_id = 3 AND o_id = 32", "acknowledged-new-orders"),
        ("UPDATE orders SET o_ol_cnt = 20 WHERE o_w_id = 1 AND o_d_id = 3 AND o_id = 32", "acknowledged-new-orders"),
        ("DELETE FROM history WHERE h_date = (SELECT max(h_date) FROM history)", "acknowledged-payments"),
        (
            "UPDATE history SET h_amount = h_amount + 1 WHERE h_date = (SELECT max(h_date) FROM history)",
            "acknowledged-payments",
        ),
        (
            "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_delivery_d > 1000000 AND ol_d_id = 4",
            "acknowledged-deliveries",
        ),
        ("UPDATE order_line SET ol_delivery_d = NULL WHERE ol_delivery_d > 1000000", "acknowledged-deliveries"),
    ] {
        let (_directory, mut engine, marks, account) = ledger_of_a_run();
        Database::execute(&mut engine, sql).unwrap();
        assert_eq!(failed(&prove(&mut engine, &marks, &account).unwrap()), [name], "{sql}");
    }
}

#[test]
fn the_ledger_finds_what_nobody_asked_for() {
    let (_directory, mut engine, marks, mut account) = ledger_of_a_run();
    // The driver was killed before it had written the last three.
    let cut = account.entries.split_off(account.entries.len() - 3);
    assert_eq!(failed(&prove(&mut engine, &marks, &account).unwrap()), ["unasked"]);
    account.in_flight = 2;
    assert_eq!(failed(&prove(&mut engine, &marks, &account).unwrap()), ["unasked"]);
    account.in_flight = 3;
    assert_eq!(failed(&prove(&mut engine, &marks, &account).unwrap()), [""; 0]);
    // Or it survived, and knows that they are unknown.
    account.in_flight = 0;
    account.entries.extend(cut.iter().map(|entry| Entry { fact: Fact::Unknown, ..*entry }));
    assert_eq!(failed(&prove(&mut engine, &marks, &account).unwrap()), [""; 0]);
    account.entries.push(cut[0]);
    assert!(prove(&mut engine, &marks, &account).unwrap_err().to_string().contains("date"));
}
