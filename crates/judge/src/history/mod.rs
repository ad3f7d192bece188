//! The history: what nights measured of many kernels, and between which two of them a metric changed.
//!
//! Invariant: entries are only ever added. A series is a function of the entries alone.

pub mod entry;
pub mod file;
pub mod kernels;
pub mod series;

pub use entry::{Boot, EntryRow, HistoryEntry, Measured};
pub use file::{History, HistoryError};
