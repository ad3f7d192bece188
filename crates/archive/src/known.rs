//! Kernels for completion: those in the cache, and the series in the package lists as last read.
//!
//! Invariant: this module fetches and writes nothing and waits for nothing. It skips what it cannot read.

use std::fs;

use super::apt::{LISTING, Listing};
use super::catalog;
use super::store::Store;
use super::{CachedKernel, Distribution};
use bigiron_model::folder_files;

/// The kernels in the cache, oldest release first.
pub fn cached(store: &Store) -> Vec<CachedKernel> {
    store.list().unwrap_or_default()
}

/// The series of a distribution's kernels in its default flavour, oldest first, such as `6.12`.
pub fn series(store: &Store, distribution: Distribution) -> Vec<String> {
    let folders = fs::read_dir(store.dir().join("apt")).into_iter().flatten().flatten();
    let listings = folders.filter_map(|folder| folder_files::read(&folder.path(), LISTING).ok());
    let listings = listings.filter_map(|text| serde_json::from_slice::<Listing>(&text).ok());
    let listings: Vec<Listing> = listings.filter(|listing| distribution.signs(&listing.origin)).collect();
    catalog::series(listings.iter().map(|listing| &listing.packages[..]), distribution.default_flavour())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn put(cache: &Path, name: &str, bytes: &[u8]) {
        let path = cache.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn series_come_from_the_lists_as_last_read_and_a_broken_one_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let package = |name: &str, version: &str| {
            format!(r#"{{"name":"linux-image-{name}","version":"{version}","size":1,"installed":1}}"#)
        };
        let listing = |origin: &str, packages: &[String]| {
            let packages = packages.join(",");
            format!(r#"{{"checked":1,"origin":"{origin}","codename":"sid","packages":[{packages}]}}"#)
        };
        let debian = [
            package("6.12.9-cloud-amd64", "6.12.9-1"),
            package("6.1.0-9-cloud-amd64", "6.1.27-1"),
            package("6.1.0-8-cloud-amd64", "6.1.25-1"),
            package("6.18.1-amd64", "6.18.1-1"),
            // Its modules are no longer in the archive.
            r#"{"name":"linux-image-7.0.1-cloud-amd64","version":"7.0.1-1","size":1,"installed":1,"depends":["linux-modules-7.0.1-cloud-amd64"]}"#
                .to_owned(),
        ];
        put(dir.path(), "apt/bookworm-1/packages-4.json", listing("Debian", &debian).as_bytes());
        let other = [package("6.8.0-50-generic", "6.8.0-50.51"), package("5.15.0-cloud-amd64", "5.15.1-1")];
        put(dir.path(), "apt/noble-1/packages-4.json", listing("Ubuntu", &other).as_bytes());
        put(dir.path(), "apt/sid-1/packages-4.json", b"{\"checked\":");
        put(dir.path(), "kernels/x/entry.toml", b"\xff\xfe = [");
        put(dir.path(), "names/mine", b"x");
        let store = Store::at(dir.path()).unwrap();
        assert_eq!(series(&store, Distribution::Debian), ["6.1", "6.12"]);
        assert_eq!(series(&store, Distribution::Ubuntu), ["6.8"]);
        assert_eq!(cached(&store), []);
    }
}
