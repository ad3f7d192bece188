//! Outgoing messages, and a simulated server: no real server is needed here.

use std::collections::HashSet;

use bytes::BytesMut;

use crate::config::Mode;
use crate::input::{Customer, Input, OrderLine, Request};
use crate::output::{Output, TransactionError};
use crate::scale::UNUSED_ITEM;
use bigiron_sql::pg::Message;

use super::call::{Call, Messages};
use super::statements::Statement;
use crate::driver::NextStep;

const MODES: [Mode; 3] = [Mode::Procedures, Mode::Pipelined, Mode::RoundTrips];

fn line(item: u32, supply_warehouse: u32, quantity: u32) -> OrderLine {
    OrderLine { item, supply_warehouse, quantity }
}

fn new_order(lines: Vec<OrderLine>) -> Request {
    Request { input: Input::NewOrder { warehouse: 1, district: 2, customer: 3, lines }, date: 77 }
}

fn requests() -> Vec<Request> {
    let customers = [Customer::Id(9), Customer::LastName(371)];
    let mut inputs = vec![
        Input::NewOrder {
            warehouse: 1,
            district: 2,
            customer: 3,
            lines: vec![line(4, 1, 5), line(2, 2, 6), line(7, 1, 8)],
        },
        Input::NewOrder { warehouse: 1, district: 2, customer: 3, lines: vec![line(4, 1, 5), line(4, 1, 6)] },
        Input::NewOrder { warehouse: 1, district: 2, customer: 3, lines: vec![line(4, 1, 5), line(UNUSED_ITEM, 1, 6)] },
        Input::Delivery { warehouse: 1, carrier: 10 },
        Input::StockLevel { warehouse: 1, district: 2, threshold: 15 },
    ];
    for customer in customers {
        inputs.push(Input::OrderStatus { warehouse: 1, district: 2, customer });
        inputs.push(Input::Payment {
            warehouse: 1,
            district: 2,
            customer_warehouse: 3,
            customer_district: 4,
            customer,
            amount: 500_000,
        });
    }
    inputs.into_iter().map(|input| Request { input, date: 77 }).collect()
}

/// Tag and body of each message of a client.
fn messages(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let Some((&tag, rest)) = bytes.split_first() {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        found.push((tag, &rest[4..length]));
        bytes = &rest[length..];
    }
    found
}

/// Statement and parameters of a Bind.
fn bound(body: &[u8]) -> (&str, Vec<Option<&[u8]>>) {
    assert_eq!(body[0], 0, "the unnamed portal");
    let end = 1 + body[1..].iter().position(|&b| b == 0).unwrap();
    let name = std::str::from_utf8(&body[1..end]).unwrap();
    let mut rest = &body[end + 1..];
    assert_eq!(rest[..4], [0, 1, 0, 1], "all parameters binary");
    let count = u16::from_be_bytes(rest[4..6].try_into().unwrap());
    rest = &rest[6..];
    let mut values = Vec::new();
    for _ in 0..count {
        let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
        rest = &rest[4..];
        if length < 0 {
            values.push(None);
        } else {
            let (value, after) = rest.split_at(length as usize);
            values.push(Some(value));
            rest = after;
        }
    }
    assert_eq!(rest, [0, 1, 0, 1], "all results binary");
    (name, values)
}

fn script(mode: Mode, request: &Request) -> (Vec<Statement>, BytesMut) {
    let mut out = BytesMut::new();
    let steps = Messages::of(mode, request, &mut out).steps;
    (steps, out)
}

#[test]
fn every_name_is_prepared_once() {
    for mode in MODES {
        let names: HashSet<&str> = Statement::of(mode).iter().map(|s| s.name()).collect();
        assert_eq!(names.len(), Statement::of(mode).len());
    }
}

#[test]
fn parameters_are_as_many_as_the_text_has_and_as_were_declared() {
    for statement in MODES.iter().flat_map(|&mode| Statement::of(mode)) {
        let highest = (1..=20).rev().find(|n| statement.sql().contains(&format!("${n}"))).unwrap_or(0);
        assert_eq!(highest, statement.types().len(), "{statement:?}");
    }
}

