//! Evaluates a server's rows.
//!
//! Invariant: an [`Output`] results only if every statement did what the request needs; otherwise there is an error that names
//! the statement.

use crate::input::{Input, TransactionKind};
use crate::output::Output;

use super::statements::Statement;

/// The results so far of a transaction in progress.
#[derive(Debug)]
pub struct Answer {
    kind: TransactionKind,
    must_roll_back: bool,
    /// Number of lines requested, including that of an unused item.
    lines_asked: u32,
    lines: u32,
    order: u32,
    amount: i64,
    total: Option<i64>,
    warehouse_tax: i64,
    district_tax: i64,
    discount: i64,
    customer: u32,
    balance: i64,
    delivered: u32,
    low: u32,
}

impl Answer {
    pub fn new(input: &Input) -> Answer {
        let lines_asked = if let Input::NewOrder { lines, .. } = input { lines.len() as u32 } else { 0 };
        Answer {
            kind: input.kind(),
            must_roll_back: input.must_roll_back(),
            lines_asked,
            lines: 0,
            order: 0,
            amount: 0,
            total: None,
            warehouse_tax: 0,
            district_tax: 0,
            discount: 0,
            customer: 0,
            balance: 0,
            delivered: 0,
            low: 0,
        }
    }

    pub fn must_roll_back(&self) -> bool {
        self.must_roll_back
    }

    /// Processes a row of a statement, given its columns: a `None` is NULL, and nothing follows a value that is not understood. Calls of procedures
    /// return: the order and its total; the customer and its balance; customer, balance, last order, and the number of its lines.
    pub fn row(&mut self, statement: Statement, row: impl Iterator<Item = Option<i64>>) -> Result<(), String> {
        self.read(statement, row).ok_or_else(|| {
            format!("A row of `{}` lacks the requested columns, or has NULL among them", statement.sql())
        })
    }

    fn read(&mut self, statement: Statement, mut columns: impl Iterator<Item = Option<i64>>) -> Option<()> {
        let mut integer = || columns.next()?;
        match statement {
            Statement::CallNewOrder | Statement::CallNewOrderByLine => {
                self.order = id(integer()?)?;
                self.total = Some(integer()?);
            }
            Statement::CallPayment => {
                self.customer = id(integer()?)?;
                self.balance = integer()?;
            }
            Statement::CallOrderStatus => {
                self.customer = id(integer()?)?;
                self.balance = integer()?;
                // A customer without orders has no lines either.
                if let Some(order) = columns.next()? {
                    self.order = id(order)?;
                    self.lines = id(columns.next()??)?;
                }
            }
            Statement::CallDelivery => self.delivered = id(integer()?)?,
            Statement::CallStockLevel | Statement::StockLevel => self.low = id(integer()?)?,
            Statement::TakeOrderNumber => {
                self.order = id(integer()?)?;
                self.district_tax = integer()?;
            }
            Statement::WarehouseTax => self.warehouse_tax = integer()?,
            Statement::CustomerDiscount => self.discount = integer()?,
            Statement::InsertLine => {
                self.amount += integer()?;
                self.lines += 1;
            }
            Statement::PayById | Statement::PayByName | Statement::CustomerById | Statement::CustomerByName => {
                self.customer = id(integer()?)?;
                self.balance = integer()?;
            }
            Statement::LastOrderById | Statement::LastOrderByName => self.order = id(integer()?)?,
            Statement::LastLinesById | Statement::LastLinesByName => self.lines += 1,
            Statement::DeliverDistrict => self.delivered += 1,
            Statement::TakeStock
            | Statement::PayDistrict
            | Statement::PayWarehouse
            | Statement::NextOrderNumber
            | Statement::Begin
            | Statement::BeginSnapshot
            | Statement::Commit
            | Statement::Rollback
            | Statement::InsertOrder
            | Statement::InsertNewOrder
            | Statement::HistoryById
            | Statement::HistoryByName => {}
        }
        Some(())
    }

    /// Processes the end of a statement: the rows that it returned or changed, if the server told that it ended well; `said` are its words.
    pub fn done(&mut self, statement: Statement, rows: Option<u64>, said: &str) -> Result<(), String> {
        let fine = match statement {
            Statement::Begin | Statement::BeginSnapshot | Statement::Commit | Statement::Rollback => rows.is_some(),
            // These may find nothing: no stock or item of that number, no order, none that waits.
            Statement::TakeStock
            | Statement::InsertLine
            | Statement::LastOrderById
            | Statement::LastOrderByName
            | Statement::LastLinesById
            | Statement::LastLinesByName
            | Statement::DeliverDistrict => rows.is_some(),
            _ => rows == Some(1),
        };
        if fine { Ok(()) } else { Err(format!("`{said}` instead of one row, from `{}`", statement.sql())) }
    }

    /// The response to the request, after all statements have succeeded.
    pub fn output(&self) -> Result<Output, String> {
        Ok(match self.kind {
            TransactionKind::NewOrder => {
                let total = match self.total {
                    Some(_) if self.must_roll_back => {
                        return Err("The unused item was found, and the order was accepted".to_owned());
                    }
                    Some(total) => total,
                    None => {
                        let found = self.lines_asked - u32::from(self.must_roll_back);
                        if self.lines != found {
                            return Err(format!("{} items were found instead of {found}", self.lines));
                        }
                        if self.must_roll_back {
                            return Ok(Output::RolledBack);
                        }
                        self.amount * (10_000 - self.discount) * (10_000 + self.warehouse_tax + self.district_tax)
                            / 100_000_000
                    }
                };
                Output::NewOrder { order: self.order, total }
            }
            TransactionKind::Payment => Output::Payment { customer: self.customer, balance: self.balance },
            TransactionKind::OrderStatus => Output::OrderStatus {
                customer: self.customer,
                balance: self.balance,
                order: self.order,
                lines: self.lines,
            },
            TransactionKind::Delivery => Output::Delivery { delivered: self.delivered },
            TransactionKind::StockLevel => Output::StockLevel { low: self.low },
        })
    }
}

fn id(value: i64) -> Option<u32> {
    u32::try_from(value).ok()
}
