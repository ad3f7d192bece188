//! The kernel that an arm boots.

use serde::{Deserialize, Serialize};

/// The identity of an arm's kernel. The plan and every record contain it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// As named by the user, e.g. `debian:6.12`.
    pub spec: String,
    /// The expected output of `uname -r` in the guest.
    pub release: String,
    /// The package and its version, if it came from one, e.g. `linux-image-6.12.117+deb12-cloud-amd64 6.12.117-1~deb12u1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Hash of the boot image's bytes, lower-case hexadecimal.
    pub image_sha256: String,
    /// Hash of the kernel's configuration file, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
}
