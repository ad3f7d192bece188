//! The result of building a commit, kept in the bisection's folder.
//!
//! Invariant: a record appears whole or not at all, so that a commit is either known to be built, known not to build, or not yet tried.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bisect::folder::{self, BisectError};
use bigiron_model::folder_files;
use bigiron_model::identity::Identity;
use bigiron_model::store::StoreError;

/// The folder of the records and logs, below the bisection's.
pub const FOLDER: &str = "builds";

/// The result of building one commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Built {
    pub commit: String,
    pub outcome: BuildOutcome,
    /// Why it could not be built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Duration of make in seconds; 0 if the kernel was in the cache.
    pub seconds: f64,
    /// Bytes of the boot image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_bytes: Option<u64>,
    /// The log's file, below the bisection's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Identity>,
}

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuildOutcome {
    Built,
    /// Built earlier with the same configuration.
    Cached,
    Failed,
}

impl Built {
    fn file(commit: &str) -> String {
        format!("{}.toml", super::short(commit))
    }

    /// The name of the log of `commit`, below the bisection's folder.
    pub fn log(commit: &str) -> String {
        format!("{FOLDER}/{}.log", super::short(commit))
    }

    /// Writes the record to the bisection's folder `dir`.
    pub fn write(&self, dir: &Path) -> Result<(), BisectError> {
        let folder = dir.join(FOLDER);
        folder_files::make_folders(dir, FOLDER).map_err(|e| StoreError::io("create the folder", &folder, e))?;
        folder::write(&folder, &Self::file(&self.commit), self)
    }

    /// The record of `commit` in the bisection's folder `dir`.
    pub fn read(dir: &Path, commit: &str) -> Result<Option<Built>, BisectError> {
        folder::read(&dir.join(FOLDER), &Self::file(commit))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(Built::read(dir.path(), commit).unwrap(), None);
        let built = Built {
            commit: commit.to_owned(),
            outcome: BuildOutcome::Failed,
            why: Some("make failed".to_owned()),
            seconds: 1.5,
            image_bytes: None,
            log: Some(Built::log(commit)),
            kernel: None,
        };
        built.write(dir.path()).unwrap();
        assert_eq!(Built::read(dir.path(), commit).unwrap(), Some(built));
        fs::write(dir.path().join("builds/0123456789ab.toml"), "commit = 1").unwrap();
        assert!(Built::read(dir.path(), commit).unwrap_err().to_string().contains("0123456789ab.toml"));
    }

    #[test]
    fn a_received_folder_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        let bisection = dir.path().join("bisection");
        fs::create_dir(&outside).unwrap();
        fs::create_dir(&bisection).unwrap();
        let of = |commit: &str| Built {
            commit: commit.to_owned(),
            outcome: BuildOutcome::Built,
            why: None,
            seconds: 1.5,
            image_bytes: None,
            log: None,
            kernel: None,
        };
        of("../../../evil").write(&bisection).unwrap_err();
        fs::remove_dir_all(bisection.join(FOLDER)).unwrap();
        std::os::unix::fs::symlink(&outside, bisection.join(FOLDER)).unwrap();
        of("0123456789ab").write(&bisection).unwrap_err();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
