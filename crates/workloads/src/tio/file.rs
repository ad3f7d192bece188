//! A thread's own file: its blocks written and read, and their expected contents.
//!
//! Invariant: a block identifies its thread, its place and its write.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, OFlags};

use super::options::{Access, Settings};
use bigiron_sys::async_io;
use bigiron_sys::async_io::{Completion, Engine, EngineSpec, Request};
use bigiron_sys::load::files::{open, open_direct, whole};
use bigiron_sys::load::rng::SplitMix64;
use bigiron_sys::load::stamp::{BLOCK, Stamp};
use bigiron_sys::shared_memory::SharedMemory;

/// Bits of an offset; the bits above hold the thread's number.
const OFFSET_BITS: u32 = 48;
/// The generation of the sequential writes; random writes are numbered from the next one.
const WRITTEN: u64 = 1;

pub fn path(dir: &Path, thread: usize) -> PathBuf {
    dir.join(format!("file{thread}"))
}

/// The file of one thread, open.
pub struct ThreadFile<'a> {
    fd: OwnedFd,
    mapping: Option<SharedMemory>,
    stamp: &'a Stamp,
    thread: usize,
    block: usize,
    /// Blocking calls, with a buffer suitable for direct I/O.
    engine: Box<dyn Engine>,
    done: Vec<Completion>,
}

impl<'a> ThreadFile<'a> {
    /// Creates the file: empty, or a mapping of `bytes` that nothing was written to.
    ///
    /// # Errors
    /// If the file system does not support it.
    pub fn make(dir: &Path, settings: &Settings, stamp: &'a Stamp, thread: usize, bytes: u64) -> Result<Self> {
        let (path, mut flags) = (path(dir, thread), OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR);
        flags.set(OFlags::SYNC, settings.sync);
        let fd = if settings.access == Access::Direct { open_direct(&path, flags) } else { open(&path, flags) }?;
        let mapping = match settings.access {
            Access::Mapped => Some(SharedMemory::of_file(bytes as usize, fd.as_fd()).context("Cannot map a file")?),
            _ => None,
        };
        let block = settings.block;
        let mut engine = async_io::open(&EngineSpec::default(), block, &[]).context("Cannot allocate a buffer")?;
        let filled = stamp.filled();
        engine.buffer(0).chunks_exact_mut(BLOCK).for_each(|page| page.copy_from_slice(&filled.0));
        Ok(Self { fd, mapping, stamp, thread, block, engine, done: Vec::with_capacity(1) })
    }

    /// Writes the block at `offset`.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn write(&mut self, offset: u64, generation: u64) -> Result<()> {
        let tag = tag(self.thread, offset);
        for (n, page) in self.engine.buffer(0).chunks_exact_mut(BLOCK).enumerate() {
            self.stamp.put(page, tag + (n * BLOCK) as u64, generation);
        }
        match &self.mapping {
            Some(mapping) => mapping.copy_in(offset as usize, self.engine.buffer(0)),
            None => self.transfer(offset, true)?,
        }
        Ok(())
    }

    /// Reads the block at `offset`, and checks that it belongs there.
    ///
    /// # Errors
    /// If it does not, or those of the system call.
    pub fn read(&mut self, offset: u64) -> Result<()> {
        match &self.mapping {
            Some(mapping) => mapping.copy_out(offset as usize, self.engine.buffer(0)),
            None => self.transfer(offset, false)?,
        }
        for (n, page) in self.engine.buffer(0).chunks_exact(BLOCK).enumerate() {
            let belongs = self.stamp.belongs(page, tag(self.thread, offset) + (n * BLOCK) as u64);
            ensure!(belongs, "Byte {offset} of file {} holds wrong data", self.thread);
        }
        Ok(())
    }

    fn transfer(&mut self, offset: u64, write: bool) -> Result<()> {
        let request =
            Request { slot: 0, fd: self.fd.as_fd(), offset, len: self.block, write, dsync: false, dontcache: false };
        self.done.clear();
        self.engine.submit_and_wait(&[request], 1, &mut self.done)?;
        let completion = self.done.pop().context("A request has no completion")?;
        Ok(whole(completion.result()?, self.block)?)
    }

    /// Makes the written data durable.
    pub fn sync(&self) -> Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }
}

fn tag(thread: usize, offset: u64) -> u64 {
    (thread as u64) << OFFSET_BITS | offset
}

/// The random places of one thread in a phase.
pub struct Draws {
    rng: SplitMix64,
    blocks: u64,
    block: u64,
}

impl Draws {
    pub fn new(seed: u64, metric: &str, thread: usize, blocks: u64, block: usize) -> Self {
        Self { rng: SplitMix64::stream(seed, &format!("{metric}/{thread}")), blocks, block: block as u64 }
    }

    pub fn take(&mut self) -> u64 {
        self.rng.below(self.blocks) * self.block
    }
}

/// The generation of the sequential write.
pub fn first_generation() -> u64 {
    WRITTEN
}

/// The generation of random write number `n`.
pub fn generation(n: u64) -> u64 {
    WRITTEN + 1 + n
}

/// Drops a file from the page cache, once it is on the device.
pub fn drop_from_cache(path: &Path) -> Result<()> {
    let file = open(path, OFlags::RDONLY)?;
    rustix::fs::fsync(&file)?;
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Checks every block of a thread's file against the generations `last`.
///
/// # Errors
/// If a block differs.
pub fn verify(path: &Path, stamp: &Stamp, thread: usize, block: usize, last: &[u64]) -> Result<()> {
    drop_from_cache(path)?;
    let file = open(path, OFlags::RDONLY)?;
    let (found, bytes) = (rustix::fs::fstat(&file)?.st_size as u64, (last.len() * block) as u64);
    ensure!(found == bytes, "`{}` has {found} bytes, {bytes} were written", path.display());
    let mut buffer = vec![0; block];
    for (n, generation) in last.iter().enumerate() {
        let offset = (n * block) as u64;
        whole(rustix::io::pread(&file, &mut buffer, offset)?, block)
            .with_context(|| format!("Reading `{}` at byte {offset}", path.display()))?;
        for (page, bytes) in buffer.chunks_exact(BLOCK).enumerate() {
            let tag = tag(thread, offset + (page * BLOCK) as u64);
            stamp.check(bytes, tag, *generation).map_err(|e| anyhow::anyhow!("`{}`: {e}", path.display()))?;
        }
    }
    Ok(())
}
