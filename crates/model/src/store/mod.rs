//! The store: a study's folder, with its plan, its append-only records and its artefacts.
//!
//! Invariant: records are never changed and never guessed. Everything else in a folder can be recreated.

pub mod delivery;
pub mod error;
pub mod folder;
pub mod line;
pub mod tally;
pub mod writer;

#[cfg(test)]
mod fuzz;
pub mod testing;
#[cfg(test)]
mod tests;

pub use delivery::{Delivered, Delivery};
pub use error::StoreError;
pub use folder::{Folder, Records};
pub use tally::{SlotState, SlotTally};
pub use writer::Writer;
