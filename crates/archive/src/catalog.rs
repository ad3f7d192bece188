//! Kernel packages in a distribution's package indexes: which exist, and which one matches a version and flavour. The indexes also include packages of
//! servers.
//!
//! Invariant: only package names are interpreted here, never names of files in packages.

use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

use super::closure::SeriesPackage;
use super::distribution::{Distribution, flavour_of};
use bigiron_model::version;

/// One package of an index that belongs to a kernel or a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Bytes to download.
    pub size: u64,
    /// Bytes once unpacked.
    pub installed: u64,
    /// Names of the kernel packages it depends on (Debian's shell packages of 6.19 and later, and Ubuntu's images).
    #[serde(default)]
    pub depends: Vec<String>,
}

impl Package {
    /// The release and flavour, for a package that is a kernel's main package: (`6.12.113+deb12-cloud-amd64`, `cloud-amd64`).
    pub fn kernel(&self) -> Option<(&str, &'static str)> {
        let release = self.name.strip_prefix("linux-image-")?;
        let flavour = flavour_of(release)?;
        release.starts_with(|c: char| c.is_ascii_digit()).then_some((release, flavour))
    }
}

/// The kernel and server packages of one index in the format of Debian's `Packages` files.
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
            let wanted = |n: &&str| is_kernel_package(n) || is_server_package(n);
            current = str::from_utf8(name).ok().filter(wanted).map(|name| Package {
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
        && flavour_of(name).is_some()
}

/// The packages of servers that an index keeps.
const SERVERS: [SeriesPackage; 6] = [
    SeriesPackage::InName("postgresql"),
    SeriesPackage::InVersion("mariadb-server-core"),
    SeriesPackage::InVersion("nginx"),
    SeriesPackage::InVersion("apache2-bin"),
    SeriesPackage::InVersion("samba"),
    SeriesPackage::InVersion("openjdk-17-jre-headless"),
];

fn is_server_package(name: &str) -> bool {
    SERVERS.iter().any(|server| server.is_name(name))
}

/// The newest complete kernel of `flavour` that satisfies `wanted`.
pub fn best<'a>(packages: &'a [Package], wanted: &str, flavour: &str) -> Option<&'a Package> {
    packages
        .iter()
        .filter(|p| p.kernel().is_some_and(|(_, f)| f == flavour) && version::satisfies(&p.version, wanted))
        .filter(|p| KernelPackages::of(packages, p).lacking.is_empty())
        .max_by(|a, b| version::compare(&a.version, &b.version))
}

/// The packages that make up one kernel.
#[derive(Debug, Default)]
pub struct KernelPackages<'a> {
    pub packages: Vec<&'a Package>,
    /// Names of parts that the index lacks. Archives keep such remains of kernels that they no longer build.
    pub lacking: Vec<&'a str>,
}

impl<'a> KernelPackages<'a> {
    /// `image` itself and, if it is a shell, the kernel packages of the same version on which it depends.
    pub fn of(packages: &'a [Package], image: &'a Package) -> Self {
        let mut parts = Self { packages: vec![image], lacking: Vec::new() };
        if !is_shell(&image.depends) {
            return parts;
        }
        let mut next = 0;
        while let Some(part) = parts.packages.get(next).copied() {
            for name in &part.depends {
                if parts.packages.iter().any(|p| p.name == *name) {
                    continue;
                }
                match packages.iter().find(|p| p.name == *name && is_build_of(&p.version, &image.version)) {
                    Some(found) => parts.packages.push(found),
                    None => parts.lacking.push(name),
                }
            }
            next += 1;
        }
        parts
    }
}

/// Whether a part of `version` belongs to an image of `image`. Ubuntu signs images in a source package of its own, which may be built again.
fn is_build_of(version: &str, image: &str) -> bool {
    image.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
}

/// Whether a package with these dependencies is only a part of a kernel. At Debian, a kernel up to 6.18 is in one package, and `linux-base-…` contains
/// only documentation; from 6.19 on image, modules and configuration are separate packages. At Ubuntu, image and modules are.
pub(super) fn is_shell(depends: &[String]) -> bool {
    depends.iter().any(|d| d.starts_with("linux-binary-") || d.starts_with("linux-modules-"))
}

/// Series of one flavour that are completely available, oldest first.
pub fn series<'a>(lists: impl IntoIterator<Item = &'a [Package]>, flavour: &str) -> Vec<String> {
    let mut found = Vec::new();
    for packages in lists {
        let kernels = packages.iter().filter(|p| p.kernel().is_some_and(|(_, f)| f == flavour));
        let whole = kernels.filter(|p| KernelPackages::of(packages, p).lacking.is_empty());
        found.extend(whole.filter_map(|p| version::series(&p.version)));
    }
    found.sort_by(|a, b| version::compare(a, b));
    found.dedup();
    found
}

