//! A PostgreSQL server of our own: its programs from Debian's archive, private clusters, and file-system images of both for guests.
//!
//! Invariant: nothing is installed, nothing runs as root, and a cluster leaves nothing behind: no process, no socket, no shared memory, no folder.

pub mod elf;
mod error;
pub mod root;
mod tree;

pub use error::ServerError;
pub use root::Root;
pub use tree::UID;
