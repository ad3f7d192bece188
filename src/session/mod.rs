//! The session: works through the slots of a plan that have no record yet.
//!
//! Invariant: the only state is the records on stable storage. The next trial is a function of plan and records
//! ([`bigiron_model::store::SlotTally`]), so a session may be killed at any moment and the next one resumes where it stopped.

mod check;
#[cfg(test)]
mod counting_host;
mod error;
mod event;
pub mod progress;
mod rerun;
mod run;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_kill;
mod worker;

pub use error::SessionError;
pub use event::{SessionEvent, TrialId};
pub use rerun::rerun;
pub use run::{Summary, run, width};
pub use worker::{Share, all_records, work};
