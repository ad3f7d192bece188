//! A terminal's requests: the inputs of the five transactions (TPC-C, clauses 2.4.1 to 2.8.1).
//!
//! Invariant: an input is complete: a transaction's effect depends only on it and on the rows, never on a clock or on the engine.

use super::scale::UNUSED_ITEM;

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionKind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl TransactionKind {
    /// In the order of the mix, and of every table that shows them.
    pub const ALL: [TransactionKind; 5] = [
        TransactionKind::NewOrder,
        TransactionKind::Payment,
        TransactionKind::OrderStatus,
        TransactionKind::Delivery,
        TransactionKind::StockLevel,
    ];

    /// Its name in metrics and tables, e.g. `new-order`.
    pub fn name(self) -> &'static str {
        match self {
            TransactionKind::NewOrder => "new-order",
            TransactionKind::Payment => "payment",
            TransactionKind::OrderStatus => "order-status",
            TransactionKind::Delivery => "delivery",
            TransactionKind::StockLevel => "stock-level",
        }
    }

    /// Its index in [`TransactionKind::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One line of a new order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLine {
    /// 1..=100,000, or [`UNUSED_ITEM`].
    pub item: u32,
    pub supply_warehouse: u32,
    /// 1..=10.
    pub quantity: u32,
}

/// How a terminal names a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Customer {
    /// 1..=3000.
    Id(u32),
    /// The number 0..=999 that the last name spells ([`super::random::last_name`]).
    LastName(u32),
}

/// A request's input. Warehouses and districts count from 1; money is in cents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    NewOrder {
        warehouse: u32,
        district: u32,
        customer: u32,
        /// 5..=15 lines. If the last one's item is [`UNUSED_ITEM`] the transaction is rolled back when that is detected.
        lines: Vec<OrderLine>,
    },
    Payment {
        warehouse: u32,
        district: u32,
        /// The customer's home: 15 % at another warehouse than the terminal's.
        customer_warehouse: u32,
        customer_district: u32,
        customer: Customer,
        /// 100..=500,000 cents.
        amount: u32,
    },
    OrderStatus {
        warehouse: u32,
        district: u32,
        customer: Customer,
    },
    Delivery {
        warehouse: u32,
        /// 1..=10.
        carrier: u32,
    },
    StockLevel {
        warehouse: u32,
        district: u32,
        /// 10..=20.
        threshold: u32,
    },
}

impl Input {
    pub fn kind(&self) -> TransactionKind {
        match self {
            Input::NewOrder { .. } => TransactionKind::NewOrder,
            Input::Payment { .. } => TransactionKind::Payment,
            Input::OrderStatus { .. } => TransactionKind::OrderStatus,
            Input::Delivery { .. } => TransactionKind::Delivery,
            Input::StockLevel { .. } => TransactionKind::StockLevel,
        }
    }

    /// Whether it is a new order that must be rolled back.
    pub fn must_roll_back(&self) -> bool {
        matches!(self, Input::NewOrder { lines, .. } if lines.last().is_some_and(|l| l.item == UNUSED_ITEM))
    }
}

/// An input with the date of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub input: Input,
    /// Microseconds since 2000-01-01 (PostgreSQL's epoch), assigned by the driver and unique in a run: acknowledged payments are
    /// found by it, and rows do not depend on the server's clock.
    pub date: i64,
}
