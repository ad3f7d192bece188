//! The private servers of trials: their settings, their connections for the load, and images of loaded databases for guests.

pub mod cluster;
pub mod loaded;
pub mod mariadb;
pub mod private;
pub mod settings;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
pub mod tpcc;

pub use bigiron_service::error::ServerError;
pub use bigiron_service::listen::Listen;
pub use bigiron_service::postgres::RECIPE;
pub use bigiron_service::programs::Programs;
pub use bigiron_sys::owned_folder::OwnedFolder;
pub use cluster::Cluster;
pub use settings::{Settings, Sizing};
