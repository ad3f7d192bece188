//! A client for MariaDB's protocol, for the servers that bigiron starts.
//!
//! Packets are read and written by `mysql_common`; the protocol is described in MariaDB's documentation, "MariaDB Server Protocol".

pub mod channel;
pub mod connection;
pub mod error;
mod stream;
pub mod testing;
#[cfg(test)]
mod tests;

/// Settings that decide what a crash can lose, and the server's version.
pub const DURABILITY: [&str; 6] = [
    "innodb_buffer_pool_size",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "sync_binlog",
    "version",
];

pub use channel::Channel;
pub use connection::{Connection, LoadIn, Taken};
pub use error::MariaError;
pub use stream::{Place, Stream};
