//! The kernel of this machine, and the specification that boots it in a guest.

use std::fs;
use std::path::Path;

use super::distribution::{Distribution, flavour_of};
use super::{regular_file, spec};

/// The kernel of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentKernel {
    /// `uname -r`.
    pub release: String,
    /// The version of the distribution's package, if the kernel reports one.
    pub version: Option<String>,
    /// The flavour, for a kernel of a distribution.
    pub flavour: Option<&'static str>,
    /// The specification that boots it in a guest: `running`, or its package in the archive if its image cannot be read; `None` if there is
    /// neither.
    pub spec: Option<String>,
    /// The machine's distribution according to `os-release`, and the kernel series of that release.
    pub machine: Option<(Distribution, &'static str)>,
}

impl PresentKernel {
    /// The kernel of the machine whose files are below `root`; `release` is its `uname -r`.
    pub fn below(root: &Path, release: &str) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let flavour = flavour_of(release);
        let origin = ubuntu(&read("proc/version_signature"))
            .map(|version| (Distribution::Ubuntu, version))
            .or_else(|| Some((Distribution::Debian, debian(&read("proc/version"))?)));
        let images = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
        let has_image = images.iter().any(|image| regular_file::open(&root.join(image)).is_ok());
        let archived = origin.as_ref().zip(flavour).filter(|((of, _), flavour)| of.flavours().contains(flavour));
        let spec = match archived {
            _ if has_image => Some("running".to_owned()),
            Some(((of, version), flavour)) => Some(spec::of_archive(*of, version.clone(), flavour)),
            None => None,
        };
        Self {
            release: release.to_owned(),
            version: origin.map(|(_, version)| version),
            flavour,
            spec,
            machine: machine(&read("etc/os-release")),
        }
    }
}

/// The version in `/proc/version` of Debian's kernels: `… PREEMPT_DYNAMIC Debian 6.1.192-1 (2026-09-01)`.
fn debian(version: &str) -> Option<String> {
    let (_, rest) = version.split_once(" Debian ")?;
    let version = rest.split_whitespace().next()?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}

/// The version in `/proc/version_signature` of Ubuntu's kernels: `Ubuntu 6.8.0-50.51-generic 6.8.12`.
fn ubuntu(signature: &str) -> Option<String> {
    let name = signature.strip_prefix("Ubuntu ")?.split_whitespace().next()?;
    let version = name.strip_suffix(flavour_of(name)?)?.strip_suffix('-')?;
    Some(version.to_owned())
}

/// The distribution and the series of its release's kernel, from an `os-release` file.
fn machine(text: &str) -> Option<(Distribution, &'static str)> {
    let field = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(value.trim_matches('"').to_owned())
    };
    let distribution = Distribution::from_name(&field("ID")?)?;
    let number = field("VERSION_ID")?;
    Some((distribution, distribution.releases().iter().find(|release| release.number == number)?.series))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOKWORM: &str = "ID=debian\nVERSION_ID=\"12\"\n";

    fn present(release: &str, files: &[(&str, &str)]) -> PresentKernel {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        PresentKernel::below(dir.path(), release)
    }

    #[test]
    fn a_kernel_is_named_by_its_image_or_its_package() {
        let version =
            "Linux version 6.1.0-53-amd64 (x@y) (gcc-12) #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-1 (2026-09-01)\n";
        let files = [("proc/version", version), ("etc/os-release", BOOKWORM)];
        let found = present("6.1.0-53-amd64", &files);
        assert_eq!(found.spec.as_deref(), Some("debian:6.1.192-1/amd64"));
        assert_eq!((found.version.as_deref(), found.flavour), (Some("6.1.192-1"), Some("amd64")));
        assert_eq!(found.machine, Some((Distribution::Debian, "6.1")));
        let with_image = [files[0], files[1], ("boot/vmlinuz-6.1.0-53-amd64", "image")];
        assert_eq!(present("6.1.0-53-amd64", &with_image).spec.as_deref(), Some("running"));
    }

    #[test]
    fn ubuntu_signs_the_version_of_its_kernel() {
        let files = [
            ("proc/version_signature", "Ubuntu 6.8.0-50.51-generic 6.8.12\n"),
            ("etc/os-release", "NAME=\"Ubuntu\"\nID=ubuntu\nVERSION_ID=\"24.04\"\n"),
        ];
        let found = present("6.8.0-50-generic", &files);
        assert_eq!(found.spec.as_deref(), Some("ubuntu:6.8.0-50.51"));
        assert_eq!(found.machine, Some((Distribution::Ubuntu, "6.8")));
    }

    #[test]
    fn a_kernel_of_no_distribution_has_no_specification() {
        let files =
            [("proc/version", "Linux version 6.18.44-custom (me@here) #1 SMP @0\n"), ("etc/os-release", BOOKWORM)];
        let found = present("6.18.44-custom", &files);
        assert_eq!((found.spec, found.version, found.flavour), (None, None, None));
        assert_eq!(found.machine, Some((Distribution::Debian, "6.1")));
        assert_eq!(present("6.18.44", &[]).machine, None);
    }
}
