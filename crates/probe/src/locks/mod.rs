//! Lock contention: every wait for a kernel lock, from the kernel's tracepoints, and for a futex, from the system calls.
//!
//! Invariant: a wait counts if both its begin and its end were seen. Lost events are counted, and what a kernel does not report is stated, never
//! estimated.

pub mod format;
pub mod names;
pub mod pairing;
pub mod recorder;
pub mod stat;
pub mod tracefs;
pub mod waits;
