//! The measured window: warm up, read the clock, do the operations, read the clock.
//!
//! Invariant: inside a window there are only the operations and their loop. The number of operations is fixed before the window
//! opens, because under the exact clock a loop that stops by time would make the count part of the result.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

use super::block::Stamp;
use super::rng::SplitMix64;
use bigiron_probe::counters::span;
use bigiron_sys::mark;

pub use bigiron_sys::load::files::{file_system, open, open_direct, whole};

/// Bytes of the file that reads, writes, file faults and the reread go to.
pub const DATA_BYTES: u64 = 32 << 20;

/// What a window measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub ops: u64,
    pub ns: u64,
}

fn warm_up(ops: u64) -> u64 {
    ops.div_ceil(20)
}

/// All operations that a test which measures `ops` of them does: a twentieth more.
pub fn with_warm_up(ops: u64) -> u64 {
    ops + warm_up(ops)
}

/// The input of a test.
pub struct Bench<'a> {
    /// The metric's name.
    pub name: &'static str,
    /// Operations to measure, at least 1.
    pub ops: u64,
    pub seed: u64,
    pub dir: &'a Path,
    pub executable: &'a Path,
    pub stamp: &'a Stamp,
}

impl Bench<'_> {
    /// Operations to do before the window.
    pub fn warm_up(&self) -> u64 {
        warm_up(self.ops)
    }

    /// This test's random numbers.
    pub fn rng(&self) -> SplitMix64 {
        SplitMix64::stream(self.seed, self.name)
    }

    /// Warms up with, and then times, `ops` operations.
    pub fn time<E: Into<anyhow::Error>>(&self, mut op: impl FnMut() -> Result<(), E>) -> anyhow::Result<Window> {
        for _ in 0..self.warm_up() {
            op().map_err(Into::into)?;
        }
        let ns = timed(self.ops, op)?;
        Ok(Window { ops: self.ops, ns })
    }

    /// Times operations whose set-up must be made again after at most `chunk` of them. `part` gets a number of operations, sets
    /// up, times them with [`timed`], cleans up and returns the nanoseconds. The first part, a warm-up, is not counted.
    pub fn time_parts(&self, chunk: u64, mut part: impl FnMut(u64) -> anyhow::Result<u64>) -> anyhow::Result<Window> {
        part(self.warm_up().min(chunk))?;
        let (mut left, mut ns) = (self.ops, 0);
        while left > 0 {
            let n = left.min(chunk);
            ns += part(n)?;
            left -= n;
        }
        Ok(Window { ops: self.ops, ns })
    }

    /// The file laid out by `prepare`.
    pub fn data_path(&self) -> PathBuf {
        self.dir.join(DATA_FILE)
    }

    /// Opens the data file through the page cache, all of it cached.
    pub fn open_cached(&self, flags: OFlags) -> anyhow::Result<OwnedFd> {
        let fd = open(&self.data_path(), flags)?;
        let reader = open(&self.data_path(), OFlags::RDONLY)?;
        let mut buffer = vec![0; 64 << 10];
        let mut at = 0;
        while at < DATA_BYTES {
            let n = rustix::io::pread(&reader, &mut buffer, at)?;
            ensure!(n > 0, "`{}` ends at byte {at} instead of {DATA_BYTES}", self.data_path().display());
            at += n as u64;
        }
        Ok(fd)
    }

    /// Opens the data file for direct I/O; a file system that refuses is an error, for buffered I/O is something else.
    pub fn open_direct(&self, flags: OFlags) -> anyhow::Result<OwnedFd> {
        open_direct(&self.data_path(), flags)
    }

    /// Writes back everything of the file system under test, so that no earlier test's dirty pages or open journal transaction
    /// are left for this window.
    pub fn write_back(&self) -> anyhow::Result<()> {
        let dir = rustix::fs::open(self.dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(rustix::fs::syncfs(dir)?)
    }
}

/// Name of the data file in the workload's directory.
pub const DATA_FILE: &str = "data";

/// Nanoseconds that `n` operations take.
#[inline]
pub fn timed<E: Into<anyhow::Error>>(n: u64, mut op: impl FnMut() -> Result<(), E>) -> anyhow::Result<u64> {
    let start = span::open(now_ns);
    for _ in 0..n {
        if let Err(e) = op() {
            mark::end();
            return Err(e.into());
        }
    }
    Ok(span::close(now_ns) - start)
}

/// `CLOCK_MONOTONIC_RAW`: not slewed by NTP; under the exact clock it is virtual time.
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::MonotonicRaw);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
