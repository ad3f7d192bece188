//! The recipe for a server from Debian's archive: its package, and the files that it needs to run.

use std::path::Path;

use bigiron_archive::SeriesPackage;

use super::error::ServerError;
use super::programs::Programs;

/// A server in Debian's archive. A constant in the file that adds the server.
#[derive(Debug)]
pub struct Recipe {
    /// Its folder in the cache.
    pub name: &'static str,
    /// For people, without a version: `PostgreSQL`.
    pub title: &'static str,
    /// What a user can do without Debian's archive, for messages.
    pub instead: &'static str,
    /// Its package.
    pub package: SeriesPackage,
    /// The package whose version it has, if that is not its own package's.
    pub version_of: Option<&'static str>,
    /// Packages that it needs in addition to its own package's dependencies.
    pub beside: &'static [&'static str],
    /// Libraries that it does not need, by the prefixes of their packages' names.
    pub without: &'static [&'static str],
    /// The folder of its programs, and the folders of the libraries that it loads itself, from the root, for a series: `usr/lib/postgresql/15/bin`.
    pub programs: fn(&str) -> String,
    pub plugins: &'static [fn(&str) -> String],
    /// Beginnings of the names of libraries that it loads at run time, so that no program names them.
    pub loaded: &'static [&'static str],
    /// Programs that must exist.
    pub required: &'static [&'static str],
    /// The argument with which the first of them reports its version.
    pub version_argument: &'static str,
    /// Whether a file of a package is kept, given its path's parts in a usr-merged tree. Shared libraries are kept if they are needed.
    pub keeps: fn(&[&str], &str) -> bool,
    /// A file of bigiron's own that goes into the root, by its path there.
    pub own: Option<OwnFile>,
    /// Makes more files in a tree that is otherwise complete, with its own programs.
    pub finish: Option<Finish>,
    /// Whether its programs see `/sys`.
    pub sees_sys: bool,
    /// From 1; increased when other files of the same packages are kept.
    pub revision: u32,
    /// The user that an installed server runs as, and its name in a root of its own.
    pub user: &'static str,
}

/// A file that bigiron brings itself: its path from the root, and its bytes, `None` in an executable that does not have them.
pub type OwnFile = (&'static str, fn() -> Option<&'static [u8]>);

/// With a tree's programs, and the tree.
pub type Finish = fn(&Programs, &Path) -> Result<(), ServerError>;

impl PartialEq for Recipe {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Recipe {}
