//! A file in memory that other processes open by a path: input for QEMU that leaves no trace on a disk.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::fs::MemfdFlags;

/// The file; it can be opened while this process and the value live.
pub struct MemoryFile {
    file: File,
}

impl MemoryFile {
    /// # Errors
    /// No memory.
    pub fn new(name: &str, bytes: &[u8]) -> io::Result<Self> {
        let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        Ok(Self { file })
    }

    /// Its path, without blanks, colons or commas, for any process of this user.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_reads_it() {
        let file = MemoryFile::new("bigiron-test", b"what it holds").unwrap();
        let read = std::process::Command::new("cat").arg(file.path()).output().unwrap();
        assert_eq!(read.stdout, b"what it holds");
    }
}
