//! The sampled profile: what all CPUs execute, sampled about a thousand times a second.
//!
//! Invariant: a sample belongs to the window in whose span it was taken, or to none; lost samples are counted.

pub mod elf;
pub mod profile;
pub mod programs;
pub mod record;
pub mod recorder;
pub mod spans;
