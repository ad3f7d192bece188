//! Temporary files: space that a process writes and reads again, and that nobody needs after its end.
//!
//! Invariant: the file has no name once it is created, so the space is freed however the process ends.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use bigiron_sys::async_io::{Blocking, Engine, Request};

use super::waits::{self, WaitEvent};

/// Counts temporary I/O.
pub trait Meter {
    /// One request of `bytes` is done.
    fn io(&mut self, write: bool, bytes: usize);
}

/// A file without a name.
pub struct TempFile {
    file: File,
}

impl TempFile {
    /// Creates an empty one in `dir`, past the page cache if `direct`.
    pub fn create(dir: &Path, name: &str, direct: bool) -> Result<Self> {
        let path = dir.join(name);
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(flags)
            .open(&path)
            .with_context(|| format!("Cannot create {}", path.display()))?;
        std::fs::remove_file(&path).with_context(|| format!("Cannot remove {}", path.display()))?;
        Ok(Self { file })
    }

    /// Writes the engine's whole buffer `slot` of `len` bytes at `offset`.
    pub fn write(&self, io: &mut Blocking, slot: usize, offset: u64, len: usize, meter: &mut dyn Meter) -> Result<()> {
        self.transfer(io, slot, offset, len, true, meter)
    }

    /// Fills the engine's buffer `slot` with `len` bytes from `offset`.
    pub fn read(&self, io: &mut Blocking, slot: usize, offset: u64, len: usize, meter: &mut dyn Meter) -> Result<()> {
        self.transfer(io, slot, offset, len, false, meter)
    }

    /// Frees the space.
    pub fn clear(&self) -> Result<()> {
        self.file.set_len(0).context("Cannot truncate a temporary file")
    }

    fn transfer(
        &self,
        io: &mut Blocking,
        slot: usize,
        offset: u64,
        len: usize,
        write: bool,
        meter: &mut dyn Meter,
    ) -> Result<()> {
        let what = if write { "write" } else { "read" };
        let mut done = Vec::with_capacity(1);
        let event = if write { WaitEvent::TempFileWrite } else { WaitEvent::TempFileRead };
        let request = Request { slot, fd: self.file.as_fd(), offset, len, write, dsync: false, dontcache: false };
        waits::during(event, || io.submit(&[request]).and_then(|()| io.wait(1, &mut done)))
            .with_context(|| format!("Cannot {what} a temporary file"))?;
        for c in done {
            let moved = c.result().with_context(|| format!("Cannot {what} a temporary file"))?;
            ensure!(moved == len, "Only {moved} of {len} bytes of a temporary file were transferred");
        }
        meter.io(write, len);
        Ok(())
    }
}
