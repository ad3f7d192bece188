//! web: clients that request documents from nginx, Apache or a server of the user's.
//!
//! Invariant: the documents and the order of a connection's requests depend only on the job, and every byte of every response is compared with
//! what the server was given.

pub mod call;
pub mod document;
pub mod driver;
pub mod encryption;
pub mod http;
pub mod images;
pub mod metrics;
pub mod options;
pub mod page;
pub mod server;
pub mod settings;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_tls;
pub mod trial;
pub mod url;
pub mod web99;
pub mod workload;
