//! The statistics of bigiron: what a set of pairs says about two arms, and with what certainty.
//!
//! Invariant: every function here is a pure function of its arguments. Nothing reads a file or a clock, and randomness comes from a seed or generator
//! passed in, so a report made again years later contains the same numbers.
//!
//! Effects are differences of natural logarithms, `ln(B/A)`, unless stated otherwise.

pub mod bisect;
pub mod change_point;
pub mod flip;
pub mod gate;
pub mod heterogeneity;
pub mod location;
pub mod mser;
pub mod multiplicity;
pub mod order;
pub mod percentile;
pub mod power;
pub mod shape;
pub mod stein;
pub mod student;
pub mod suite;
pub mod tails;
pub mod usl;
pub mod verdict;

mod special;

pub use flip::{Block, Designs, Flip, Flips};
pub use student::Student;
pub use tails::Tails;
pub use verdict::{Verdict, verdict};
