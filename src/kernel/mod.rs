//! Kernels: where they come from, what identifies them, and the cache that keeps them.

mod apt;
mod catalog;
mod closure;
mod deb;
mod debian;
mod entry;
pub(crate) mod error;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod hash;
pub mod image;
mod local;
pub mod modinfo;
pub mod modules;
mod sources;
pub mod spec;
pub mod store;
mod version;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use closure::{Closure, Part};
pub(crate) use deb::{Item, extract};
pub use entry::Entry;
pub use error::KernelError;
pub use modules::ModuleFile;
pub use spec::{Spec, looks_like_kernel};
pub use store::Store;
pub use version::major_minor;
pub(crate) use version::{compare as compare_versions, satisfies};

/// What identifies a kernel that an arm boots. Goes into the plan and into every record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// As the user named it, e.g. `debian:6.12`.
    pub spec: String,
    /// What `uname -r` must say in the guest.
    pub release: String,
    /// The package and its version, where there is one, e.g. `linux-image-6.12.117+deb12-cloud-amd64 6.12.117-1~deb12u1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Hash of the boot image's bytes, lower-case hexadecimal.
    pub image_sha256: String,
    /// Hash of the kernel's configuration file, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
}

impl Identity {
    /// What brings this very kernel back: a series may have moved on to a newer version.
    pub fn exact_spec(&self) -> String {
        let version = self.package.as_deref().and_then(|p| p.split_once(' ')).map(|(_, version)| version);
        match (Spec::parse(&self.spec), version) {
            (Ok(Spec::Debian { flavour, .. }), Some(version)) => {
                Spec::Debian { version: version.to_owned(), flavour }.to_string()
            }
            _ => self.spec.clone(),
        }
    }
}

/// A kernel at hand: in the cache, or where the user keeps it.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub identity: Identity,
    /// The bzImage.
    pub image: PathBuf,
    /// Directory that holds the modules (`kernel/…/*.ko[.xz|.zst]` somewhere below), `None` for a kernel without modules.
    pub modules: Option<PathBuf>,
    pub config: Option<PathBuf>,
    /// System.map, where the package ships a real one.
    pub symbols: Option<PathBuf>,
}
