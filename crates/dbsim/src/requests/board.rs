//! The shared state of request classes: a clock, their latencies, and for each verifiable block its version and its latch.
//!
//! Invariant: a block's version changes only under its latch, and the latch is held from before the request is submitted until
//! its outcome is known: data read under the latch must be exactly the last data written.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use anyhow::{Context as _, Result, ensure};

use bigiron_sys::latch::{Held, Latch};
use bigiron_sys::load::{Histogram, SharedHistogram};
use bigiron_sys::segment::{Segment, shared_struct};
use bigiron_sys::ticks::Ticks;

use super::super::block::Address;
use super::super::job::{ClassKind, Job, RequestSpec};

/// The action of a request, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestAction {
    Read,
    Write,
    Sync,
}

/// Number of actions.
pub const ACTIONS: usize = 3;

shared_struct! {
    struct Block {
        latch: Latch,
        /// Number of writes so far; 0: nothing was written, and it has its initial contents.
        version: AtomicU32,
    }
}

/// The shared parts.
pub struct RequestBoard<'s> {
    pub ticks: Ticks,
    /// By process of any request class, in the order of processes.
    latency: Vec<[SharedHistogram<'s>; ACTIONS]>,
    /// By process of the run: its index in `latency`.
    places: Vec<Option<usize>>,
    blocks: &'s [Block],
    per_file: u32,
}

/// The request classes of a job.
fn classes(job: &Job) -> impl Iterator<Item = (usize, &RequestSpec)> {
    job.classes.iter().filter_map(|c| match &c.kind {
        ClassKind::Requests(r) => Some((c.count, r)),
        _ => None,
    })
}

/// Bytes of a verifiable block; `None` if no class verifies.
pub fn verified_bytes(job: &Job) -> Option<usize> {
    classes(job).find(|(_, r)| r.verify).map(|(_, r)| r.bytes)
}

/// Requests of this many bytes that fit in each data file.
pub fn per_file(job: &Job, bytes: usize) -> u32 {
    (job.data.bytes / job.data.files as u64 / bytes as u64) as u32
}

impl<'s> RequestBoard<'s> {
    /// Bytes of segment for a job.
    pub fn bytes(job: &Job) -> usize {
        let processes: usize = classes(job).map(|(count, _)| count).sum();
        let blocks = verified_bytes(job).map_or(0, |b| per_file(job, b) as usize * job.data.files);
        processes * ACTIONS * (SharedHistogram::BYTES + 128) + blocks * size_of::<Block>() + 64
    }

    /// `kinds`: of all processes of the run.
    pub fn new<'j>(segment: &'s Segment, job: &Job, kinds: impl Iterator<Item = &'j ClassKind>) -> Self {
        let mut latency = Vec::new();
        let places: Vec<_> = kinds
            .map(|kind| {
                matches!(kind, ClassKind::Requests(_)).then(|| {
                    latency.push(std::array::from_fn(|_| SharedHistogram::new(segment)));
                    latency.len() - 1
                })
            })
            .collect();
        let per_file = verified_bytes(job).map_or(0, |b| per_file(job, b));
        Self {
            // Saves ten milliseconds in a job without requests.
            ticks: if latency.is_empty() { Ticks::uncalibrated() } else { Ticks::new() },
            latency,
            places,
            blocks: segment.many(per_file as usize * job.data.files),
            per_file,
        }
    }

    /// The histograms of a process; `None` if it is not of a request class.
    pub fn latency(&self, process: usize) -> Option<&[SharedHistogram<'s>; ACTIONS]> {
        self.places[process].map(|place| &self.latency[place])
    }

    /// All latencies of one action of those processes.
    pub fn latencies(&self, processes: impl Iterator<Item = usize>, action: RequestAction) -> Histogram {
        let mut all = Histogram::new();
        for histograms in processes.filter_map(|p| self.latency(p)) {
            all.merge(&histograms[action as usize].read());
        }
        all
    }

    /// Latches a block if it is free.
    pub fn try_lock(&self, address: Address) -> Option<Held<'s>> {
        self.blocks[self.index(address)].latch.try_lock()
    }

    /// Latches a block, sleeping until it is free. A holder of another block must not call this: two could wait for each other.
    pub fn lock(&self, address: Address) -> Held<'s> {
        self.blocks[self.index(address)].latch.lock()
    }

    /// The last version written. Only for the holder of the block.
    pub fn version(&self, address: Address) -> u32 {
        self.blocks[self.index(address)].version.load(Acquire)
    }

    /// Records a write. Only for the holder of the block.
    pub fn written(&self, address: Address, version: u32) {
        self.blocks[self.index(address)].version.store(version, Release);
    }

    fn index(&self, address: Address) -> usize {
        address.file as usize * self.per_file as usize + address.block as usize
    }

    /// Writes the version of every block to a file, for verification. Does nothing if no class verifies.
    pub fn save(&self, dir: &Path) -> Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let path = versions_path(dir);
        let context = || format!("Cannot write {}", path.display());
        let mut out = BufWriter::new(File::create(&path).with_context(context)?);
        for block in self.blocks {
            out.write_all(&block.version.load(Acquire).to_le_bytes()).with_context(context)?;
        }
        out.flush().with_context(context)
    }
}

/// The file of the versions.
fn versions_path(dir: &Path) -> PathBuf {
    dir.join("requests.versions")
}

/// Bytes of that file.
pub fn saved_bytes(job: &Job) -> u64 {
    verified_bytes(job).map_or(0, |b| u64::from(per_file(job, b)) * job.data.files as u64 * 4)
}

/// The saved versions: by file and block.
pub fn saved_versions(job: &Job, dir: &Path) -> Result<Vec<u32>> {
    let path = versions_path(dir);
    let file = File::open(&path).with_context(|| format!("Cannot open {}", path.display()))?;
    let mut bytes = Vec::with_capacity(saved_bytes(job) as usize);
    BufReader::new(file).read_to_end(&mut bytes).with_context(|| format!("Cannot read {}", path.display()))?;
    ensure!(bytes.len() as u64 == saved_bytes(job), "{} belongs to another job", path.display());
    Ok(bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect())
}
