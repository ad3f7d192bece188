//! What is told of the place at which the change was found: the options in which its two configurations differ, and the functions that cost more.
//!
//! Invariant: it is kept in the bisection's folder, so that a report can be made again without the tree.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::kconfig::Described;
use crate::bisect::folder::BisectError;
use crate::bisect::git::touched::Function;
use crate::store::StoreError;
use crate::store::folder::write_whole;

const FILE: &str = "switched.toml";

/// What is known of the place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switched {
    /// The place: the names of the last link before it and of the first after it.
    pub good: String,
    pub bad: String,
    /// Whether the functions that cost more were looked into.
    pub looked: bool,
    /// What the two configurations differ in, those options first that were switched themselves.
    pub options: Vec<Described>,
    /// The functions that cost more in the bad end, those that matter most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
}

impl Switched {
    /// Keeps it in the bisection's folder `dir`.
    pub fn write(&self, dir: &Path) -> Result<(), BisectError> {
        let unreadable = |why: String| BisectError::Unreadable { path: dir.join(FILE), why };
        let text = toml::to_string(self).map_err(|e| unreadable(e.to_string()))?;
        write_whole(dir, FILE, text.as_bytes())?;
        Ok(())
    }

    /// What is kept in `dir`.
    pub fn read(dir: &Path) -> Result<Option<Switched>, BisectError> {
        let path = dir.join(FILE);
        let unreadable = |why: String| BisectError::Unreadable { path: path.clone(), why };
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map(Some).map_err(|e| unreadable(e.message().to_owned())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::io("read", &path, e).into()),
        }
    }
}
