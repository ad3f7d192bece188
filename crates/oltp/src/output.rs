//! What comes back from a transaction, enough of it to know later what must be in the database.

/// The answer to a request. Money is in cents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    NewOrder {
        /// O_ID.
        order: u32,
        /// Of all lines, discount and taxes applied, rounded down to a cent.
        total: i64,
    },
    /// A new order that asked for an item that does not exist, and left nothing behind.
    RolledBack,
    Payment {
        /// C_ID of the customer that was found.
        customer: u32,
        /// C_BALANCE after it.
        balance: i64,
    },
    OrderStatus {
        customer: u32,
        balance: i64,
        /// The customer's last order, and how many lines it has; 0 if there is none.
        order: u32,
        lines: u32,
    },
    /// Districts of which an order was delivered (0..=10); the others had none waiting.
    Delivery { delivered: u32 },
    /// Items below the threshold.
    StockLevel { low: u32 },
}

/// Why a transaction has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// A deadlock or a serialization failure (SQLSTATE 40P01, 40001), or SQLite's `SQLITE_BUSY`: nothing happened, to be tried again.
    #[error("{0}")]
    Retry(String),
    /// The database's disk is full (SQLSTATE 53100, `SQLITE_FULL`): nothing happened, and nothing will until somebody makes room.
    #[error("{0}")]
    NoSpace(String),
    /// The server or the engine refused for another reason; the text has its code and its words.
    #[error("{0}")]
    Failed(String),
    /// The connection is gone: whether the transaction was committed is not known.
    #[error("{0}")]
    Disconnected(String),
}
