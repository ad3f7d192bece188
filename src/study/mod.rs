//! The study: a question written down, and what it becomes.
//!
//! typed arguments or `study.toml` → [`question::Question`] → [`settled::Settled`] (defaults filled in, checked) → [`plan::Plan`].

pub mod arm;
pub mod command;
pub mod file;
pub mod question;
pub mod repeat;
pub mod schedule;
pub mod setting;
pub mod settled;
pub mod words;