#[test]
fn what_is_bound_was_prepared_with_such_parameters() {
    for mode in MODES {
        for request in requests() {
            let (steps, out) = script(mode, &request);
            let all = messages(&out);
            let binds: Vec<_> = all.iter().filter(|(tag, _)| *tag == b'B').map(|(_, body)| bound(body)).collect();
            assert_eq!(binds.len(), steps.len());
            for (step, (name, values)) in steps.iter().zip(binds) {
                assert!(Statement::of(mode).contains(step), "{step:?} in {mode:?}");
                assert_eq!(step.name(), name);
                assert_eq!(step.types().len(), values.len(), "{step:?}");
            }
            let syncs = all.iter().filter(|(tag, _)| *tag == b'S').count();
            assert_eq!(syncs, if mode == Mode::RoundTrips { steps.len() } else { 1 });
            assert_eq!(all.last().unwrap().0, b'S');
        }
    }
}

#[test]
fn pipelined_and_round_trips_have_the_same_statements() {
    for request in requests() {
        let binds = |mode| {
            let (_, out) = script(mode, &request);
            messages(&out).into_iter().filter(|(tag, _)| *tag != b'S').map(|(t, b)| (t, b.to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(binds(Mode::Pipelined), binds(Mode::RoundTrips));
    }
}

#[test]
fn lines_go_in_the_order_of_their_locks_and_keep_their_numbers() {
    let request = new_order(vec![line(9, 2, 1), line(5, 1, 2), line(9, 1, 3), line(5, 1, 4)]);
    let (steps, out) = script(Mode::Pipelined, &request);
    let lines: Vec<Vec<u32>> = messages(&out)
        .iter()
        .filter(|(tag, _)| *tag == b'B')
        .map(|(_, body)| bound(body))
        .filter(|(name, _)| *name == Statement::InsertLine.name())
        .map(|(_, values)| values.iter().map(|v| u32::from_be_bytes(v.unwrap().try_into().unwrap())).collect())
        .collect();
    // Warehouse, district, number, supply warehouse, item, quantity.
    assert_eq!(lines, [[1, 2, 2, 1, 5, 2], [1, 2, 4, 1, 5, 4], [1, 2, 3, 1, 9, 3], [1, 2, 1, 2, 9, 1]]);
    assert_eq!(steps.iter().filter(|s| **s == Statement::TakeStock).count(), 4);
}

#[test]
fn stock_that_is_named_twice_is_taken_line_by_line() {
    let call = |lines| script(Mode::Procedures, &new_order(lines)).0;
    assert_eq!(call(vec![line(5, 1, 2), line(5, 2, 2), line(6, 1, 2)]), [Statement::CallNewOrder]);
    assert_eq!(call(vec![line(5, 1, 2), line(6, 1, 2), line(5, 1, 3)]), [Statement::CallNewOrderByLine]);
}

#[test]
fn an_unused_item_ends_in_a_rollback() {
    let good = new_order(vec![line(5, 1, 2), line(6, 1, 1)]);
    let bad = new_order(vec![line(5, 1, 2), line(UNUSED_ITEM, 1, 1)]);
    let (good, bad) = (script(Mode::RoundTrips, &good).0, script(Mode::RoundTrips, &bad).0);
    assert_eq!(good.len(), bad.len(), "the work is the same");
    assert_eq!(good.last(), Some(&Statement::Commit));
    assert_eq!(bad.last(), Some(&Statement::Rollback));
}

/// A server's messages, under construction.
#[derive(Default)]
struct Said(Vec<u8>);

impl Said {
    fn message(mut self, tag: u8, body: &[u8]) -> Said {
        self.0.push(tag);
        self.0.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        self.0.extend_from_slice(body);
        self
    }

    fn row(self, integers: &[i32]) -> Said {
        let mut body = (integers.len() as u16).to_be_bytes().to_vec();
        for value in integers {
            body.extend_from_slice(&4_i32.to_be_bytes());
            body.extend_from_slice(&value.to_be_bytes());
        }
        self.message(b'D', &body)
    }

    fn pair(self, pair: [i64; 2]) -> Said {
        let mut array = Vec::new();
        for part in [1_i32, 0, 20, 2, 1] {
            array.extend_from_slice(&part.to_be_bytes());
        }
        for value in pair {
            array.extend_from_slice(&8_i32.to_be_bytes());
            array.extend_from_slice(&value.to_be_bytes());
        }
        let mut body = vec![0, 1];
        body.extend_from_slice(&(array.len() as i32).to_be_bytes());
        body.extend_from_slice(&array);
        self.message(b'D', &body)
    }

    fn done(self, tag: &str) -> Said {
        let said = self.message(b'2', b"");
        said.message(b'C', format!("{tag}\0").as_bytes())
    }

    fn error(self, sqlstate: &str) -> Said {
        self.message(b'E', format!("SERROR\0C{sqlstate}\0Mno luck\0\0").as_bytes())
    }

    fn ready(self, status: u8) -> Said {
        self.message(b'Z', &[status])
    }

    /// Passes all messages to a call; returns its reaction to the last. Before that it must have waited.
    fn to(self, call: &mut Call) -> NextStep {
        let mut rest = &self.0[..];
        loop {
            let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize + 1;
            let step = call.receive(&Message::parse(&rest[..length]).unwrap());
            rest = &rest[length..];
            if rest.is_empty() {
                return step;
            }
            assert_eq!(step, NextStep::Wait);
        }
    }
}

fn begin(mode: Mode, request: &Request) -> (Call, BytesMut) {
    let mut out = BytesMut::new();
    (Call::begin(mode, request, &mut out), out)
}

fn statements_sent(out: &[u8]) -> Vec<String> {
    messages(out).iter().filter(|(tag, _)| *tag == b'B').map(|(_, body)| bound(body).0.to_owned()).collect()
}

fn two_lines() -> Request {
    new_order(vec![line(5, 1, 2), line(6, 1, 1)])
}

#[test]
fn a_function_answers() {
    let (mut call, _) = begin(Mode::Procedures, &two_lines());
    let step = Said::default().pair([3001, 123_456]).done("SELECT 1").ready(b'I').to(&mut call);
    assert_eq!(step, NextStep::Done(Ok(Output::NewOrder { order: 3001, total: 123_456 })));
}

#[test]
fn a_pipeline_answers_and_the_client_computes_the_total() {
    let (mut call, _) = begin(Mode::Pipelined, &two_lines());
    let said = Said::default().done("BEGIN").row(&[3001, 700]).done("UPDATE 1").row(&[1300]).done("SELECT 1");
    let said = said.row(&[2500]).done("SELECT 1").done("INSERT 0 1").done("INSERT 0 1");
    let said = said.row(&[40]).done("UPDATE 1").row(&[1001]).done("INSERT 0 1");
    let said = said.row(&[40]).done("UPDATE 1").row(&[3]).done("INSERT 0 1").done("COMMIT").ready(b'I');
    // 1004 x 0.75 x 1.2 = 903.6
    assert_eq!(said.to(&mut call), NextStep::Done(Ok(Output::NewOrder { order: 3001, total: 903 })));
}

#[test]
fn a_missing_item_is_no_success() {
    let (mut call, _) = begin(Mode::Pipelined, &two_lines());
    let said = Said::default().done("BEGIN").row(&[3001, 700]).done("UPDATE 1").row(&[1300]).done("SELECT 1");
    let said = said.row(&[2500]).done("SELECT 1").done("INSERT 0 1").done("INSERT 0 1");
    let said = said.row(&[40]).done("UPDATE 1").row(&[1001]).done("INSERT 0 1");
    let said = said.done("UPDATE 0").done("INSERT 0 0").done("COMMIT").ready(b'I');
    assert!(matches!(said.to(&mut call), NextStep::Done(Err(TransactionError::Failed(_)))));
}

#[test]
fn the_functions_own_error_is_a_rollback_only_where_one_is_due() {
    let unused = new_order(vec![line(5, 1, 2), line(UNUSED_ITEM, 1, 1)]);
    let (mut call, _) = begin(Mode::Procedures, &unused);
    assert_eq!(Said::default().error("BG001").ready(b'I').to(&mut call), NextStep::Done(Ok(Output::RolledBack)));
    let (mut call, _) = begin(Mode::Procedures, &unused);
    assert!(matches!(
        Said::default().error("23505").ready(b'I').to(&mut call),
        NextStep::Done(Err(TransactionError::Failed(_)))
    ));
    let (mut call, _) = begin(Mode::Procedures, &two_lines());
    assert!(matches!(
        Said::default().error("BG001").ready(b'I').to(&mut call),
        NextStep::Done(Err(TransactionError::Failed(text))) if text.contains("BG001")
    ));
    let (mut call, _) = begin(Mode::Procedures, &unused);
    let taken = Said::default().pair([3001, 5]).done("SELECT 1").ready(b'I').to(&mut call);
    assert!(matches!(taken, NextStep::Done(Err(TransactionError::Failed(_)))), "an order that had to be refused");
}

#[test]
fn a_deadlock_in_a_pipeline_is_rolled_back_and_to_be_tried_again() {
    let (mut call, _) = begin(Mode::Pipelined, &two_lines());
    assert_eq!(Said::default().done("BEGIN").error("40P01").ready(b'E').to(&mut call), NextStep::Send);
    let mut out = BytesMut::new();
    call.send(&mut out);
    assert_eq!(statements_sent(&out), ["rollback"]);
    let step = Said::default().done("ROLLBACK").ready(b'I').to(&mut call);
    assert!(matches!(step, NextStep::Done(Err(TransactionError::Retry(text))) if text.contains("40P01")));
}

#[test]
fn round_trips_send_one_statement_at_a_time() {
    let request = Request { input: Input::StockLevel { warehouse: 1, district: 2, threshold: 15 }, date: 0 };
    let (mut call, out) = begin(Mode::RoundTrips, &request);
    assert_eq!(statements_sent(&out), ["snapshot"]);
    let mut next = |said: Said, status| {
        assert_eq!(said.ready(status).to(&mut call), NextStep::Send);
        let mut out = BytesMut::new();
        call.send(&mut out);
        assert_eq!(messages(&out).last().unwrap().0, b'S');
        statements_sent(&out)
    };
    assert_eq!(next(Said::default().done("BEGIN"), b'T'), ["s_next"]);
    assert_eq!(next(Said::default().row(&[3001]).done("SELECT 1"), b'T'), ["s_low"]);
    assert_eq!(next(Said::default().row(&[12]).done("SELECT 1"), b'T'), ["commit"]);
    let step = Said::default().done("COMMIT").ready(b'I').to(&mut call);
    assert_eq!(step, NextStep::Done(Ok(Output::StockLevel { low: 12 })));
}

#[test]
fn round_trips_stop_at_an_error_and_close_the_transaction() {
    for (first, sent_after_begin) in [(Said::default().error("40001"), true), (Said::default().done("UPDATE 0"), false)]
    {
        let (mut call, _) = begin(Mode::RoundTrips, &two_lines());
        assert_eq!(Said::default().done("BEGIN").ready(b'T').to(&mut call), NextStep::Send);
        call.send(&mut BytesMut::new());
        let status = if sent_after_begin { b'E' } else { b'T' };
        assert_eq!(first.ready(status).to(&mut call), NextStep::Send);
        let mut out = BytesMut::new();
        call.send(&mut out);
        assert_eq!(statements_sent(&out), ["rollback"]);
        let NextStep::Done(Err(error)) = Said::default().done("ROLLBACK").ready(b'I').to(&mut call) else {
            panic!("no error")
        };
        assert_eq!(matches!(error, TransactionError::Retry(_)), sent_after_begin, "{error}");
    }
}

#[test]
fn a_lost_connection_tells_what_the_server_said() {
    let (mut call, _) = begin(Mode::Procedures, &two_lines());
    assert_eq!(Said::default().error("57P01").to(&mut call), NextStep::Wait);
    assert!(matches!(call.lost("end of stream"), TransactionError::Disconnected(text) if text.contains("57P01")));
}
