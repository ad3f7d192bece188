//! Programs that workloads run: servers from Debian's archive, each in its own root, and programs of this machine.
//!
//! A server is added by one file: its [`recipe::Recipe`] and its [`instance::Server`] (docs/reference/adding-a-server.md).

pub mod apache;
pub mod elf;
pub mod error;
mod group_guard;
pub mod guest_tree;
pub mod httpd;
pub mod image;
pub mod instance;
pub mod java;
pub mod listen;
pub mod mariadb;
pub mod nginx;
pub mod other_machine;
pub mod postgres;
mod processes;
pub mod program;
pub mod programs;
pub mod recipe;
pub mod root;
pub mod samba;
pub mod server_folder;
pub mod testing;
pub mod tomcat;
pub mod tree;
pub mod worker_place;

pub use processes::{CpuMeter, Usage, kernel_cpu_ns};
