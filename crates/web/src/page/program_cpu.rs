//! The CPU time of CGI programs that their parent does not wait for.
//!
//! Apache's `mod_cgid` ignores SIGCHLD, so the kernel discards the CPU time of its programs instead of adding it to their parent's. Each program
//! therefore appends its own just before it ends.
//!
//! Invariant: a record is appended by one write, so records of programs that end at the same time stay whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::process::getpid;

use bigiron_service::httpd::RUN;
use bigiron_service::instance;
use bigiron_sys::cpu_clock::cpu_time;

const NAME: &str = "program-cpu";
/// Bytes of a record: nanoseconds, the lowest byte first.
const RECORD: usize = 8;

/// The records of a server's programs.
pub(super) struct ProgramCpu(PathBuf);

impl ProgramCpu {
    /// For the server in `folder`, which runs as `user`.
    pub(super) fn create(folder: &Path, user: u32) -> Result<Self> {
        let file = folder.join(RUN).join(NAME);
        let created = File::create(&file).and_then(|_| instance::give(&file, user));
        created.with_context(|| format!("Cannot create {}", file.display()))?;
        Ok(Self(file))
    }

    /// CPU time so far of the programs that have ended, in nanoseconds.
    pub(super) fn total_ns(&self) -> u64 {
        let records = fs::read(&self.0).unwrap_or_default();
        records.chunks_exact(RECORD).map(|record| u64::from_le_bytes(record.try_into().expect("8 bytes"))).sum()
    }
}

/// Appends this process's CPU time if the server in `folder` counts it.
pub(super) fn record(folder: &Path) -> Result<()> {
    let file = folder.join(RUN).join(NAME);
    let mut records = match File::options().append(true).open(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.with_context(|| format!("Cannot open {}", file.display()))?,
    };
    let time = cpu_time(getpid()).context("Cannot read this process's CPU time")?;
    records
        .write_all(&(time.as_nanos() as u64).to_le_bytes())
        .with_context(|| format!("Cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_recorded_where_it_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(RUN)).unwrap();
        record(folder.path()).unwrap();
        assert!(fs::read_dir(folder.path().join(RUN)).unwrap().next().is_none());

        let user = rustix::process::getuid().as_raw();
        let counted = ProgramCpu::create(folder.path(), user).unwrap();
        assert_eq!(counted.total_ns(), 0);
        let before = cpu_time(getpid()).unwrap().as_nanos() as u64;
        record(folder.path()).unwrap();
        record(folder.path()).unwrap();
        let after = cpu_time(getpid()).unwrap().as_nanos() as u64;
        assert!((2 * before..=2 * after).contains(&counted.total_ns()));
    }
}
