//! bigiron: does this kernel, or this setting, help my database server, by how much, and how sure are we?
//!
//! The library behind the executable: the command line, studies, sessions, nights, bisections, and the registry of workloads.
//! Each lower layer is its own crate (`docs/reference/architecture.md`).

pub mod agent;
pub mod bisect;
pub mod cli;
pub mod commands;
pub mod complete;
pub mod conduct;
pub mod night;
pub mod pages;
pub mod rebuild;
pub mod registry;
pub mod session;
pub mod study;
pub mod target;
pub mod upgrade;
pub mod worker;
