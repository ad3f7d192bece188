//! Kernel packages in Debian's package indexes: which there are, and which one a version and flavour mean.
//!
//! Invariant: only the names of packages are interpreted here, never those of files inside them.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

use super::version;

/// Flavours that Debian builds for amd64, longest suffix first so that `cloud-amd64` is not taken for `amd64`.
const FLAVOURS: [&str; 3] = ["cloud-amd64", "rt-amd64", "amd64"];

/// One package of an index that a kernel may be made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Bytes to download.
    pub size: u64,
    /// Bytes once unpacked.
    pub installed: u64,
    /// Names of the kernel packages it depends on (the shell packages of 6.19 and later).
    #[serde(default)]
    pub depends: Vec<String>,
}

impl Package {
    /// The release and flavour, for a package that is a kernel's entry point: (`6.12.113+deb12-cloud-amd64`, `cloud-amd64`).
    pub fn kernel(&self) -> Option<(&str, &'static str)> {
        let release = self.name.strip_prefix("linux-image-")?;
        let flavour = FLAVOURS.into_iter().find(|f| release.strip_suffix(f).is_some_and(|r| r.ends_with('-')))?;
        release.starts_with(|c: char| c.is_ascii_digit()).then_some((release, flavour))
    }
}

/// The kernel packages of one index in the format of Debian's `Packages` files.
pub fn read_index(mut input: impl BufRead) -> io::Result<Vec<Package>> {
    let mut packages = Vec::new();
    let mut current: Option<Package> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let more = input.read_until(b'\n', &mut line)? > 0;
        let text = line.trim_ascii_end();
        if !more || text.is_empty() {
            packages.extend(current.take().filter(|p| !p.version.is_empty()));
            if !more {
                return Ok(packages);
            }
            continue;
        }
        if let Some(name) = text.strip_prefix(b"Package: ") {
            current = str::from_utf8(name).ok().filter(|n| is_kernel_package(n)).map(|name| Package {
                name: name.to_owned(),
                version: String::new(),
                size: 0,
                installed: 0,
                depends: Vec::new(),
            });
        } else if let Some(package) = &mut current
            && let Ok(text) = str::from_utf8(text)
            && let Some((key, value)) = text.split_once(": ")
        {
            match key {
                "Version" => package.version = value.to_owned(),
                "Size" => package.size = value.parse().unwrap_or(0),
                "Installed-Size" => package.installed = value.parse::<u64>().unwrap_or(0).saturating_mul(1024),
                "Depends" => {
                    let names = value.split(',').filter_map(|d| d.split_whitespace().next());
                    package.depends = names.filter(|n| is_kernel_package(n)).map(str::to_owned).collect();
                }
                _ => {}
            }
        }
    }
}

pub(super) fn is_kernel_package(name: &str) -> bool {
    ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"]
        .iter()
        .any(|p| name.strip_prefix(p).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
        && FLAVOURS.iter().any(|f| name.ends_with(f))
}

/// The newest kernel of `flavour` that satisfies `wanted`.
pub fn best<'a>(packages: impl IntoIterator<Item = &'a Package>, wanted: &str, flavour: &str) -> Option<&'a Package> {
    packages
        .into_iter()
        .filter(|p| p.kernel().is_some_and(|(_, f)| f == flavour) && version::satisfies(&p.version, wanted))
        .max_by(|a, b| version::compare(&a.version, &b.version))
}

/// All packages that make up the kernel `image`: itself and the kernel packages it depends on, of the same version.
pub fn parts<'a>(packages: &'a [Package], image: &'a Package) -> Result<Vec<&'a Package>, String> {
    let mut parts = vec![image];
    let mut next = 0;
    while let Some(part) = parts.get(next) {
        for name in &part.depends {
            if parts.iter().any(|p| p.name == *name) {
                continue;
            }
            let found = packages.iter().find(|p| p.name == *name && p.version == image.version);
            parts.push(
                found.ok_or_else(|| format!("its part `{name}` of version {} is not in the index", image.version))?,
            );
        }
        next += 1;
    }
    Ok(parts)
}

