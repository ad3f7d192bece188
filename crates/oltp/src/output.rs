//! The response to a transaction, with enough detail to know later what must be in the database.

/// The response to a request. Money is in cents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    NewOrder {
        /// O_ID.
        order: u32,
        /// Total of all lines, with discount and taxes, rounded down to a cent.
        total: i64,
    },
    /// A new order with a nonexistent item, which left no rows.
    RolledBack,
    Payment {
        /// C_ID of the customer found.
        customer: u32,
        /// C_BALANCE after it.
        balance: i64,
    },
    OrderStatus {
        customer: u32,
        balance: i64,
        /// The customer's last order, and the number of its lines; 0 if there is none.
        order: u32,
        lines: u32,
    },
    /// Number of districts in which an order was delivered (0..=10); the others had none waiting.
    Delivery { delivered: u32 },
    /// Number of items below the threshold.
    StockLevel { low: u32 },
}

/// Why a transaction has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// A deadlock or a serialization failure (SQLSTATE 40P01, 40001), or SQLite's `SQLITE_BUSY`: nothing happened; retry.
    #[error("{0}")]
    Retry(String),
    /// The database's disk is full (SQLSTATE 53100, `SQLITE_FULL`): nothing happened, and nothing will until somebody frees
    /// space.
    #[error("{0}")]
    NoSpace(String),
    /// The server or the engine refused for another reason; the text has its code and message.
    #[error("{0}")]
    Failed(String),
    /// The connection is lost: whether the transaction was committed is unknown.
    #[error("{0}")]
    Disconnected(String),
}
