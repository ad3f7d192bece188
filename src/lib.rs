//! bigiron: does this kernel, or this setting, help my database server, by how much, and how sure are we?
//!
//! The library behind the executable. Dependencies point downwards only:
//! `commands` → `session` → {`host`, `workload`, `lever`, `probe`} → {`vm`, guest protocol, `store`} → `sys`;
//! `judge` and `report` depend on `study`, `store` and the crate `bigiron-stats` alone.

pub mod bisect;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod date;
pub mod document;
pub mod guest;
pub mod history;
pub mod host;
pub mod judge;
pub mod kernel;
pub mod lever;
pub mod load;
pub mod metric;
pub mod network;
pub mod night;
pub mod probe;
pub mod refusal;
pub mod report;
pub mod session;
pub mod size;
pub mod store;
pub mod study;
pub mod suggest;
pub mod sys;
pub mod undo;
pub mod vm;
pub mod workload;
