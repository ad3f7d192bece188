//! The exact profile: a plugin of ours (crates/profile) with which QEMU counts the guest's instructions by their address, in windows that the
//! guest marks.
//!
//! Invariant: a guest with the plugin executes what it executes without it, in the same virtual time.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::fs::MemfdFlags;

use super::qemu::{Qemu, Version, prefixed};

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/profile.so"));

/// The first version that refuses plugins written for the interface of those before it.
const OTHER_INTERFACE: Version = Version(9, 0, 0);

/// The plugin, as a file that only this process has.
pub struct Plugin {
    file: File,
}

impl Plugin {
    /// The plugin for `qemu`, or why it cannot have it.
    pub fn of(qemu: &Qemu) -> Result<Self, String> {
        if qemu.version >= OTHER_INTERFACE {
            return Err(format!("QEMU {} has another plugin interface; 7.2 to 8.2 would be right", qemu.version));
        }
        Self::new().map_err(|e| format!("the plugin cannot be put into memory ({e})"))
    }

    fn new() -> io::Result<Self> {
        let mut file = File::from(rustix::fs::memfd_create("bigiron-profile", MemfdFlags::CLOEXEC)?);
        file.write_all(LIBRARY)?;
        Ok(Self { file })
    }

    /// QEMU's arguments that load it and have it write to `out`. It is read while this process and the plugin live.
    pub fn arguments(&self, out: &Path) -> [OsString; 2] {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        ["-plugin".into(), prefixed(&format!("file={path},out="), out)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_that_would_refuse_it_is_told_from_one_that_takes_it() {
        let qemu = |version| Qemu { program: "qemu".into(), version };
        let why = Plugin::of(&qemu(Version(9, 0, 0))).err().unwrap();
        assert_eq!(why, "QEMU 9.0.0 has another plugin interface; 7.2 to 8.2 would be right");
        let plugin = Plugin::of(&qemu(Version(7, 2, 0))).unwrap();
        let [option, value] = plugin.arguments(Path::new("/a,b/profile"));
        assert_eq!(option, "-plugin");
        assert!(value.to_str().unwrap().ends_with(",out=/a,,b/profile"), "{value:?}");
    }
}
