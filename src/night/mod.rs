//! A night: every workload of the regression grid on two or more kernels, in as few boots as its rows allow.
//!
//! Invariant: a night is a folder of ordinary studies and a description written before the first boot. Its grid is a function of
//! these, so it can be regenerated, and a killed night resumes where it stopped.

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
