//! Programs that workloads run: servers from Debian's archive in roots of their own, and programs of this machine.

pub mod elf;
pub mod error;
pub mod image;
pub mod program;
pub mod root;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tree;
