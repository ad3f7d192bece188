//! The disk tests: a user's file written, read and copied a KiB at a time, in order or at random places, in four ways.
//!
//! Invariant: each KiB carries its number, which every read checks; a call that writes looks at its file's length and at the last KiB it has
//! written before it removes the file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Place;
use super::place::{BLOCK, Disk, blocks};
use super::verdict::wrong;

/// The file that users copy from and read, under [`Disk::dir`].
const SOURCE: &str = "source";

/// Stamps of what was written when the file was laid out, and by a test of its own file again.
const FIRST: u64 = 0x6669_7273_7420_7772;
const AGAIN: u64 = 0x6167_6169_6e20_7772;

/// One KiB and where it lies: its first and last words say its number and which write it is of, the rest is text.
pub struct Block<'a>(pub &'a mut [u8]);

impl Block<'_> {
    /// Fills in what no write changes.
    pub fn text(&mut self) {
        for (i, byte) in self.0.iter_mut().enumerate() {
            *byte = b' ' + (i % 95) as u8;
        }
    }

    #[inline]
    pub fn stamp(&mut self, number: u64, write: u64) {
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ write;
        let (first, last) = (0, self.0.len() - 8);
        self.0[first..first + 8].copy_from_slice(&number.to_le_bytes());
        self.0[last..].copy_from_slice(&word.to_le_bytes());
    }

    /// Which write it is of; `None` if it is not block `number`.
    #[inline]
    pub fn write_of(&self, number: u64) -> Option<u64> {
        let word = |at: usize| u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"));
        (word(0) == number).then(|| word(self.0.len() - 8) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Writes the source file.
pub(super) fn lay_out(disk: &Disk) -> anyhow::Result<()> {
    let path = source(disk);
    let write = || -> io::Result<()> {
        let mut file = File::create(&path)?;
        let mut bytes = vec![0; BLOCK];
        let mut block = Block(&mut bytes);
        block.text();
        for number in 0..blocks(disk.file_bytes()) {
            block.stamp(number, FIRST);
            io::Write::write_all(&mut file, block.0)?;
        }
        file.sync_all()
    };
    write().with_context(|| format!("Cannot lay out `{}`", path.display()))
}

/// Removes it.
pub(super) fn clear(disk: &Disk) -> anyhow::Result<()> {
    remove(&source(disk))
}

fn source(disk: &Disk) -> PathBuf {
    disk.dir().join(SOURCE)
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("Cannot remove `{}`", path.display()))
        }
        _ => Ok(()),
    }
}
