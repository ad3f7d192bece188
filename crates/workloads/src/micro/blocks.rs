//! Block reads and writes of 4 KiB at random places of the data file, and the append of a write-ahead log.
//!
//! Invariant: which write went where last can be worked out again from the seed and the counts ([`last_writes`]), so the check
//! afterwards knows what every block must hold, stale data included.

use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context as _, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, OFlags};

use super::bench::{Bench, DATA_BYTES, DATA_FILE, Window, now_ns, open, whole};
use super::block::{BLOCK, Stamp};
use super::rng::SplitMix64;
use bigiron_probe::counters::span;
use bigiron_sys::async_io::{Completion, Engine, LibAio, Request, Uring};

/// Blocks of the data file.
pub const BLOCKS: u64 = DATA_BYTES / BLOCK as u64;

/// Bytes of one log record: a group commit of a small transaction.
pub const RECORD: usize = 2 * BLOCK;

/// The test that appends to the log.
pub const APPEND: &str = "append-8k-fdatasync";

/// Name of the log in the workload's directory.
const LOG_FILE: &str = "log";

/// Bytes read and written at once where nothing is measured.
const CHUNK: usize = 256 << 10;

/// Through the page cache or past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Buffered,
    Direct,
}

impl Access {
    fn open(self, b: &Bench<'_>, flags: OFlags) -> anyhow::Result<OwnedFd> {
        match self {
            Access::Buffered => b.open_cached(flags),
            Access::Direct => b.open_direct(flags),
        }
    }
}

/// Generation numbers: 0 is the block as laid out, then (which writer, which write of it).
fn generation(writer: u64, write: u64) -> u64 {
    (writer << 48) | (write + 1)
}

/// The writers, numbered from 1 by their place here; the catalogue runs them in this order.
pub const WRITERS: [&str; 2] = ["pwrite-4k-direct", "pwrite-4k-buffered"];

fn writer(name: &str) -> u64 {
    WRITERS.iter().position(|w| *w == name).map_or(0, |n| n as u64 + 1)
}

fn block_at(rng: &mut SplitMix64) -> u64 {
    rng.below(BLOCKS) * BLOCK as u64
}

/// Lays the data file out and makes it durable.
pub fn lay_out(dir: &Path, stamp: &Stamp) -> anyhow::Result<()> {
    let file = open(&dir.join(DATA_FILE), OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY)?;
    let mut chunk: Vec<u8> = stamp.filled().0.repeat(CHUNK / BLOCK);
    for start in (0..DATA_BYTES).step_by(CHUNK) {
        for (n, block) in chunk.chunks_exact_mut(BLOCK).enumerate() {
            stamp.put(block, start + (n * BLOCK) as u64, 0);
        }
        whole(rustix::io::pwrite(&file, &chunk, start)?, CHUNK)?;
    }
    Ok(rustix::fs::fsync(&file)?)
}

pub fn pread(b: &Bench<'_>, access: Access) -> anyhow::Result<Window> {
    let file = access.open(b, OFlags::RDONLY)?;
    let (mut rng, mut block) = (b.rng(), b.stamp.filled());
    b.write_back()?;
    b.time(|| {
        let at = block_at(&mut rng);
        whole(rustix::io::pread(&file, &mut block.0, at)?, BLOCK)?;
        belongs(b.stamp, &block.0, at)
    })
}

pub fn pwrite(b: &Bench<'_>, access: Access) -> anyhow::Result<Window> {
    let file = access.open(b, OFlags::WRONLY)?;
    let (mut rng, mut block, writer, mut write) = (b.rng(), b.stamp.filled(), writer(b.name), 0);
    b.write_back()?;
    let window = b.time(|| {
        let at = block_at(&mut rng);
        b.stamp.put(&mut block.0, at, generation(writer, write));
        write += 1;
        whole(rustix::io::pwrite(&file, &block.0, at)?, BLOCK)
    })?;
    b.write_back()?;
    Ok(window)
}

pub fn append(b: &Bench<'_>) -> anyhow::Result<Window> {
    let file = open(&b.dir.join(LOG_FILE), OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY)?;
    let mut record: Vec<u8> = b.stamp.filled().0.repeat(RECORD / BLOCK);
    let (mut at, mut write) = (0, 0);
    b.write_back()?;
    b.time(|| {
        for (n, block) in record.chunks_exact_mut(BLOCK).enumerate() {
            b.stamp.put(block, at + (n * BLOCK) as u64, generation(0, write));
        }
        whole(rustix::io::pwrite(&file, &record, at)?, RECORD)?;
        at += RECORD as u64;
        write += 1;
        Ok::<_, std::io::Error>(rustix::fs::fdatasync(&file)?)
    })
}

pub fn aio_read(b: &Bench<'_>, depth: usize) -> anyhow::Result<Window> {
    read_with(b, &mut LibAio::new(depth, BLOCK).context("Cannot set up io_submit")?, depth)
}

pub fn uring_read(b: &Bench<'_>, depth: usize) -> anyhow::Result<Window> {
    let engine =
        Uring::new(depth, BLOCK).context("Cannot set up io_uring (the setting is `sysctl.kernel.io_uring_disabled`)");
    read_with(b, &mut engine?, depth)
}

