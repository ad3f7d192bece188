//! A request as statements: which, their order and parameters.
//!
//! Invariant: rows are locked in the same order by every request (customer, district, warehouse; stock by warehouse and item), so
//! that deadlocks are rare.

use crate::config::Mode;
use crate::input::{Customer, Input, OrderLine, Request};
use crate::random::last_name;
use crate::scale::DISTRICTS;
use bigiron_sql::pg::Parameter;

use super::statements::Statement;

/// Receives the statements of a request in their order.
pub trait Statements {
    fn add(&mut self, statement: Statement, parameters: impl IntoIterator<Item = Parameter>);

    /// A statement whose parameters are all integers.
    fn integers(&mut self, statement: Statement, values: &[u32]) {
        self.add(statement, values.iter().copied().map(int));
    }
}

/// The statements of a request in a mode.
pub fn write(mode: Mode, request: &Request, to: &mut impl Statements) {
    match mode {
        Mode::Procedures => call(request, to),
        Mode::Pipelined | Mode::RoundTrips => own(request, to),
    }
}

fn int(value: u32) -> Parameter {
    Parameter::Int4(integer(value))
}

fn integer(value: u32) -> i32 {
    i32::try_from(value).expect("Numbers of rows, quantities and amounts fit PostgreSQL's integer")
}

/// The lines in the order in which stock is locked, with their original numbers (from 1). Lines of the same stock keep their
/// order.
fn sorted(lines: &[OrderLine]) -> Vec<(u32, OrderLine)> {
    let mut sorted: Vec<(u32, OrderLine)> = (1..).zip(lines.iter().copied()).collect();
    sorted.sort_by_key(|(_, line)| (line.supply_warehouse, line.item));
    sorted
}

/// Whether two of the sorted lines refer to the same stock.
fn has_repeats(sorted: &[(u32, OrderLine)]) -> bool {
    sorted
        .windows(2)
        .any(|pair| pair[0].1.item == pair[1].1.item && pair[0].1.supply_warehouse == pair[1].1.supply_warehouse)
}

fn is_local(lines: &[OrderLine], warehouse: u32) -> u32 {
    u32::from(lines.iter().all(|line| line.supply_warehouse == warehouse))
}

fn call(request: &Request, to: &mut impl Statements) {
    match &request.input {
        Input::NewOrder { warehouse, district, customer, lines } => {
            let sorted = sorted(lines);
            let statement = if has_repeats(&sorted) { Statement::CallNewOrderByLine } else { Statement::CallNewOrder };
            let of_lines = |value: fn(&(u32, OrderLine)) -> u32| {
                Parameter::Int4Array(sorted.iter().map(|line| integer(value(line))).collect())
            };
            to.add(
                statement,
                [
                    int(*warehouse),
                    int(*district),
                    int(*customer),
                    int(is_local(lines, *warehouse)),
                    Parameter::Timestamp(request.date),
                    of_lines(|(number, _)| *number),
                    of_lines(|(_, line)| line.item),
                    of_lines(|(_, line)| line.supply_warehouse),
                    of_lines(|(_, line)| line.quantity),
                ],
            );
        }
        Input::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount } => {
            let places = [*warehouse, *district, *customer_warehouse, *customer_district].map(int);
            let rest = [int(*amount), Parameter::Timestamp(request.date)];
            to.add(Statement::CallPayment, places.into_iter().chain(named(*customer)).chain(rest));
        }
        Input::OrderStatus { warehouse, district, customer } => {
            let place = [*warehouse, *district].map(int);
            to.add(Statement::CallOrderStatus, place.into_iter().chain(named(*customer)));
        }
        Input::Delivery { warehouse, carrier } => {
            let date = Parameter::Timestamp(request.date);
            to.add(Statement::CallDelivery, [int(*warehouse), int(*carrier), date]);
        }
        Input::StockLevel { warehouse, district, threshold } => {
            to.integers(Statement::CallStockLevel, &[*warehouse, *district, *threshold]);
        }
    }
}

