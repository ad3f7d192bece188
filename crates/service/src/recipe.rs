//! What makes a server of Debian's archive: where it comes from, and which files of its packages it runs with.

/// A server's part of Debian's archive. A constant of the file that adds the server.
#[derive(Debug)]
pub struct Recipe {
    /// Its folder in the cache.
    pub name: &'static str,
    /// For people, without a version: `PostgreSQL`.
    pub title: &'static str,
    /// What a user does without Debian's archive, for messages.
    pub instead: &'static str,
    /// Its package, but for the version: `postgresql` of `postgresql-15`.
    pub package: &'static str,
    /// Packages that it needs beside those that its own package names.
    pub beside: &'static [&'static str],
    /// Libraries, by the beginning of their packages' names, that it does without.
    pub without: &'static [&'static str],
    /// The folder of its programs and that of the libraries that it loads by itself, from the root: `usr/lib/postgresql/15/bin`.
    pub programs: fn(u32) -> String,
    pub plugins: fn(u32) -> String,
    /// Programs that must be there; the first answers `--version`.
    pub required: &'static [&'static str],
    /// Whether a file of a package is kept, given its path's parts in a usr-merged tree. Shared libraries are kept as far as they are needed.
    pub keeps: fn(&[&str], u32) -> bool,
    /// The user that it runs as where it is installed, and its name in a root of its own.
    pub user: &'static str,
}

impl PartialEq for Recipe {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Recipe {}
