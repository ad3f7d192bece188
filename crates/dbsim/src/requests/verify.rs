//! After the run: every block in the version that was written last.
//!
//! Invariant: reads every block of every data file that verifiable requests may have gone to, from the device where they went there.

use std::path::Path;

use anyhow::{Context as _, Result};

use bigiron_sys::async_io::Blocking;
use bigiron_sys::async_io::{Engine, Request};

use super::super::block::Address;
use super::super::files;
use super::super::job::{ClassKind, Job};
use super::{board, check_block};
use std::os::fd::AsFd;

/// Checks every verifiable block of the data files against what was written down at the end of the run.
pub fn verify(job: &Job, dir: &Path) -> Result<()> {
    let Some(bytes) = board::verified_bytes(job) else { return Ok(()) };
    let direct = job.classes.iter().any(|c| matches!(&c.kind, ClassKind::Requests(r) if r.verify && r.direct));
    let null =
        |k: &ClassKind| matches!(k, ClassKind::Requests(r) if r.engine.method == bigiron_sys::async_io::Method::Null);
    if job.classes.iter().any(|c| null(&c.kind)) {
        // Nothing was written.
        return Ok(());
    }
    let versions = board::saved_versions(job, dir)?;
    let mut engine = Blocking::new(1, bytes).context("Cannot allocate a buffer")?;
    let mut done = Vec::with_capacity(1);
    let per_file = board::per_file(job, bytes);
    for file in 0..job.data.files {
        let data = files::open(&files::data_path(dir, file), direct, false)?;
        for block in 0..per_file {
            let address = Address { file: file as u32, block };
            let offset = u64::from(block) * bytes as u64;
            let read =
                Request { slot: 0, fd: data.as_fd(), offset, len: bytes, write: false, dsync: false, dontcache: false };
            engine.submit_and_wait(&[read], 1, &mut done).with_context(|| format!("Cannot read {address}"))?;
            files::finished(&done, bytes).with_context(|| format!("Cannot read {address}"))?;
            done.clear();
            check_block(engine.buffer(0), address, versions[file * per_file as usize + block as usize])?;
        }
    }
    Ok(())
}
