//! The private servers of trials: their settings, how they are started, and images of loaded databases for guests.

pub mod cluster;
pub mod images;
pub mod loaded;
pub mod mariadb;
pub mod private;
pub mod settings;
pub mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;

pub use bigiron_service::error::ServerError;
pub use bigiron_service::listen::Listen;
pub use bigiron_service::postgres::RECIPE;
pub use bigiron_service::programs::Programs;
pub use bigiron_sys::owned_folder::OwnedFolder;
pub use cluster::Cluster;
pub use settings::{Settings, Sizing};

use bigiron_workload::keys::form::words_of;

/// How a client connects to a private server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Unix,
    Tcp,
}

words_of!(Transport: "unix" => Unix, "tcp" => Tcp);
