//! tracefs, where the kernel describes its tracepoints, in a private mount of this process.
//!
//! Invariant: no other process sees the mount, and nothing is left when the value is dropped.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::format::Format;

/// tracefs, not mounted anywhere.
#[derive(Debug)]
pub struct Tracefs(OwnedFd);

impl Tracefs {
    /// # Errors
    /// Why it is unavailable: no permission, or a kernel without it.
    pub fn open() -> Result<Self, String> {
        let made = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|made| {
            fsconfig_create(&made)?;
            fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        });
        made.map(Self).map_err(|e| match e {
            Errno::PERM | Errno::ACCESS => "tracing needs root".to_owned(),
            Errno::NODEV => "this kernel has no tracefs (CONFIG_TRACING)".to_owned(),
            e => format!("tracefs cannot be mounted: {e}"),
        })
    }

    /// The tracepoint `SYSTEM/NAME`; `None` if the kernel does not have it.
    ///
    /// # Errors
    /// It exists but cannot be read or parsed.
    pub fn tracepoint(&self, name: &str) -> Result<Option<Format>, String> {
        let path = format!("events/{name}/format");
        let file = match openat(&self.0, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(|e| format!("{path} of tracefs: {e}"))?,
        };
        let mut text = String::new();
        File::from(file).read_to_string(&mut text).map_err(|e| format!("{path} of tracefs: {e}"))?;
        Format::parse(&text).map(Some).ok_or_else(|| format!("{path} of tracefs is not a format"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoints_are_described_or_it_is_said_why_not() {
        match Tracefs::open() {
            Ok(tracefs) => {
                assert_eq!(tracefs.tracepoint("nosuch/thing"), Ok(None));
                let switch =
                    tracefs.tracepoint("sched/sched_switch").unwrap().expect("every kernel that traces has it");
                assert_eq!(switch.field("prev_pid").unwrap().size, 4);
            }
            Err(why) => assert!(why.contains("root") || why.contains("tracefs"), "{why}"),
        }
    }
}
