//! A PostgreSQL server of our own: its programs from Debian's archive, private clusters, and file-system images of both for guests.
//!
//! Invariant: nothing is installed, nothing runs as root, and a cluster leaves nothing behind: no process, no socket, no shared memory, no folder.

pub mod cluster;
pub mod elf;
mod error;
pub mod image;
pub mod loaded;
pub mod place;
mod program;
pub mod root;
pub mod settings;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod tpcc;
mod tree;

pub use cluster::{Cluster, Listen, Stop};
pub use error::ServerError;
pub use place::Place;
pub use program::Server;
pub use root::Root;
pub use settings::{Settings, Sizing};
pub use tree::UID;
