//! What can go wrong with a server of our own, told so that the user knows what would be right.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use bigiron_archive::KernelError;

#[derive(Debug, Error)]
pub enum ServerError {
    #[error(
        "Debian has no PostgreSQL {wanted} here; versions that can be had: {}",
        available.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    )]
    UnknownVersion { wanted: u32, available: Vec<u32> },
    #[error(
        "PostgreSQL is taken from Debian's archive, and {0}; use `oltp.url=postgresql://…` for a server of yours, or `oltp.engine=sqlite`"
    )]
    NoArchive(String),
    #[error("{0}")]
    Archive(KernelError),
    #[error(
        "The study was begun with a PostgreSQL whose files (hash {}…) are no longer kept, and Debian has {now} now: begin anew with `--out DIR`",
        planned.chars().take(12).collect::<String>()
    )]
    Replaced { planned: String, now: String },
    #[error("PostgreSQL {version} from Debian {release} is not usable: {reason}")]
    Packages { version: String, release: String, reason: String },
    #[error("No space left in `{}`; free some, or name a folder with room (BIGIRON_CACHE for what is kept, `--dir` or `--out` for runs)", dir.display())]
    Space { dir: PathBuf },
    #[error("{0}")]
    Setting(String),
    #[error("{0}")]
    Cluster(String),
    #[error("{action} `{}`: {cause}", path.display())]
    Io { action: &'static str, path: PathBuf, cause: io::Error },
}

impl From<KernelError> for ServerError {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::NoApt(tool) => Self::NoArchive(format!("this machine has no `{tool}`")),
            KernelError::NoDebianSource(why) => {
                Self::NoArchive(format!("apt has no source of it on this machine ({why})"))
            }
            other => Self::Archive(other),
        }
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
