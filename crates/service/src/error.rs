//! Errors of bigiron's own servers, which tell the user what would be right.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use bigiron_archive::KernelError;

use super::recipe::Recipe;

#[derive(Debug, Error)]
pub enum ServerError {
    #[error(
        "Debian has no {title} {wanted} here; available versions: {}",
        available.join(", ")
    )]
    UnknownVersion { title: &'static str, wanted: String, available: Vec<String> },
    #[error("{title} is taken from Debian's archive, and {why}; {instead}")]
    NoArchive { title: &'static str, why: String, instead: &'static str },
    #[error("{0}")]
    Archive(KernelError),
    #[error(
        "The study was begun with a {title} whose files (hash {}…) are gone, and Debian now has {now}; start a new study with `--out DIR`",
        planned.chars().take(12).collect::<String>()
    )]
    Replaced { title: &'static str, planned: String, now: String },
    #[error("{title} {version} from Debian {release} is not usable: {reason}")]
    Packages { title: &'static str, version: String, release: String, reason: String },
    #[error("No space left in `{}`; free some, or name a folder with room (BIGIRON_CACHE for the cache, `--dir` or `--out` for runs)", dir.display())]
    Space { dir: PathBuf },
    #[error("{0}")]
    Setting(String),
    /// It does not start, does not stop, or fails while running.
    #[error("{0}")]
    Failed(String),
    #[error("{action} `{}`: {cause}", path.display())]
    Io { action: &'static str, path: PathBuf, cause: io::Error },
}

impl ServerError {
    /// The error for the server of `recipe` when the archive refuses.
    pub(crate) fn of_archive(recipe: &Recipe, error: KernelError) -> Self {
        let why = match error {
            KernelError::NoApt(tool) => format!("this machine has no `{tool}`"),
            KernelError::NoSource { reason, .. } => {
                format!("Debian's archive is not among this machine's apt sources ({reason})")
            }
            other => return Self::Archive(other),
        };
        Self::NoArchive { title: recipe.title, why, instead: recipe.instead }
    }
}

impl From<KernelError> for ServerError {
    fn from(error: KernelError) -> Self {
        Self::Archive(error)
    }
}

/// For `map_err`: `fs::read(p).map_err(doing("Cannot read", p))`. A full disk gets its own message.
pub fn doing<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> ServerError + 'a {
    move |cause| match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ServerError::Space { dir: path.parent().unwrap_or(path).to_path_buf() }
        }
        _ => ServerError::Io { action, path: path.to_path_buf(), cause },
    }
}