/// Versions of one flavour that are completely available, oldest first; of several builds of one upstream version, only the newest.
pub fn versions<'a>(
    lists: impl IntoIterator<Item = &'a [Package]>,
    distribution: Distribution,
    flavour: &str,
) -> Vec<String> {
    let mut found = Vec::new();
    for packages in lists {
        let kernels = packages.iter().filter(|p| p.kernel().is_some_and(|(_, f)| f == flavour));
        found.extend(kernels.filter(|p| KernelPackages::of(packages, p).lacking.is_empty()).map(|p| p.version.clone()));
    }
    newest_builds(found, distribution)
}

/// The newest build of each kernel in `versions`, in order.
pub fn newest_builds(mut versions: Vec<String>, distribution: Distribution) -> Vec<String> {
    versions.sort_by(|a, b| version::compare(b, a));
    versions.dedup_by(|a, b| distribution.kernel_of(a) == distribution.kernel_of(b));
    versions.reverse();
    versions
}

/// The newest version of the series that is `back` before the newest series; `versions` are the oldest first.
pub fn newest_of_series(versions: &[String], back: usize) -> Option<&str> {
    let mut newest: Vec<&str> = Vec::new();
    for version in versions.iter().rev() {
        if newest.last().is_none_or(|last| version::series(last) != version::series(version)) {
            newest.push(version);
        }
    }
    newest.get(back).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_series_is_known_by_its_newest_version() {
        let versions = ["6.1.170-1", "6.1.192-2", "6.12.90-1", "6.12.117-1~deb12u1", "7.2.3-1"].map(str::to_owned);
        assert_eq!(newest_of_series(&versions, 0), Some("7.2.3-1"));
        assert_eq!(newest_of_series(&versions, 1), Some("6.12.117-1~deb12u1"));
        assert_eq!(newest_of_series(&versions[..2], 1), None);
    }

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
        assert_eq!(series([&all[..]], "cloud-amd64"), ["6.1", "7.2"]);
        assert_eq!(
            versions([&all[..]], Distribution::Debian, "cloud-amd64"),
            ["6.1.190-1", "6.1.192-1", "7.2.12-1~bpo13+1"]
        );
    }

    #[test]
    fn builds_of_one_version_are_one_kernel() {
        let all = ["6.12.90-1~bpo12+1", "6.12.90-2", "6.12.9-1", "6.12.90-1"].map(str::to_owned).to_vec();
        assert_eq!(newest_builds(all, Distribution::Debian), ["6.12.9-1", "6.12.90-2"]);
    }

    #[test]
    fn a_shell_package_brings_its_parts() {
        let all = read_index(INDEX.as_bytes()).unwrap();
        let shell = best(&all, "7.2", "cloud-amd64").unwrap();
        let parts = KernelPackages::of(&all, shell);
        let mut names: Vec<_> = parts.packages.iter().map(|p| p.name.split("-7").next().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["linux-base", "linux-binary", "linux-image", "linux-modules"]);
        assert!(parts.lacking.is_empty());
    }

    #[test]
    fn an_image_of_ubuntu_brings_its_modules() {
        let text = "\
Package: linux-image-6.8.0-50-generic
Version: 6.8.0-50.51+1
Depends: kmod, linux-base (>= 4.5ubuntu1~16.04.1), linux-modules-6.8.0-50-generic

Package: linux-image-unsigned-6.8.0-50-generic
Version: 6.8.0-50.51

Package: linux-modules-6.8.0-50-generic
Version: 6.8.0-50.51

Package: linux-modules-extra-6.8.0-50-generic
Version: 6.8.0-50.51

Package: linux-image-6.8.0-49-generic
Version: 6.8.0-49.49
Depends: kmod, linux-modules-6.8.0-49-generic
";
        let all = read_index(text.as_bytes()).unwrap();
        let image = best(&all, "6.8", "generic").unwrap();
        let parts = KernelPackages::of(&all, image);
        let names: Vec<_> = parts.packages.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["linux-image-6.8.0-50-generic", "linux-modules-6.8.0-50-generic"]);
        // Of 49 there are no modules.
        assert_eq!(versions([&all[..]], Distribution::Ubuntu, "generic"), ["6.8.0-50.51+1"]);
    }

    #[test]
    fn a_whole_package_needs_no_documentation() {
        let text = "Package: linux-image-6.18.15+deb13-amd64\nVersion: 6.18.15-1\nDepends: kmod, linux-base-6.18.15+deb13-amd64 (= 6.18.15-1)\n";
        let all = read_index(text.as_bytes()).unwrap();
        assert_eq!(KernelPackages::of(&all, best(&all, "6.18", "amd64").unwrap()).packages.len(), 1);
    }

    #[test]
    fn remains_of_a_kernel_are_not_offered() {
        let all = read_index(INDEX.as_bytes()).unwrap();
        let without = |part: &str| all.iter().filter(|p| !p.name.starts_with(part)).cloned().collect::<Vec<_>>();
        for part in ["linux-modules", "linux-binary", "linux-base"] {
            let rest = without(part);
            assert_eq!(best(&rest, "7.2", "cloud-amd64"), None);
            assert_eq!(series([&rest[..]], "cloud-amd64"), ["6.1"]);
        }
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
                KernelPackages::of(&all, p);
            }
            series([&all[..]], "amd64");
        }
    }
}
