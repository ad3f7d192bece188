//! The history: what nights have measured of many kernels, and where a metric changed between two of them.
//!
//! Invariant: entries are only ever added. What a series shows is a function of the entries alone.

pub mod entry;
pub mod file;
pub mod kernels;
pub mod series;

pub use entry::{Boot, EntryRow, HistoryEntry, Measured};
pub use file::{History, HistoryError};
