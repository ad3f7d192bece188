//! A night: every workload of the regression grid on two kernels or more, in as few boots as its rows allow.
//!
//! Invariant: a night is a folder of ordinary studies and a description written before the first boot; its grid is a function of these, so it
//! can be made again, and a night that was killed goes on where it was.

pub mod collect;
pub mod folder;
pub mod grid;
pub mod previous;
pub mod report;
pub mod rows;
#[cfg(test)]
mod tests;

pub use folder::{Group, Night};
pub use grid::Grid;
pub use rows::{Budget, Row};
