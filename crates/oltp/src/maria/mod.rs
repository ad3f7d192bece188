//! A client for MariaDB's protocol, for the servers that bigiron starts.
//!
//! Packets are read and written by `mysql_common`; the protocol is described in MariaDB's documentation, "MariaDB Server Protocol".

mod call;
mod channel;
pub mod connection;
pub mod error;
mod session;
mod statements;
mod stream;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

pub use connection::{Connection, LoadIn, Taken};
pub use error::MariaError;
pub use session::{MariaSession, connect, install_procedures};
pub use stream::Place;
