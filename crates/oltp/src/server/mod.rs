//! A PostgreSQL server of our own: its programs from Debian's archive, private clusters, and file-system images of both for guests.
//!
//! Invariant: nothing is installed, nothing runs as root, and a cluster leaves nothing behind: no process, no socket, no shared memory, no folder.

pub mod cluster;
pub mod loaded;
pub mod place;
mod program;
pub mod settings;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod tpcc;

pub use bigiron_service::error::ServerError;
pub use bigiron_service::root::Root;
pub use bigiron_service::tree::UID;
pub use cluster::{Cluster, Listen, Stop};
pub use place::Place;
pub use program::Server;
pub use settings::{Settings, Sizing};
