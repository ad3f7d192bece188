//! The distributions whose archives offer kernels, and the differences between them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A distribution whose archive has signed kernel packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    #[default]
    Debian,
    Ubuntu,
}

/// A release of a distribution.
#[derive(Debug, PartialEq, Eq)]
pub struct Release {
    pub number: &'static str,
    pub codename: &'static str,
    /// The series of its own kernel; backports and hardware enablement kernels belong to other series.
    pub series: &'static str,
}

const fn release(number: &'static str, codename: &'static str, series: &'static str) -> Release {
    Release { number, codename, series }
}

const DEBIAN: [Release; 3] =
    [release("11", "bullseye", "5.10"), release("12", "bookworm", "6.1"), release("13", "trixie", "6.12")];
const UBUNTU: [Release; 6] = [
    release("20.04", "focal", "5.4"),
    release("22.04", "jammy", "5.15"),
    release("24.04", "noble", "6.8"),
    release("25.04", "plucky", "6.14"),
    release("25.10", "questing", "6.17"),
    release("26.04", "resolute", "7.0"),
];
/// Other names of releases in Debian's archive.
const DEBIAN_ALIASES: [&str; 6] = ["oldoldstable", "oldstable", "stable", "testing", "unstable", "experimental"];

impl Distribution {
    pub const ALL: [Self; 2] = [Self::Debian, Self::Ubuntu];

    /// The word before the colon in a kernel's name: `debian` in `debian:6.12`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Ubuntu => "ubuntu",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|distribution| distribution.name() == name)
    }

    /// The releases whose kernel series is known, oldest first.
    pub fn releases(self) -> &'static [Release] {
        match self {
            Self::Debian => &DEBIAN,
            Self::Ubuntu => &UBUNTU,
        }
    }

    /// Releases to search for kernels, the most reliable first. A release that the archive does not have (yet, or any more) is skipped.
    pub fn searched(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &["sid", "trixie", "forky", "bookworm", "bullseye", "duke"],
            Self::Ubuntu => &["noble", "resolute", "jammy", "questing", "plucky", "focal"],
        }
    }

    /// The distribution that has a release of this code name.
    pub fn of_release(codename: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|distribution| {
            distribution.searched().contains(&codename)
                || (*distribution == Self::Debian && DEBIAN_ALIASES.contains(&codename))
        })
    }

    /// Flavours of kernels, the default first.
    pub fn flavours(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &["cloud-amd64", "amd64", "rt-amd64"],
            Self::Ubuntu => &["generic", "lowlatency", "kvm", "aws", "azure", "gcp", "oracle"],
        }
    }

    /// The default flavour. Debian's is the smallest that suffices for a VM and has no drivers for real hardware. Ubuntu builds no such
    /// flavour for every series.
    pub fn default_flavour(self) -> &'static str {
        self.flavours()[0]
    }

    /// Whether the field `Origin` of a suite's signed `Release` file is the distribution's: other vendors have releases with the same names.
    pub fn signs(self, origin: &str) -> bool {
        match self {
            Self::Debian => matches!(origin, "Debian" | "Debian Backports"),
            Self::Ubuntu => origin == "Ubuntu",
        }
    }

    /// The suffixes of a release's name for the suites with its updates.
    pub fn pockets(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &["", "-updates", "-backports"],
            Self::Ubuntu => &["", "-updates"],
        }
    }

    /// The part of the version that all builds of one kernel share: at Debian the upstream version; at Ubuntu, where all kernels of a series have
    /// the same upstream version, the number of the ABI as well.
    pub fn kernel_of(self, version: &str) -> &str {
        match self {
            Self::Debian => bigiron_model::version::upstream(version),
            Self::Ubuntu => version.rsplit_once('.').map_or(version, |(kernel, _)| kernel),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debian => "Debian",
            Self::Ubuntu => "Ubuntu",
        })
    }
}

/// The flavour at the end of a kernel's release, such as `cloud-amd64` in `6.12.113+deb12-cloud-amd64`; if several fit, the longest.
pub fn flavour_of(release: &str) -> Option<&'static str> {
    let flavours = Distribution::ALL.into_iter().flat_map(Distribution::flavours).copied();
    let fitting = flavours.filter(|flavour| release.strip_suffix(flavour).is_some_and(|rest| rest.ends_with('-')));
    fitting.max_by_key(|flavour| flavour.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_release_is_searched() {
        for distribution in Distribution::ALL {
            for release in distribution.releases() {
                assert_eq!(Distribution::of_release(release.codename), Some(distribution));
            }
            assert_eq!(Distribution::from_name(distribution.name()), Some(distribution));
        }
        assert_eq!(Distribution::of_release("oldstable"), Some(Distribution::Debian));
        assert_eq!(Distribution::of_release("bookworm-pgdg"), None);
    }

    #[test]
    fn the_flavour_ends_a_release() {
        for (release, flavour) in [
            ("6.12.113+deb12-cloud-amd64", Some("cloud-amd64")),
            ("6.1.0-9-rt-amd64", Some("rt-amd64")),
            ("6.1.0-9-amd64", Some("amd64")),
            ("6.8.0-50-generic", Some("generic")),
            ("6.8.0-1021-aws", Some("aws")),
            ("6.1.0-9-amd64-dbg", None),
            ("generic", None),
        ] {
            assert_eq!(flavour_of(release), flavour, "{release}");
        }
    }

    #[test]
    fn builds_of_one_kernel_are_told_from_others() {
        assert_eq!(Distribution::Debian.kernel_of("6.12.90-1~bpo12+1"), "6.12.90");
        assert_eq!(Distribution::Ubuntu.kernel_of("6.8.0-50.51"), "6.8.0-50");
        assert_eq!(Distribution::Ubuntu.kernel_of("6.8.0-50.52"), "6.8.0-50");
    }
}
