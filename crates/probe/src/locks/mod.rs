//! Lock contention: every wait for a lock of the kernel, by the tracepoints that it has for that, and for a futex, by the system calls.
//!
//! Invariant: a wait counts if its begin and its end were both seen; what was lost is counted, and what a kernel does not tell is said, never estimated.

pub mod format;
pub mod names;
pub mod pairing;
pub mod recorder;
pub mod stat;
pub mod tracefs;
pub mod waits;