/// Series and their newest version of one flavour, oldest series first.
pub fn series<'a>(packages: impl IntoIterator<Item = &'a Package>, flavour: &str) -> Vec<(String, &'a str)> {
    let mut found: BTreeMap<String, &str> = BTreeMap::new();
    for p in packages.into_iter().filter(|p| p.kernel().is_some_and(|(_, f)| f == flavour)) {
        let Some(series) = version::series(&p.version) else { continue };
        let newest = found.entry(series).or_insert(&p.version);
        if version::compare(&p.version, newest).is_gt() {
            *newest = &p.version;
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|a, b| version::compare(&a.0, &b.0));
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INDEX: &str = "\
Package: linux-image-6.1.0-52-cloud-amd64
Version: 6.1.190-1
Installed-Size: 100
Size: 20

Package: linux-image-6.1.0-53-cloud-amd64
Version: 6.1.192-1
Depends: kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool
Installed-Size: 100
Size: 21

Package: linux-image-6.1.0-53-amd64
Version: 6.1.192-1

Package: linux-image-6.1.0-53-rt-amd64
Version: 6.1.192-1

Package: linux-image-6.1.0-53-cloud-amd64-dbg
Version: 6.1.192-1

Package: linux-image-cloud-amd64
Version: 6.1.192-1

Package: linux-image-7.2.12+deb13-cloud-amd64
Depends: dracut | linux-initramfs-tool, linux-base-7.2.12+deb13-cloud-amd64 (= 7.2.12-1~bpo13+1), linux-binary-7.2.12+deb13-cloud-amd64 (= 7.2.12-1~bpo13+1), linux-modules-7.2.12+deb13-cloud-amd64 (= 7.2.12-1~bpo13+1)
Version: 7.2.12-1~bpo13+1

Package: linux-base-7.2.12+deb13-cloud-amd64
Version: 7.2.12-1~bpo13+1

Package: linux-binary-7.2.12+deb13-cloud-amd64
Version: 7.2.12-1~bpo13+1

Package: linux-modules-7.2.12+deb13-cloud-amd64
Version: 7.2.12-1~bpo13+1";

    #[test]
    fn newest_of_series_and_flavour() {
        let all = read_index(INDEX.as_bytes()).unwrap();
        assert_eq!(best(&all, "6.1", "cloud-amd64").unwrap().name, "linux-image-6.1.0-53-cloud-amd64");
        assert_eq!(best(&all, "6.1.190", "cloud-amd64").unwrap().installed, 102_400);
        assert_eq!(best(&all, "6.1", "amd64").unwrap().kernel(), Some(("6.1.0-53-amd64", "amd64")));
        assert_eq!(best(&all, "6.1", "rt-amd64").unwrap().name, "linux-image-6.1.0-53-rt-amd64");
        assert_eq!(best(&all, "6.9", "cloud-amd64"), None);
        assert_eq!(
            series(&all, "cloud-amd64"),
            [("6.1".to_owned(), "6.1.192-1"), ("7.2".to_owned(), "7.2.12-1~bpo13+1")]
        );
    }

    #[test]
    fn a_shell_package_brings_its_parts() {
        let all = read_index(INDEX.as_bytes()).unwrap();
        let shell = best(&all, "7.2", "cloud-amd64").unwrap();
        let mut names: Vec<_> =
            parts(&all, shell).unwrap().iter().map(|p| p.name.split("-7").next().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["linux-base", "linux-binary", "linux-image", "linux-modules"]);
        let without: Vec<_> = all.iter().filter(|p| !p.name.starts_with("linux-modules")).cloned().collect();
        let shell = best(&without, "7.2", "cloud-amd64").unwrap();
        assert!(parts(&without, shell).unwrap_err().contains("linux-modules-7.2.12"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            read_index(&bytes[..]).unwrap();
        }

        #[test]
        fn any_fields_are_read(text in "(Package: linux-(image|base)-[0-9a-z.+-]{0,20}amd64\n|Version: .{0,8}\n|Size: .{0,8}\n|Depends: .{0,20}\n|\n){0,12}") {
            let all = read_index(text.as_bytes()).unwrap();
            for p in &all {
                let _ = parts(&all, p);
            }
            series(&all, "amd64");
        }
    }
}
