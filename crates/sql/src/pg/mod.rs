//! A client for PostgreSQL's protocol 3.0, for existing servers and for those that bigiron starts.
//!
//! Invariant: once connected, a message does not cost its own system call: requests are appended to one buffer that is sent at
//! once, responses are parsed in place.
//!
//! [`Connection`] blocks, and is for schema, loading, statistics and checks; [`Channel`] is the same connection for an event
//! loop.

pub mod binary;
pub mod binary_rows;
mod buffered_socket;
pub mod channel;
pub mod connection;
pub mod copy;
pub mod encryption;
pub mod error;
pub mod frontend;
pub mod message;
pub mod oid;
mod passfile;
mod socket;
mod startup;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_copy;
#[cfg(test)]
mod tests_tls;
mod tls;
pub mod url;

pub use channel::Channel;
pub use connection::Connection;
pub use copy::CopyIn;
pub use error::{PgError, ServerError, SqlState};
pub use frontend::Parameter;
pub use message::{Message, Row, Status};
pub use url::Url;
