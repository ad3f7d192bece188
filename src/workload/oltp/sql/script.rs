//! A request as messages: which statements, in which order, with which parameters.
//!
//! Invariant: rows are locked in the same order by every request (customer, district, warehouse; stock by warehouse and item), so that
//! deadlocks are the exception.

use crate::workload::oltp::config::Mode;
use crate::workload::oltp::input::{Customer, Input, Line, Request};
use crate::workload::oltp::pg::Format;
use crate::workload::oltp::pg::frontend::{self, Bind};
use crate::workload::oltp::random::last_name;
use crate::workload::oltp::scale::DISTRICTS;

use super::statements::Statement;

/// Statements being written.
pub(super) struct Script<'o> {
    out: &'o mut Vec<u8>,
    /// Those written, in order: their answers come in the same.
    pub(super) steps: Vec<Statement>,
    /// Where each ends in `out` if each has a Sync of its own.
    pub(super) ends: Option<Vec<usize>>,
}

fn int(value: u32) -> i32 {
    i32::try_from(value).expect("Numbers of rows, quantities and amounts fit PostgreSQL's integer")
}

/// The lines in the order in which stock is locked, with the numbers (from 1) that they were asked for by. Lines of the same stock stay in order.
fn sorted(lines: &[Line]) -> Vec<(u32, Line)> {
    let mut sorted: Vec<(u32, Line)> = (1..).zip(lines.iter().copied()).collect();
    sorted.sort_by_key(|(_, line)| (line.supply_warehouse, line.item));
    sorted
}

/// Whether two of the sorted lines are of the same stock.
fn has_repeats(sorted: &[(u32, Line)]) -> bool {
    sorted
        .windows(2)
        .any(|pair| pair[0].1.item == pair[1].1.item && pair[0].1.supply_warehouse == pair[1].1.supply_warehouse)
}

fn is_local(lines: &[Line], warehouse: u32) -> u32 {
    u32::from(lines.iter().all(|line| line.supply_warehouse == warehouse))
}

impl<'o> Script<'o> {
    pub(super) fn write(mode: Mode, request: &Request, out: &'o mut Vec<u8>) -> Script<'o> {
        let ends = (mode == Mode::RoundTrips).then(Vec::new);
        let mut script = Script { out, steps: Vec::new(), ends };
        match mode {
            Mode::Procedures => script.call(request),
            Mode::Pipelined | Mode::RoundTrips => script.own(request),
        }
        if script.ends.is_none() {
            frontend::sync(script.out);
        }
        script
    }

    fn add(&mut self, statement: Statement, values: impl for<'b> FnOnce(Bind<'b>) -> Bind<'b>) {
        values(frontend::bind(self.out, statement.name())).finish(Format::Binary);
        frontend::execute(self.out);
        self.steps.push(statement);
        if let Some(ends) = &mut self.ends {
            frontend::sync(self.out);
            ends.push(self.out.len());
        }
    }

    /// A statement whose parameters are all integers.
    fn integers(&mut self, statement: Statement, values: &[u32]) {
        self.add(statement, |bind| values.iter().fold(bind, |bind, &value| bind.i32(int(value))));
    }

