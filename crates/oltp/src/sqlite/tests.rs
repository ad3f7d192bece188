use std::path::Path;
use std::time::Duration;

use super::super::check::digest;
use super::super::input::{Customer, OrderLine};
use super::super::scale::UNUSED_ITEM;
use super::*;
use bigiron_sql::database::{Database, SqlValue};
use bigiron_sql::sqlite::SqliteJournal;

const DATE: i64 = 5_000_000;

fn ask(engine: &mut Engine, input: Input) -> Output {
    engine.transact(&Request { input, date: DATE }).unwrap()
}

fn integers(engine: &mut Engine, sql: &str) -> Vec<Vec<i64>> {
    let integer = |value| match value {
        SqlValue::Integer(n) => n,
        SqlValue::Null => -1,
        SqlValue::Text(text) => panic!("{text}"),
    };
    engine.rows(sql).unwrap().into_iter().map(|row| row.into_iter().map(integer).collect()).collect()
}

fn text(engine: &mut Engine, sql: &str) -> String {
    match engine.rows(sql).unwrap().remove(0).remove(0) {
        SqlValue::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

fn line(item: u32, supply_warehouse: u32, quantity: u32) -> OrderLine {
    OrderLine { item, supply_warehouse, quantity }
}

#[test]
fn a_new_order_takes_lines_one_after_the_other() {
    let (_directory, mut engine) = fixture::engine(2);
    let quantity =
        |engine: &mut Engine| integers(engine, "SELECT s_quantity FROM stock WHERE s_w_id = 1 AND s_i_id = 9")[0][0];
    let before = quantity(&mut engine);
    let lines = vec![line(9, 1, 10), line(9, 1, 10), line(4, 2, 3), line(9, 1, 10), line(9, 1, 10), line(9, 1, 10)];
    let (w_tax, d_tax) = (311, 13 + 3 * 97);
    let discount = 7 * 161;
    let output = ask(&mut engine, Input::NewOrder { warehouse: 1, district: 3, customer: 7, lines });
    let sum = 50 * (100 + 9 * 37) + 3 * (100 + 4 * 37);
    assert_eq!(
        output,
        Output::NewOrder { order: 31, total: sum * (10_000 - discount) * (10_000 + w_tax + d_tax) / 100_000_000 }
    );

    let mut expected = before;
    for _ in 0..5 {
        expected = if expected - 10 >= 10 { expected - 10 } else { expected - 10 + 91 };
    }
    assert_eq!(quantity(&mut engine), expected);
    let stock = "SELECT s_ytd, s_order_cnt, s_remote_cnt FROM stock WHERE s_w_id";
    assert_eq!(integers(&mut engine, &format!("{stock} = 1 AND s_i_id = 9")), [[50, 5, 0]]);
    assert_eq!(integers(&mut engine, &format!("{stock} = 2 AND s_i_id = 4")), [[3, 1, 1]]);
    assert_eq!(integers(&mut engine, &format!("{stock} = 1 AND s_i_id = 4")), [[0, 0, 0]]);
    let order = "SELECT o_c_id, o_carrier_id, o_ol_cnt, o_all_local, o_entry_d FROM orders WHERE o_w_id = 1 AND o_d_id = 3 AND o_id = 31";
    assert_eq!(integers(&mut engine, order), [[7, -1, 6, 0, DATE]]);
    assert_eq!(
        integers(&mut engine, "SELECT no_o_id FROM new_order WHERE no_w_id = 1 AND no_d_id = 3 AND no_o_id > 30"),
        [[31]]
    );
    assert_eq!(integers(&mut engine, "SELECT d_next_o_id FROM district WHERE d_w_id = 1 AND d_id = 3"), [[32]]);
    let third = "FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 3 AND ol_o_id = 31 AND ol_number = 3";
    let columns = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d";
    assert_eq!(integers(&mut engine, &format!("{columns} {third}")), [[4, 2, 3, 3 * (100 + 4 * 37), -1]]);
    assert_eq!(text(&mut engine, &format!("SELECT ol_dist_info {third}")), "dist 3 of 4 in 2");
}

#[test]
fn an_order_of_an_unused_item_leaves_nothing_behind() {
    let (_directory, mut engine) = fixture::engine(1);
    let before = digest(&mut engine).unwrap();
    let lines = vec![line(1, 1, 1), line(2, 1, 1), line(3, 1, 1), line(4, 1, 1), line(UNUSED_ITEM, 1, 1)];
    let input = Input::NewOrder { warehouse: 1, district: 1, customer: 1, lines };
    assert_eq!(ask(&mut engine, input), Output::RolledBack);
    assert_eq!(digest(&mut engine).unwrap(), before);
}

#[test]
fn a_refused_transaction_leaves_nothing_behind() {
    let (_directory, mut engine) = fixture::engine(1);
    let before = digest(&mut engine).unwrap();
    // The item exists, but not in that warehouse.
    let lines = vec![line(1, 1, 1), line(1, 9, 1)];
    let new_order = Input::NewOrder { warehouse: 1, district: 1, customer: 1, lines };
    let payment = Input::Payment {
        warehouse: 1,
        district: 1,
        customer_warehouse: 1,
        customer_district: 1,
        customer: Customer::Id(4000),
        amount: 100,
    };
    for input in [new_order, payment] {
        let refused = engine.transact(&Request { input, date: DATE });
        assert!(matches!(refused, Err(TransactionError::Failed(_))), "{refused:?}");
    }
    assert_eq!(digest(&mut engine).unwrap(), before);
}

#[test]
fn a_payment_finds_the_customer_in_the_middle() {
    let (_directory, mut engine) = fixture::engine(2);
    let named = "SELECT c_id FROM customer WHERE c_w_id = 2 AND c_d_id = 5 AND c_last = 'BARBARBAR' ORDER BY c_first";
    let ids = integers(&mut engine, named);
    assert_eq!(ids.len(), 7);
    let expected = ids[3][0];
    let pay = |customer| Input::Payment {
        warehouse: 1,
        district: 4,
        customer_warehouse: 2,
        customer_district: 5,
        customer,
        amount: 12_345,
    };
    let columns =
        "SELECT c_balance, c_ytd_payment, c_payment_cnt FROM customer WHERE c_w_id = 2 AND c_d_id = 5 AND c_id";
    let before = integers(&mut engine, &format!("{columns} = {expected}"));
    let Output::Payment { customer, balance } = ask(&mut engine, pay(Customer::LastName(0))) else { panic!() };
    assert_eq!((i64::from(customer), balance), (expected, before[0][0] - 12_345));
    assert_eq!(integers(&mut engine, &format!("{columns} = {expected}")), [[balance, 13_345, 2]]);
    assert_eq!(integers(&mut engine, "SELECT w_ytd FROM warehouse ORDER BY w_id"), [[312_345], [300_000]]);
    assert_eq!(
        integers(&mut engine, "SELECT d_ytd FROM district WHERE d_w_id = 1 AND d_id IN (4, 5)"),
        [[42_345], [30_000]]
    );
    let paid =
        "SELECT h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_date FROM history WHERE h_date > 1000000";
    assert_eq!(integers(&mut engine, paid), [[expected, 5, 2, 4, 1, 12_345, DATE]]);
    assert_eq!(text(&mut engine, "SELECT h_data FROM history WHERE h_date > 1000000"), "W1    D4");

    // With bad credit: the payment is put before the old data, which are cut.
    let data = "SELECT c_data FROM customer WHERE c_w_id = 2 AND c_d_id = 5 AND c_id = 13";
    let old = text(&mut engine, data);
    ask(&mut engine, pay(Customer::Id(13)));
    let new = text(&mut engine, data);
    assert_eq!(new, format!("13 5 2 4 1 12345|{old}")[..492]);
    ask(&mut engine, pay(Customer::Id(13)));
    assert_eq!(text(&mut engine, data), format!("13 5 2 4 1 12345|{new}")[..500]);
}

#[test]
fn a_delivery_takes_the_oldest_order_of_each_district_that_has_one() {
    let (_directory, mut engine) = fixture::engine(1);
    Database::execute(&mut engine, "DELETE FROM new_order WHERE no_d_id = 6").unwrap();
    let customer = "SELECT c_balance, c_delivery_cnt FROM customer, orders WHERE o_d_id = 2 AND o_id = 22 AND c_d_id = 2 AND c_id = o_c_id";
    let before = integers(&mut engine, customer);
    let amount =
        integers(&mut engine, "SELECT sum(ol_amount) FROM order_line WHERE ol_d_id = 2 AND ol_o_id = 22")[0][0];
    assert_eq!(ask(&mut engine, Input::Delivery { warehouse: 1, carrier: 8 }), Output::Delivery { delivered: 9 });
    assert_eq!(integers(&mut engine, customer), [[before[0][0] + amount, 1]]);
    assert_eq!(
        integers(&mut engine, "SELECT o_carrier_id FROM orders WHERE o_d_id = 2 AND o_id IN (22, 23)"),
        [[8], [-1]]
    );
    assert_eq!(
        integers(&mut engine, "SELECT DISTINCT ol_delivery_d FROM order_line WHERE ol_d_id = 2 AND ol_o_id = 22"),
        [[DATE]]
    );
    assert_eq!(integers(&mut engine, "SELECT min(no_o_id) FROM new_order GROUP BY no_d_id"), [[23]; 9]);
}

#[test]
fn readers_say_what_is_there() {
    let (_directory, mut engine) = fixture::engine(1);
    let [order, lines] =
        integers(&mut engine, "SELECT o_id, o_ol_cnt FROM orders WHERE o_d_id = 1 AND o_c_id = 5")[0][..]
    else {
        panic!()
    };
    let status = Input::OrderStatus { warehouse: 1, district: 1, customer: Customer::Id(5) };
    let Output::OrderStatus { customer: 5, order: found, lines: counted, .. } = ask(&mut engine, status) else {
        panic!()
    };
    assert_eq!((i64::from(found), i64::from(counted)), (order, lines));
    let sql = "SELECT count(*) FROM stock WHERE s_quantity < 20 AND s_i_id IN \
               (SELECT ol_i_id FROM order_line WHERE ol_d_id = 1 AND ol_o_id BETWEEN 11 AND 30)";
    let expected = integers(&mut engine, sql)[0][0];
    assert!(expected > 0);
    let level = Input::StockLevel { warehouse: 1, district: 1, threshold: 20 };
    assert_eq!(ask(&mut engine, level), Output::StockLevel { low: expected as u32 });
}

#[test]
fn another_writer_is_waited_for_and_then_given_up() {
    let (directory, mut engine) = fixture::engine(1);
    let options = Options { busy: Duration::from_millis(1), ..Options::new(SqliteJournal::Wal) };
    let mut second = Engine::open_with(&directory.path().join("oltp.db"), &options).unwrap();
    Database::execute(&mut engine, "BEGIN IMMEDIATE").unwrap();
    let write = Request { input: Input::Delivery { warehouse: 1, carrier: 1 }, date: DATE };
    let read = Request { input: Input::StockLevel { warehouse: 1, district: 1, threshold: 15 }, date: DATE };
    assert!(matches!(second.transact(&write), Err(TransactionError::Retry(_))));
    second.transact(&read).unwrap();
    Database::execute(&mut engine, "ROLLBACK").unwrap();
    assert_eq!(second.transact(&write), Ok(Output::Delivery { delivered: 10 }));
}

/// Copies the files as a kill would leave them, during a transaction that has already written.
fn killed(journal: SqliteJournal) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("oltp.db");
    // A cache of a few pages must write before the commit.
    let options = Options { cache_bytes: 40 << 10, ..Options::new(journal) };
    let mut engine = Engine::open_with(&path, &options).unwrap();
    fixture::fill(&mut engine, 1);
    for request in fixture::requests(40, 1) {
        engine.transact(&request).unwrap();
    }
    let committed = digest(&mut engine).unwrap();
    Database::execute(
        &mut engine,
        "BEGIN IMMEDIATE; UPDATE stock SET s_quantity = s_quantity + 1, s_data = s_data || 'x'",
    )
    .unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut journals = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        journals += u32::from(name.ends_with("-wal") || name.ends_with("-journal"));
        // The shared-memory file is created again after a kill.
        if !name.ends_with("-shm") {
            std::fs::copy(entry.path(), copy.path().join(name)).unwrap();
        }
    }
    assert_eq!(journals, 1);
    Database::execute(&mut engine, "ROLLBACK").unwrap();
    let mut recovered = Engine::open(&copy.path().join("oltp.db"), journal).unwrap();
    assert_eq!(digest(&mut recovered).unwrap(), committed);
    assert_eq!(text(&mut recovered, "PRAGMA integrity_check"), "ok");
}

