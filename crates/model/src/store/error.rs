//! Errors of a study's folder. Every message says what would be right.

use std::io;
use std::path::{Path, PathBuf};

use crate::folder_files;
use crate::size;

/// An error of the store. A `cause` is part of its message, and therefore not a `source`, which would be printed twice.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{}", no_study(dir))]
    NoStudy { dir: PathBuf },
    #[error("`{}` already holds a study; ask again to resume it, or name another folder", dir.display())]
    Exists { dir: PathBuf },
    #[error("`{}` is not empty and holds no study; name a new or an empty folder", dir.display())]
    NotEmpty { dir: PathBuf },
    #[error("`{}` has format {found}, this bigiron reads format {ours}; use the bigiron that made it", path.display())]
    Schema { path: PathBuf, found: i64, ours: u32 },
    #[error(
        "`{}` was changed after it was written: {why}. Its records belong to the plan as it was; restore it, or ask again in a new folder",
        path.display()
    )]
    Edited { path: PathBuf, why: String },
    #[error("`{}` is not a plan that this bigiron can read: {why}", path.display())]
    BadPlan { path: PathBuf, why: String },
    #[error("Another bigiron ({holder}) is at work in `{}`; wait for it to end, or stop it", dir.display())]
    Busy { dir: PathBuf, holder: String },
    #[error(
        "No room to {doing} `{}` ({free}): {cause}. Every record so far is intact; make room, and the same command resumes",
        path.display()
    )]
    Full { doing: String, path: PathBuf, free: String, cause: io::Error },
    #[error(
        "Two machines ran trial {trial} with different results: {why}. One of them does not execute the exact clock exactly, so this study cannot be \
         judged; find it, and ask again in a new folder. The results are in `{}`",
        dir.display()
    )]
    Deliveries { dir: PathBuf, trial: String, why: String },
    #[error(
        "`{}` is not what a worker of this study delivered: {why}. Remove its folder, `{}`, and the trial runs again",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    BadDelivery { path: PathBuf, why: String },
    #[error("Cannot write a record as JSON: {0}")]
    Unwritable(String),
    #[error("Cannot {doing} `{}`: {cause}", path.display())]
    Io { doing: String, path: PathBuf, cause: io::Error },
}

/// What is wrong with a path that is not a study's folder.
fn no_study(dir: &Path) -> String {
    let shown = dir.display();
    match dir.metadata() {
        Ok(data) if !data.is_dir() => format!("`{shown}` is a file; a study is a folder with a plan.toml"),
        Ok(_) => format!("`{shown}` holds no study: it has no plan.toml"),
        Err(_) => format!("There is no folder `{shown}`"),
    }
}

impl StoreError {
    /// Whether the folder that was named is the wrong one, rather than something having failed.
    pub fn is_wrong_folder(&self) -> bool {
        use StoreError::{BadPlan, Edited, Exists, NoStudy, NotEmpty, Schema};
        matches!(
            self,
            NoStudy { .. } | Exists { .. } | NotEmpty { .. } | Schema { .. } | Edited { .. } | BadPlan { .. }
        )
    }

    /// Wraps an I/O error; errors that mean "no room" become [`StoreError::Full`].
    pub fn io(doing: &str, path: &Path, cause: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        if matches!(cause.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
            let free = free_space(path);
            return StoreError::Full { doing: doing.to_owned(), path: path.to_owned(), free, cause };
        }
        StoreError::Io { doing: doing.to_owned(), path: path.to_owned(), cause }
    }

    /// Refuses a study's folder `name` below `dir` that is a symbolic link: its study would be written to elsewhere.
    ///
    /// # Errors
    /// It is one.
    pub fn refuse_link(dir: &Path, name: &str) -> Result<(), Self> {
        match folder_files::refuse_links(dir, &[name]) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
            refused => refused.map_err(|e| Self::io("open the study", &dir.join(name), e)),
        }
    }
}

/// "4 KiB free", for a message, from the nearest existing directory.
pub fn free_space(path: &Path) -> String {
    let known = path
        .ancestors()
        .find_map(|p| rustix::fs::statvfs(if p.as_os_str().is_empty() { Path::new(".") } else { p }).ok());
    match known {
        Some(fs) => format!("{} free", size::rounded(fs.f_bavail.saturating_mul(fs.f_frsize))),
        None => "free space unknown".to_owned(),
    }
}