/// Random direct reads with `depth` always in flight; an operation is a completion.
fn read_with(b: &Bench<'_>, engine: &mut impl Engine, depth: usize) -> anyhow::Result<Window> {
    let file = b.open_direct(OFlags::RDONLY)?;
    b.write_back()?;
    let mut reader = Reader { engine, fd: &file, rng: b.rng(), stamp: b.stamp, at: vec![0; depth], done: Vec::new() };
    for slot in 0..depth {
        reader.start(slot)?;
    }
    // Completions come in batches, so the clock is read when the count is reached, and what came beyond it is counted.
    let warm_up = b.warm_up().max(depth as u64);
    let mut ended = 0;
    while ended < warm_up {
        ended += reader.turn()?;
    }
    let start = span::open(now_ns);
    let mut ops = 0;
    while ops < b.ops {
        ops += reader.turn()?;
    }
    let ns = span::close(now_ns) - start;
    reader.engine.wait(depth, &mut reader.done)?;
    Ok(Window { ops, ns })
}

struct Reader<'a, E> {
    engine: &'a mut E,
    fd: &'a OwnedFd,
    rng: SplitMix64,
    stamp: &'a Stamp,
    at: Vec<u64>,
    done: Vec<Completion>,
}

impl<E: Engine> Reader<'_, E> {
    fn start(&mut self, slot: usize) -> std::io::Result<()> {
        self.at[slot] = block_at(&mut self.rng);
        let request = Request {
            slot,
            fd: self.fd.as_fd(),
            offset: self.at[slot],
            len: BLOCK,
            write: false,
            dsync: false,
            dontcache: false,
        };
        self.engine.submit(&[request])
    }

    /// Waits for at least one read, checks and starts again all that have ended; how many there were.
    fn turn(&mut self) -> std::io::Result<u64> {
        let mut done = std::mem::take(&mut self.done);
        done.clear();
        self.engine.wait(1, &mut done)?;
        let ended = done.len() as u64;
        for completion in done.drain(..) {
            let slot = completion.slot;
            whole(completion.result()?, BLOCK)?;
            belongs(self.stamp, self.engine.buffer(slot), self.at[slot])?;
            self.start(slot)?;
        }
        self.done = done;
        Ok(ended)
    }
}

#[inline]
fn belongs(stamp: &Stamp, block: &[u8], at: u64) -> std::io::Result<()> {
    if stamp.belongs(block, at) { Ok(()) } else { Err(misplaced(at)) }
}

#[cold]
fn misplaced(at: u64) -> std::io::Error {
    std::io::Error::other(format!("Byte {at} of the data file was read and holds something else"))
}

/// The last generation written to each block by `writers` (name, writes), in the order in which they ran.
pub fn last_writes<'n>(seed: u64, writers: impl IntoIterator<Item = (&'n str, u64)>) -> Vec<u64> {
    let mut last = vec![0; BLOCKS as usize];
    for (name, writes) in writers {
        let mut rng = SplitMix64::stream(seed, name);
        for write in 0..writes {
            last[(block_at(&mut rng) / BLOCK as u64) as usize] = generation(writer(name), write);
        }
    }
    last
}

/// Checks every block of the data file, read from the device.
pub fn verify_data(dir: &Path, stamp: &Stamp, last: &[u64]) -> anyhow::Result<()> {
    let generations = last.iter().copied();
    verify(&dir.join(DATA_FILE), stamp, DATA_BYTES, generations)
}

/// Checks every block of the log of `records` appends, read from the device.
pub fn verify_log(dir: &Path, stamp: &Stamp, records: u64) -> anyhow::Result<()> {
    let generations = (0..records).flat_map(|write| [generation(0, write); RECORD / BLOCK]);
    verify(&dir.join(LOG_FILE), stamp, records * RECORD as u64, generations)
}

fn verify(path: &Path, stamp: &Stamp, bytes: u64, mut generations: impl Iterator<Item = u64>) -> anyhow::Result<()> {
    let file = open(path, OFlags::RDONLY)?;
    // What is on the device counts, not what is still in memory.
    rustix::fs::fsync(&file)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let found = rustix::fs::fstat(&file)?.st_size as u64;
    ensure!(found == bytes, "`{}` has {found} bytes, {bytes} were written", path.display());
    let mut chunk = vec![0; CHUNK];
    let mut start = 0;
    while start < bytes {
        let want = CHUNK.min((bytes - start) as usize);
        whole(rustix::io::pread(&file, &mut chunk[..want], start)?, want)
            .with_context(|| format!("Reading `{}` at byte {start}", path.display()))?;
        for (n, block) in chunk[..want].chunks_exact(BLOCK).enumerate() {
            let generation = generations.next().context("More blocks than writes")?;
            stamp
                .check(block, start + (n * BLOCK) as u64, generation)
                .map_err(|e| anyhow::anyhow!("`{}`: {e}", path.display()))?;
        }
        start += want as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_wins() {
        let last = last_writes(3, [(WRITERS[0], 50_000), (WRITERS[1], 100)]);
        assert_eq!(last.iter().filter(|g| **g >> 48 == 2).count(), 100);
        // 50,000 draws of 8,192 blocks miss a block with probability e^-6.1.
        assert!(last.iter().filter(|g| **g == 0).count() < 60);
        assert_eq!(last_writes(3, []), vec![0; BLOCKS as usize]);
    }
}
