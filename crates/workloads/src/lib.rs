//! The small workloads: each is one folder and implements [`bigiron_workload::Workload`].

pub mod build;
pub mod chat;
pub mod command;
pub mod files;
pub mod fs_clients;
mod java_program;
pub mod jvm;
pub mod loadfile;
pub mod micro;
pub mod multiuser;
pub mod net_clients;
pub mod raw_io;
pub mod scripts;
pub mod sqlphases;
pub mod tio;
