//! The stored data: plans, metrics, records, evidence and the folder that holds them; TOML with positions; units; errors for users.
//!
//! Invariant: nothing here runs a workload, changes a machine or judges a result.

pub mod build;
pub mod clock;
pub mod counter_words;
pub mod counters;
pub mod date;
pub mod document;
pub mod environment;
pub mod evidence;
pub mod file_system;
pub mod folder_files;
pub mod fuzz;
pub mod host;
pub mod identity;
pub mod margins;
pub mod metric;
pub mod modelled;
pub mod plan;
pub mod printable;
pub mod provenance;
pub mod purpose;
pub mod qemu;
pub mod record;
pub mod refusal;
pub mod rule;
pub mod setting;
pub mod shell;
pub mod size;
pub mod slug;
pub mod storage;
pub mod store;
pub mod suggest;
pub mod values;
pub mod version;
pub mod waits;
pub mod workload;
