//! Kernels: their sources, their identity, and the cache that stores them.

mod apt;
mod catalog;
mod closure;
mod deb;
mod distribution;
mod entry;
pub mod error;
pub mod fixture;
#[cfg(test)]
mod fuzz;
pub mod hash;
pub mod image;
pub mod known;
mod local;
pub mod modinfo;
pub mod modules;
mod packages;
pub mod payload;
mod present;
mod regular_file;
mod sources;
pub mod spec;
pub mod store;

use std::path::PathBuf;

use bigiron_model::identity::Identity;

pub use closure::{Closure, ClosurePackage, SeriesPackage};
pub use deb::{LinkEntry, extract};
pub use distribution::Distribution;
pub use entry::CachedKernel;
pub use error::KernelError;
pub use modules::ModuleFile;
pub use present::PresentKernel;
pub use spec::{KernelSpec, looks_like_kernel};
pub use store::Store;

/// An available kernel: in the cache, or in the user's own files.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub identity: Identity,
    /// The bzImage.
    pub image: PathBuf,
    /// Directory with the modules (`kernel/…/*.ko[.xz|.zst]` somewhere below), `None` for a kernel without modules.
    pub modules: Option<PathBuf>,
    pub config: Option<PathBuf>,
    /// System.map, if the package contains a real one.
    pub symbols: Option<PathBuf>,
}
