//! The laboratory: settings of a machine and their undo, virtual machines, the agent in a guest, and the hosts that run trials.
//!
//! Dependencies between the modules point downwards: `host` → {`guest`, `vm`} → `protocol` → `lever` → `undo`. `target` is the other end of the host `ssh`.

pub mod guest;
pub mod host;
pub mod lever;
pub mod protocol;
pub mod target;
pub mod undo;
pub mod vm;
