//! A server's root for tests: the tree from the user's own cache, fetched if it is missing.

use bigiron_archive::Store;

pub use crate::postgres::RECIPE;
use crate::root;

/// The version that tests use by default.
pub const MAJOR: u32 = 15;

pub fn tree() -> root::Root {
    root::ensure(&Store::open().unwrap(), &RECIPE, MAJOR, &|line| eprintln!("{line}")).unwrap()
}