#[test]
fn the_write_ahead_log_recovers_what_was_committed() {
    killed(SqliteJournal::Wal);
}

#[test]
fn the_rollback_journal_undoes_what_was_not() {
    killed(SqliteJournal::Rollback);
}

#[test]
fn facts_are_what_sqlite_says() {
    let directory = tempfile::tempdir().unwrap();
    for (journal, name) in [(SqliteJournal::Wal, "wal"), (SqliteJournal::Rollback, "delete")] {
        let options = Options { cache_bytes: 10 << 20, ..Options::new(journal) };
        let engine = Engine::open_with(&directory.path().join(name), &options).unwrap();
        assert_eq!((engine.facts().journal.as_str(), engine.facts().cache_bytes), (name, 10 << 20));
    }
    assert!(
        Engine::open(Path::new(":memory:"), SqliteJournal::Wal).err().unwrap().to_string().contains("journal_mode=wal")
    );
}

#[test]
fn both_journals_leave_the_same_rows() {
    let digests = [SqliteJournal::Wal, SqliteJournal::Rollback].map(|journal| {
        let directory = tempfile::tempdir().unwrap();
        let mut engine = Engine::open(&directory.path().join("oltp.db"), journal).unwrap();
        fixture::fill(&mut engine, 2);
        let outputs: Vec<_> =
            fixture::requests(60, 2).iter().map(|request| engine.transact(request).unwrap()).collect();
        (outputs, digest(&mut engine).unwrap())
    });
    assert_eq!(digests[0], digests[1]);
}
