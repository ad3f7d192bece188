//! A server's root for tests: the tree from the user's own cache, fetched if it is missing.

use bigiron_archive::Store;

pub use crate::postgres::RECIPE;
use crate::root;

/// The series that tests use by default.
pub const SERIES: &str = "15";

pub fn tree() -> root::Root {
    root::ensure(&Store::open().unwrap(), &RECIPE, SERIES, &|line| eprintln!("{line}")).unwrap()
}
