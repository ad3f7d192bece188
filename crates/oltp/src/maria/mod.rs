//! The transactions on MariaDB's protocol.

mod call;
mod session;
mod statements;
#[cfg(test)]
mod tests;

pub use session::{MariaSession, connect, install_procedures};
