//! The disks, or the files that replace them: initialized before, checked after.
//!
//! Invariant: every used page of a disk identifies its place and its write.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, OFlags};

use bigiron_sys::load::files::{open, whole};
use bigiron_sys::load::stamp::{BLOCK, Stamp};

/// Bytes read and written at once outside of measurements.
const CHUNK: usize = 256 << 10;

/// The paths of the disks: the study's disks, or else files.
pub fn paths(devices: &[PathBuf], dir: &Path, disks: usize) -> Result<Vec<PathBuf>> {
    if devices.is_empty() {
        return Ok((0..disks).map(|n| dir.join(format!("disk{n}"))).collect());
    }
    ensure!(devices.len() >= disks, "`raw-io.disks` is {disks}, and the machine has {} raw disks", devices.len());
    Ok(devices[..disks].to_vec())
}

/// The stamps of a disk.
pub fn stamp(seed: u64, disk: usize) -> Stamp {
    Stamp::new(seed.wrapping_add(disk as u64))
}

/// Writes every page, and makes it durable.
pub fn lay_out(path: &Path, stamp: &Stamp, bytes: u64) -> Result<()> {
    let file = open(path, OFlags::CREATE | OFlags::WRONLY)?;
    let mut chunk: Vec<u8> = stamp.filled().0.repeat(CHUNK / BLOCK);
    for start in (0..bytes).step_by(CHUNK) {
        let length = CHUNK.min((bytes - start) as usize);
        for (n, page) in chunk[..length].chunks_exact_mut(BLOCK).enumerate() {
            stamp.put(page, start + (n * BLOCK) as u64, 0);
        }
        whole(rustix::io::pwrite(&file, &chunk[..length], start)?, length)?;
    }
    Ok(rustix::fs::fsync(&file)?)
}

/// Checks every page against the last write to it.
///
/// # Errors
/// If a page differs.
pub fn verify(path: &Path, stamp: &Stamp, last: &[u64]) -> Result<()> {
    let file = open(path, OFlags::RDONLY)?;
    // The contents of the device count, not those of memory.
    rustix::fs::fsync(&file)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut chunk = vec![0; CHUNK];
    for (start, generations) in (0..).step_by(CHUNK).zip(last.chunks(CHUNK / BLOCK)) {
        let bytes = &mut chunk[..generations.len() * BLOCK];
        whole(rustix::io::pread(&file, &mut *bytes, start)?, bytes.len())
            .with_context(|| format!("Reading `{}` at byte {start}", path.display()))?;
        for (n, (page, generation)) in bytes.chunks_exact(BLOCK).zip(generations).enumerate() {
            stamp
                .check(page, start + (n * BLOCK) as u64, *generation)
                .map_err(|e| anyhow::anyhow!("`{}`: {e}", path.display()))?;
        }
    }
    Ok(())
}
