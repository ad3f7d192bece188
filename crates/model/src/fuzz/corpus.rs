//! A target's inputs on the disk: those that once failed, and those of long runs that had a new outcome.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::store::line::sha256_hex;

/// Files that long runs fill a corpus up to, and bytes of each.
const FILES: usize = 64;
const BYTES: usize = 4096;

/// The inputs, in the order of their names; none if there is no folder.
pub(super) fn load(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// Writes an input under a name made of its hash; returns its path.
pub(super) fn keep(folder: &Path, input: &[u8]) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(&sha256_hex(input)[..16]);
    fs::write(&path, input)?;
    Ok(path)
}

/// Writes an input with a new outcome, if it is small and the corpus has room.
pub(super) fn keep_if_small(folder: &Path, input: &[u8]) -> io::Result<bool> {
    if input.len() >= BYTES {
        return Ok(false);
    }
    fs::create_dir_all(folder)?;
    if fs::read_dir(folder)?.count() >= FILES {
        return Ok(false);
    }
    keep(folder, input).map(|_| true)
}
