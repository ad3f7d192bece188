//! What is told of the place at which the change was found: the options in which its two configurations differ, and the functions that cost more.
//!
//! Invariant: it is kept in the bisection's folder, so that a report can be made again without the tree.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::kconfig::Described;
use crate::bisect::folder::{self, BisectError};
use crate::bisect::git::touched::Function;

const FILE: &str = "switched.toml";

/// What is known of the place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switched {
    /// The place: the names of the last link before it and of the first after it.
    pub good: String,
    pub bad: String,
    /// Whether the functions that cost more were profiled.
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
        folder::write(dir, FILE, self)
    }

    /// What is kept in `dir`.
    pub fn read(dir: &Path) -> Result<Option<Switched>, BisectError> {
        folder::read(dir, FILE)
    }
}
