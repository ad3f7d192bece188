//! The sampled profile: what all CPUs execute, asked about a thousand times a second.
//!
//! Invariant: a sample belongs to the window in whose span of time it was taken, or to none; what was lost is counted.

pub mod elf;
pub mod profile;
pub mod programs;
pub mod record;
pub mod recorder;
pub mod spans;