    fn call(&mut self, request: &Request) {
        match &request.input {
            Input::NewOrder { warehouse, district, customer, lines } => {
                let sorted = sorted(lines);
                let statement =
                    if has_repeats(&sorted) { Statement::CallNewOrderByLine } else { Statement::CallNewOrder };
                self.add(statement, |bind| {
                    bind.i32(int(*warehouse))
                        .i32(int(*district))
                        .i32(int(*customer))
                        .i32(int(is_local(lines, *warehouse)))
                        .timestamp(request.date)
                        .int4_array(sorted.iter().map(|(number, _)| int(*number)))
                        .int4_array(sorted.iter().map(|(_, line)| int(line.item)))
                        .int4_array(sorted.iter().map(|(_, line)| int(line.supply_warehouse)))
                        .int4_array(sorted.iter().map(|(_, line)| int(line.quantity)))
                });
            }
            Input::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount } => {
                self.add(Statement::CallPayment, |bind| {
                    let bind = bind.i32(int(*warehouse)).i32(int(*district));
                    let bind = bind.i32(int(*customer_warehouse)).i32(int(*customer_district));
                    named(bind, *customer).i32(int(*amount)).timestamp(request.date)
                });
            }
            Input::OrderStatus { warehouse, district, customer } => {
                self.add(Statement::CallOrderStatus, |bind| {
                    named(bind.i32(int(*warehouse)).i32(int(*district)), *customer)
                });
            }
            Input::Delivery { warehouse, carrier } => {
                self.add(Statement::CallDelivery, |bind| {
                    bind.i32(int(*warehouse)).i32(int(*carrier)).timestamp(request.date)
                });
            }
            Input::StockLevel { warehouse, district, threshold } => {
                self.integers(Statement::CallStockLevel, &[*warehouse, *district, *threshold]);
            }
        }
    }

    fn own(&mut self, request: &Request) {
        let begin = match &request.input {
            Input::NewOrder { .. } | Input::Payment { .. } | Input::Delivery { .. } => Statement::Begin,
            Input::OrderStatus { .. } | Input::StockLevel { .. } => Statement::BeginSnapshot,
        };
        self.integers(begin, &[]);
        match &request.input {
            Input::NewOrder { warehouse, district, customer, lines } => {
                self.own_new_order(request.date, [*warehouse, *district, *customer], lines);
            }
            Input::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount } => {
                let customer_of = [*customer_warehouse, *customer_district];
                let (pay, history) = match customer {
                    Customer::Id(_) => (Statement::PayById, Statement::HistoryById),
                    Customer::LastName(_) => (Statement::PayByName, Statement::HistoryByName),
                };
                let rest = [*amount, *warehouse, *district];
                self.add(pay, |bind| rest.iter().fold(one(bind, customer_of, *customer), |b, &v| b.i32(int(v))));
                self.integers(Statement::PayDistrict, &[*warehouse, *district, *amount]);
                self.integers(Statement::PayWarehouse, &[*warehouse, *amount]);
                self.add(history, |bind| {
                    let bind = one(bind, customer_of, *customer);
                    rest.iter().fold(bind, |bind, &value| bind.i32(int(value))).timestamp(request.date)
                });
            }
            Input::OrderStatus { warehouse, district, customer } => {
                let steps = match customer {
                    Customer::Id(_) => [Statement::CustomerById, Statement::LastOrderById, Statement::LastLinesById],
                    Customer::LastName(_) => {
                        [Statement::CustomerByName, Statement::LastOrderByName, Statement::LastLinesByName]
                    }
                };
                for step in steps {
                    self.add(step, |bind| one(bind, [*warehouse, *district], *customer));
                }
            }
            Input::Delivery { warehouse, carrier } => {
                for district in 1..=DISTRICTS {
                    self.add(Statement::DeliverDistrict, |bind| {
                        bind.i32(int(*warehouse)).i32(int(district)).i32(int(*carrier)).timestamp(request.date)
                    });
                }
            }
            Input::StockLevel { warehouse, district, threshold } => {
                self.integers(Statement::NextOrderNumber, &[*warehouse, *district]);
                self.integers(Statement::StockLevel, &[*warehouse, *district, *threshold]);
            }
        }
        let end = if request.input.must_roll_back() { Statement::Rollback } else { Statement::Commit };
        self.integers(end, &[]);
    }

    fn own_new_order(&mut self, date: i64, [warehouse, district, customer]: [u32; 3], lines: &[Line]) {
        self.integers(Statement::TakeOrderNumber, &[warehouse, district]);
        self.integers(Statement::WarehouseTax, &[warehouse]);
        self.integers(Statement::CustomerDiscount, &[warehouse, district, customer]);
        self.add(Statement::InsertOrder, |bind| {
            let values = [warehouse, district, customer, lines.len() as u32, is_local(lines, warehouse)];
            values.iter().fold(bind, |bind, &value| bind.i32(int(value))).timestamp(date)
        });
        self.integers(Statement::InsertNewOrder, &[warehouse, district]);
        for (number, Line { item, supply_warehouse, quantity }) in sorted(lines) {
            let remote = u32::from(supply_warehouse != warehouse);
            self.integers(Statement::TakeStock, &[supply_warehouse, item, quantity, remote]);
            self.integers(Statement::InsertLine, &[warehouse, district, number, supply_warehouse, item, quantity]);
        }
    }
}

/// A customer as the functions take it: number and name, one of them NULL.
fn named(bind: Bind<'_>, customer: Customer) -> Bind<'_> {
    match customer {
        Customer::Id(id) => bind.i32(int(id)).null(),
        Customer::LastName(number) => bind.null().text(&last_name(number)),
    }
}

/// A customer as the client's own statements take it: warehouse, district, and number or name.
fn one(bind: Bind<'_>, [warehouse, district]: [u32; 2], customer: Customer) -> Bind<'_> {
    let bind = bind.i32(int(warehouse)).i32(int(district));
    match customer {
        Customer::Id(id) => bind.i32(int(id)),
        Customer::LastName(number) => bind.text(&last_name(number)),
    }
}
