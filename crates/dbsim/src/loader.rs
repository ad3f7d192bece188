//! A loader: appends database blocks in bulk to its own file, past the cache, like a direct-path load.
//!
//! Invariant: blocks that it reports as loaded are durable; [`verify`] reads them back and knows the contents of each.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Context as _, Result, ensure};

use bigiron_sys::async_io::{Completion, Request};

use super::block::{self, Address, BLOCK};
use super::files;
use super::instance::Instance;
use super::job::{ClassKind, Engine as EngineSpec, Job};
use super::sideline::{self, Traffic};
use super::temp::Meter;
use super::verify::VerifyFailed;
use super::waits::{self, WaitEvent};

/// Path of a loader's file.
fn path(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("load.{number:05}"))
}

/// The file that lists the loaded blocks.
fn list(dir: &Path) -> PathBuf {
    dir.join("loads")
}

/// A block of a loader's file. Loaders' files are numbered after the data files.
fn address(job: &Job, number: usize, block: u64) -> Address {
    Address { file: (job.data.files + number) as u32, block: block as u32 }
}

/// The number of a loader among those of all classes.
fn number(instance: &Instance<'_>, process: usize) -> usize {
    (0..process).filter(|p| matches!(instance.class(*p).kind, ClassKind::Loader { .. })).count()
}

/// Runs loader `process`: loads of `bytes` in requests of `request`.
pub fn run(instance: &Instance<'_>, process: usize, engine: &EngineSpec, request: usize, bytes: u64) -> Result<()> {
    let number = number(instance, process);
    let path = path(instance.dir, number);
    let flags = if instance.job.data.direct { libc::O_DIRECT } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(flags);
    let file = options.open(&path).with_context(|| format!("Cannot create {}", path.display()))?;
    let mut engine = files::engine(engine, request)?;
    let depth = engine_depth(instance, process);
    let mut traffic = Traffic(&instance.counters[process]);
    let loaded = &instance.counters[process].loaded_blocks;
    sideline::drive(instance, process, |stop| {
        loaded.store(0, SeqCst);
        file.set_len(0).context("Cannot truncate the file to be loaded")?;
        let (mut free, mut at, mut done) = ((0..depth).collect::<Vec<_>>(), 0, Vec::<Completion>::new());
        while free.len() < depth || (at < bytes && !stop()) {
            let mut requests = Vec::with_capacity(free.len());
            while at < bytes && !stop() {
                let Some(slot) = free.pop() else { break };
                fill(instance.job, number, at, engine.buffer(slot));
                requests.push(Request {
                    slot,
                    fd: file.as_fd(),
                    offset: at,
                    len: request,
                    write: true,
                    dsync: false,
                    dontcache: false,
                });
                at += request as u64;
            }
            if !requests.is_empty() {
                engine.submit(&requests).context("Cannot load blocks")?;
            }
            if free.len() == depth {
                break;
            }
            done.clear();
            waits::during(WaitEvent::DataFileWrite, || engine.wait(1, &mut done)).context("Cannot load blocks")?;
            files::finished(&done, request).context("Cannot load blocks")?;
            for c in &done {
                traffic.io(true, request);
                free.push(c.slot);
            }
        }
        waits::during(WaitEvent::DataFileSync, || file.sync_data()).context("Cannot sync the loaded file")?;
        loaded.store(at / BLOCK as u64, SeqCst);
        Ok(at == bytes)
    })
}

fn engine_depth(instance: &Instance<'_>, process: usize) -> usize {
    match &instance.class(process).kind {
        ClassKind::Loader { engine, .. } => engine.depth,
        _ => 1,
    }
}

fn fill(job: &Job, number: usize, at: u64, buffer: &mut [u8]) {
    for (i, page) in buffer.chunks_exact_mut(BLOCK).enumerate() {
        block::initialise(page, address(job, number, at / BLOCK as u64 + i as u64));
        block::seal(page);
    }
}

/// Writes the list of loaded blocks, if the job has loaders. Must be called when they have ended.
pub fn save(instance: &Instance<'_>) -> Result<()> {
    let loaders = (0..instance.roles.len()).filter(|p| matches!(instance.class(*p).kind, ClassKind::Loader { .. }));
    let mut out = Vec::new();
    for process in loaders {
        out.extend(instance.counters[process].loaded_blocks.load(SeqCst).to_le_bytes());
    }
    if out.is_empty() {
        return Ok(());
    }
    out.extend(u64::from(crc32c::crc32c(&out)).to_le_bytes());
    std::fs::write(list(instance.dir), out).context("Cannot write the list of loaded blocks")
}

/// Reads back the blocks loaded by the loaders of `job`, if it has any. Lost or wrong data is a [`VerifyFailed`].
pub fn verify(job: &Job, dir: &Path) -> Result<()> {
    if !job.classes.iter().any(|c| matches!(c.kind, ClassKind::Loader { .. })) {
        return Ok(());
    }
    let bytes = std::fs::read(list(dir)).context("Cannot read the list of loaded blocks")?;
    let (body, sum) = bytes.split_last_chunk::<8>().context("The list of loaded blocks is too short")?;
    ensure!(u64::from_le_bytes(*sum) == u64::from(crc32c::crc32c(body)), "The list of loaded blocks is damaged");
    let mut page = vec![0; BLOCK];
    for (number, blocks) in body.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)).enumerate() {
        let path = path(dir, number);
        let file = File::open(&path).with_context(|| format!("Cannot open {}", path.display()))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).context("Cannot drop a file from memory")?;
        for block in 0..blocks {
            let address = address(job, number, block);
            match file.read_exact_at(&mut page, block * BLOCK as u64) {
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Err(VerifyFailed::LostLoad { address, blocks }.into());
                }
                other => other.with_context(|| format!("Cannot read {}", path.display()))?,
            }
            block::check(&page, address)
                .and_then(|()| block::check_body(&page, address))
                .map_err(VerifyFailed::from)?;
        }
    }
    Ok(())
}
