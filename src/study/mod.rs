//! The study: a question written down, and what it becomes.

pub mod plan;
