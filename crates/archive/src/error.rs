//! Errors about kernels, which tell the user what would be right.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::distribution::Distribution;

#[derive(Debug, Error)]
pub enum KernelError {
    #[error("{0}")]
    Spec(String),
    #[error(
        "No kernel is named `{name}`; {known}. Add one with `bigiron kernel add {name} …`, or name `debian:6.12`, a path, or `running`"
    )]
    UnknownName { name: String, known: String },
    #[error("{distribution}'s archive has no kernel `{wanted}` of flavour `{flavour}`; available {available}")]
    UnknownVersion { distribution: Distribution, wanted: String, flavour: String, available: String },
    #[error(
        "`debian:` and `ubuntu:` kernels need apt, and this machine has no `{0}`; give a .deb, a bzImage with its modules, or a build tree instead"
    )]
    NoApt(String),
    #[error(
        "`{}:` kernels need {distribution}'s archive among this machine's apt sources ({reason}); add it, or give a .deb, a bzImage with its modules, or a build tree",
        distribution.name()
    )]
    NoSource { distribution: Distribution, reason: String },
    #[error("Cannot read the archive's package lists: {0}")]
    Update(String),
    #[error("Cannot download `{package}`: {reason}")]
    Download { package: String, reason: String },
    #[error("`{}` is not a usable Debian package: {reason}", path.display())]
    Deb { path: PathBuf, reason: String },
    #[error("`{}` is not a usable kernel image: {reason}; it must be a bzImage for x86-64", path.display())]
    Image { path: PathBuf, reason: String },
    #[error("`{}` cannot be used: {reason}; name a file with a kernel's image or configuration", path.display())]
    NoFile { path: PathBuf, reason: String },
    #[error("`{}` is not a usable build tree: {reason}", path.display())]
    BuildTree { path: PathBuf, reason: String },
    #[error("`{}` is not a usable kernel module: {reason}", path.display())]
    Module { path: PathBuf, reason: String },
    #[error("`{}` was built for kernel {found}, not for {wanted}; give the modules of {wanted}", path.display())]
    OtherRelease { path: PathBuf, found: String, wanted: String },
    #[error("Kernel {release} has no module `{module}`: not below `{}` and not built in", dir.display())]
    ModuleNotFound { module: String, release: String, dir: PathBuf },
    #[error("No space left in `{}`{need}; free some, `bigiron kernel remove` one, or set BIGIRON_CACHE to a folder with room", dir.display())]
    Space { dir: PathBuf, need: String },
    #[error("`{}` in the kernel cache no longer holds the bytes it was stored with (sha256 {found}, was {wanted}); `bigiron kernel remove {release}` and fetch it again", path.display())]
    Changed { path: PathBuf, found: String, wanted: String, release: String },
    #[error(
        "Kernel {release} (image {sha256:.12}…) is not in the cache; `bigiron kernel fetch {spec}` may fetch it again"
    )]
    NotCached { release: String, sha256: String, spec: String },
    #[error("{0}")]
    Running(String),
    /// `cause` is part of the message, and therefore not a `source`, which would be printed twice.
    #[error("{action} `{}`: {cause}", path.display())]
    Io { action: &'static str, path: PathBuf, cause: io::Error },
}

impl KernelError {
    /// No source of the machine is the distribution's own.
    pub(super) fn unsigned(distribution: Distribution) -> Self {
        Self::NoSource { distribution, reason: format!("no source is signed as {distribution}'s") }
    }

    /// An I/O error with the failed action; a full disk gets its own message.
    pub fn io(action: &'static str, path: &Path, cause: io::Error) -> Self {
        if is_full(&cause) {
            let dir = path.parent().unwrap_or(path).to_path_buf();
            return Self::Space { dir, need: String::new() };
        }
        Self::Io { action, path: path.to_path_buf(), cause }
    }
}

pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// For `map_err`: `fs::read(p).map_err(doing("Cannot read", p))`.
pub fn doing<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> KernelError + 'a {
    move |cause| KernelError::io(action, path, cause)
}
