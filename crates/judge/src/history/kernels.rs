//! The order of kernels by their versions.
//!
//! Invariant: a total order: the same entries always sort the same way.

use std::cmp::Ordering;

use super::entry::HistoryEntry;
use bigiron_model::identity::Identity;
use bigiron_model::version::compare as compare_versions;

/// Compares two kernels by version, then by what distinguishes two builds of one version.
pub fn compare(a: &Identity, b: &Identity) -> Ordering {
    compare_versions(&version(a), &version(b))
        .then_with(|| a.release.cmp(&b.release))
        .then_with(|| a.image_sha256.cmp(&b.image_sha256))
}

/// The most precise known version: the package's, which counts the stable updates, or the release. A release candidate sorts before its release.
pub fn version(kernel: &Identity) -> String {
    let package = kernel.package.as_deref().and_then(|p| p.rsplit_once(' ')).map(|(_, version)| version);
    package.unwrap_or(&kernel.release).replace("-rc", "~rc")
}

/// A short label: the upstream version where that alone identifies the kernel.
pub fn label(entry: &HistoryEntry) -> String {
    let version = version(&entry.kernel);
    version.split(['-', '+']).next().unwrap_or(&version).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(release: &str, package: Option<&str>) -> Identity {
        Identity {
            spec: String::new(),
            release: release.to_owned(),
            package: package.map(|v| format!("linux-image-{release} {v}")),
            image_sha256: String::new(),
            config_sha256: None,
        }
    }

    #[test]
    fn versions_are_numbers_and_candidates_come_first() {
        let kernels = [
            kernel("5.10.0-46-cloud-amd64", Some("5.10.262-1")),
            kernel("6.1.0-56-cloud-amd64", Some("6.1.192-2")),
            kernel("6.9.0-rc3", None),
            kernel("6.9.0", None),
            kernel("6.12.117+deb12-cloud-amd64", Some("6.12.117-1~deb12u1")),
            kernel("7.0~rc2-amd64", Some("7.0~rc2-1~exp1")),
            kernel("7.0-amd64", Some("7.0-1")),
        ];
        for (i, a) in kernels.iter().enumerate() {
            for (j, b) in kernels.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{} {}", a.release, b.release);
            }
        }
        assert_eq!(
            compare(&kernel("6.1.0-5", Some("6.1.100-1")), &kernel("6.1.0-9", Some("6.1.99-1"))),
            Ordering::Greater
        );
    }
}
