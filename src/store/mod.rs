//! The store: a study's folder, with its plan, its append-only records and its artefacts.
//!
//! Invariant: what has been recorded is never changed and never guessed at. Everything else in a folder can be made again.

pub mod counters;
pub mod error;
pub mod evidence;
pub mod folder;
pub mod line;
pub mod record;
pub mod tally;
pub mod waits;
pub mod writer;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use folder::{Folder, Records};
pub use tally::{Standing, Tally};
pub use writer::Writer;
