//! The facts reported about the place of a change: the options that differ between its two configurations, and the functions that
//! cost more.
//!
//! Invariant: they are kept in the bisection's folder, so that a report can be regenerated without the tree.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::kconfig::Described;
use crate::bisect::folder::{self, BisectError};
use crate::bisect::git::touched::Function;

const FILE: &str = "switched.toml";

/// The known facts about the place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switched {
    /// The place: the names of the last link before the change and of the first after it.
    pub good: String,
    pub bad: String,
    /// Whether the functions that cost more were profiled.
    pub looked: bool,
    /// The options that differ, those that were switched themselves first.
    pub options: Vec<Described>,
    /// The functions that cost more in the bad end, the largest increase first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
}

impl Switched {
    /// Writes the facts to the bisection's folder `dir`.
    pub fn write(&self, dir: &Path) -> Result<(), BisectError> {
        folder::write(dir, FILE, self)
    }

    /// Reads the facts in `dir`.
    pub fn read(dir: &Path) -> Result<Option<Switched>, BisectError> {
        folder::read(dir, FILE)
    }
}