fn own(request: &Request, to: &mut impl Statements) {
    let begin = match &request.input {
        Input::NewOrder { .. } | Input::Payment { .. } | Input::Delivery { .. } => Statement::Begin,
        Input::OrderStatus { .. } | Input::StockLevel { .. } => Statement::BeginSnapshot,
    };
    to.integers(begin, &[]);
    match &request.input {
        Input::NewOrder { warehouse, district, customer, lines } => {
            own_new_order(request.date, [*warehouse, *district, *customer], lines, to);
        }
        Input::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount } => {
            let customer_of = [*customer_warehouse, *customer_district];
            let (pay, history) = match customer {
                Customer::Id(_) => (Statement::PayById, Statement::HistoryById),
                Customer::LastName(_) => (Statement::PayByName, Statement::HistoryByName),
            };
            let rest = [*amount, *warehouse, *district];
            to.add(pay, one(customer_of, *customer).into_iter().chain(rest.map(int)));
            to.integers(Statement::PayDistrict, &[*warehouse, *district, *amount]);
            to.integers(Statement::PayWarehouse, &[*warehouse, *amount]);
            let date = Parameter::Timestamp(request.date);
            to.add(history, one(customer_of, *customer).into_iter().chain(rest.map(int)).chain([date]));
        }
        Input::OrderStatus { warehouse, district, customer } => {
            let steps = match customer {
                Customer::Id(_) => [Statement::CustomerById, Statement::LastOrderById, Statement::LastLinesById],
                Customer::LastName(_) => {
                    [Statement::CustomerByName, Statement::LastOrderByName, Statement::LastLinesByName]
                }
            };
            for step in steps {
                to.add(step, one([*warehouse, *district], *customer));
            }
        }
        Input::Delivery { warehouse, carrier } => {
            for district in 1..=DISTRICTS {
                let date = Parameter::Timestamp(request.date);
                to.add(Statement::DeliverDistrict, [int(*warehouse), int(district), int(*carrier), date]);
            }
        }
        Input::StockLevel { warehouse, district, threshold } => {
            to.integers(Statement::NextOrderNumber, &[*warehouse, *district]);
            to.integers(Statement::StockLevel, &[*warehouse, *district, *threshold]);
        }
    }
    let end = if request.input.must_roll_back() { Statement::Rollback } else { Statement::Commit };
    to.integers(end, &[]);
}

fn own_new_order(date: i64, [warehouse, district, customer]: [u32; 3], lines: &[OrderLine], to: &mut impl Statements) {
    to.integers(Statement::TakeOrderNumber, &[warehouse, district]);
    to.integers(Statement::WarehouseTax, &[warehouse]);
    to.integers(Statement::CustomerDiscount, &[warehouse, district, customer]);
    let order = [warehouse, district, customer, lines.len() as u32, is_local(lines, warehouse)].map(int);
    to.add(Statement::InsertOrder, order.into_iter().chain([Parameter::Timestamp(date)]));
    to.integers(Statement::InsertNewOrder, &[warehouse, district]);
    for (number, OrderLine { item, supply_warehouse, quantity }) in sorted(lines) {
        let remote = u32::from(supply_warehouse != warehouse);
        to.integers(Statement::TakeStock, &[supply_warehouse, item, quantity, remote]);
        to.integers(Statement::InsertLine, &[warehouse, district, number, supply_warehouse, item, quantity]);
    }
}

/// A customer in the functions' form: number and name, one of them NULL.
fn named(customer: Customer) -> [Parameter; 2] {
    match customer {
        Customer::Id(id) => [int(id), Parameter::Null],
        Customer::LastName(number) => [Parameter::Null, Parameter::Text(last_name(number))],
    }
}

/// A customer in the form of the client's own statements: warehouse, district, and number or name.
fn one([warehouse, district]: [u32; 2], customer: Customer) -> [Parameter; 3] {
    let which = match customer {
        Customer::Id(id) => int(id),
        Customer::LastName(number) => Parameter::Text(last_name(number)),
    };
    [int(warehouse), int(district), which]
}
