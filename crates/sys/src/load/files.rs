//! Opens the files that a load reads and writes.
//!
//! Invariant: what a file system refuses is an error that names the file system; there is no substitute.

use std::path::Path;

use anyhow::Context as _;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};

/// Opens a file, `O_CLOEXEC`, the path named in an error.
pub fn open(path: &Path, flags: OFlags) -> anyhow::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("Cannot open `{}`", path.display()))
}

/// Opens a file with `O_DIRECT`.
pub fn open_direct(path: &Path, flags: OFlags) -> anyhow::Result<OwnedFd> {
    let fd = rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC | OFlags::DIRECT, Mode::RUSR | Mode::WUSR);
    fd.map_err(|e| match e {
        rustix::io::Errno::INVAL => anyhow::anyhow!(
            "File system `{}` of `{}` refuses direct I/O (O_DIRECT); ext4 and xfs take it",
            file_system(path),
            path.display()
        ),
        e => anyhow::Error::new(e).context(format!("Cannot open `{}` for direct I/O", path.display())),
    })
}

/// The name of the file system that holds `path`, or its magic number.
pub fn file_system(path: &Path) -> String {
    match rustix::fs::statfs(path) {
        Ok(s) => match s.f_type as u64 {
            0xef53 => "ext2/3/4".to_owned(),
            0x5846_5342 => "xfs".to_owned(),
            0x9123_683e => "btrfs".to_owned(),
            0xf2f5_2010 => "f2fs".to_owned(),
            0x0102_1994 => "tmpfs".to_owned(),
            0x8584_58f6 => "ramfs".to_owned(),
            0x794c_7630 => "overlay".to_owned(),
            magic => format!("{magic:#x}"),
        },
        Err(e) => format!("unknown ({e})"),
    }
}

/// An error unless a transfer was whole.
#[inline]
pub fn whole(got: usize, wanted: usize) -> Result<(), std::io::Error> {
    if got == wanted { Ok(()) } else { Err(short(got, wanted)) }
}

#[cold]
fn short(got: usize, wanted: usize) -> std::io::Error {
    std::io::Error::other(format!("{got} of {wanted} bytes transferred"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_refuses_direct_io_is_named() {
        let error = open_direct("/proc/self/status".as_ref(), OFlags::RDONLY).unwrap_err().to_string();
        assert_eq!(
            error,
            "File system `0x9fa0` of `/proc/self/status` refuses direct I/O (O_DIRECT); ext4 and xfs take it"
        );
    }
}
