//! A backup: reads the data files from end to end while they are written, and writes a copy.
//!
//! Invariant: every block of the copy was whole when read; and the copy, read back after it became durable, has the checksum of
//! the data written.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::Advice;

use bigiron_sys::async_io::{Blocking, Engine, Request};
use bigiron_sys::load::now_ns;
use bigiron_sys::segment::{Frames, Segment};

use super::block::{Address, BLOCK};
use super::files::{self, DataFiles};
use super::instance::Instance;
use super::sideline::{self, Traffic};
use super::temp::Meter;
use super::torn;
use super::waits::{self, WaitEvent};

struct Backup<'a> {
    instance: &'a Instance<'a>,
    files: DataFiles,
    copy: File,
    engine: Blocking,
    request: usize,
    bytes_per_second: Option<u64>,
    /// A page-aligned buffer for one block.
    page: Frames<'a>,
    traffic: Traffic<'a>,
}

/// Runs backup `process`.
pub fn run(instance: &Instance<'_>, process: usize, request: usize, bytes_per_second: Option<u64>) -> Result<()> {
    let scratch = Segment::new(2 * BLOCK).context("Cannot allocate a buffer")?;
    let path = instance.dir.join(format!("backup.{process:05}"));
    let flags = if instance.job.data.direct { libc::O_DIRECT } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(flags);
    let mut b = Backup {
        instance,
        files: DataFiles::open(instance.job, instance.dir)?,
        copy: options.open(&path).with_context(|| format!("Cannot create {}", path.display()))?,
        engine: Blocking::new(1, request).context("Cannot allocate a buffer")?,
        request,
        bytes_per_second,
        page: scratch.frames(1, BLOCK),
        traffic: Traffic(&instance.counters[process]),
    };
    sideline::drive(instance, process, |stop| {
        let Some(sum) = b.copy(stop)? else { return Ok(false) };
        b.verify(sum, stop)
    })?;
    // The copy has served its purpose.
    std::fs::remove_file(&path).with_context(|| format!("Cannot remove {}", path.display()))
}

impl Backup<'_> {
    fn file_bytes(&self) -> u64 {
        u64::from(self.instance.job.blocks_per_file()) * BLOCK as u64
    }

    /// Copies everything durably. Returns the copy's checksum; `None` if it was told to stop.
    fn copy(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<u32>> {
        let (start, mut done, mut sum) = (now_ns(), 0, 0);
        for file in 0..self.instance.job.data.files {
            let mut at = 0;
            while at < self.file_bytes() {
                sideline::limit(self.instance, start, done, self.bytes_per_second, stop);
                if stop() {
                    return Ok(None);
                }
                let len = (self.file_bytes() - at).min(self.request as u64) as usize;
                let read = self.files.read_at(0, file, at, len);
                transfer(&mut self.engine, read, WaitEvent::DataFileScan, &mut self.traffic)
                    .context("Cannot read a data file")?;
                self.check(file, at, len)?;
                sum = crc32c::crc32c_append(sum, &self.engine.buffer(0)[..len]);
                let fd = self.copy.as_fd();
                let write = Request { slot: 0, fd, offset: done, len, write: true, dsync: false, dontcache: false };
                transfer(&mut self.engine, write, WaitEvent::BackupWrite, &mut self.traffic)
                    .context("Cannot write the copy")?;
                at += len as u64;
                done += len as u64;
            }
        }
        waits::during(WaitEvent::BackupWrite, || self.copy.sync_data()).context("Cannot sync the copy")?;
        Ok(Some(sum))
    }

    /// Rereads every torn block once its writer is done.
    fn check(&mut self, file: usize, at: u64, len: usize) -> Result<()> {
        for offset in (0..len).step_by(BLOCK) {
            let block = ((at + offset as u64) / BLOCK as u64) as u32;
            let address = Address { file: file as u32, block };
            let block = &self.engine.buffer(0)[offset..][..BLOCK];
            if torn::reread_if_torn(block, address, &self.instance.cache, &self.files, &self.page)? {
                self.engine.buffer(0)[offset..][..BLOCK].copy_from_slice(&self.page.shared(0));
            }
        }
        Ok(())
    }

    /// Reads the copy back. Returns whether it finished.
    fn verify(&mut self, wanted: u32, stop: &dyn Fn() -> bool) -> Result<bool> {
        // From the device, not from memory.
        rustix::fs::fadvise(&self.copy, 0, None, Advice::DontNeed)
            .context("Cannot drop the copy from the page cache")?;
        let total = self.file_bytes() * self.instance.job.data.files as u64;
        let (mut at, mut sum) = (0, 0);
        while at < total {
            if stop() {
                return Ok(false);
            }
            let len = (total - at).min(self.request as u64) as usize;
            let read = Request {
                slot: 0,
                fd: self.copy.as_fd(),
                offset: at,
                len,
                write: false,
                dsync: false,
                dontcache: false,
            };
            transfer(&mut self.engine, read, WaitEvent::DataFileScan, &mut self.traffic)
                .context("Cannot read back the copy")?;
            sum = crc32c::crc32c_append(sum, &self.engine.buffer(0)[..len]);
            at += len as u64;
        }
        ensure!(sum == wanted, "The copy's checksum is {sum:08x}; {wanted:08x} was written");
        Ok(true)
    }
}

fn transfer(engine: &mut Blocking, request: Request<'_>, event: WaitEvent, traffic: &mut Traffic<'_>) -> Result<()> {
    let mut done = Vec::with_capacity(1);
    waits::during(event, || engine.submit(&[request]).and_then(|()| engine.wait(1, &mut done)))?;
    files::finished(&done, request.len)?;
    traffic.io(request.write, request.len);
    Ok(())
}
