//! The study: from the text of a question to a plan.
//!
//! typed arguments or `study.toml` → [`question::Question`] → [`resolved::ResolvedQuestion`] (defaults filled in, checked) → [`bigiron_model::plan::Plan`].

pub mod arguments;
pub mod arm;
pub mod command;
pub mod file;
pub mod question;
pub mod ready_made;
pub mod repeat;
pub mod resolved;
pub mod schedule;
pub mod setting;
pub mod sizing;
