//! Which kernel an arm boots.

use serde::{Deserialize, Serialize};

/// What identifies a kernel that an arm boots. Goes into the plan and into every record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// As the user named it, e.g. `debian:6.12`.
    pub spec: String,
    /// What `uname -r` must say in the guest.
    pub release: String,
    /// The package and its version, where there is one, e.g. `linux-image-6.12.117+deb12-cloud-amd64 6.12.117-1~deb12u1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Hash of the boot image's bytes, lower-case hexadecimal.
    pub image_sha256: String,
    /// Hash of the kernel's configuration file, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
}
