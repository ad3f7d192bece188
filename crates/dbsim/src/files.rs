//! The files in the job's directory: data files and journals, and how they are opened.
//!
//! Invariant: every process opens them itself, with the flags that the job's durability requires.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::Advice;
use rustix::io::{ReadWriteFlags, preadv2};

use bigiron_sys::async_io;
use bigiron_sys::async_io::{Blocking, Completion, Engine, RWF_DONTCACHE, Request};

use super::block::{self, Address, BLOCK};
use super::job::{DataSync, EXTENT, Engine as EngineSpec, Job, LogSync};
use super::journal::{JOURNAL_HEADER, JournalHeader};
use super::requests;

const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(RWF_DONTCACHE as u32);

/// Path of a data file.
pub fn data_path(dir: &Path, file: usize) -> PathBuf {
    dir.join(format!("data.{file:03}"))
}

/// Path of a journal.
pub fn journal_path(dir: &Path, journal: usize) -> PathBuf {
    dir.join(format!("journal.{journal}"))
}

/// The address of block `number`, counted over all files.
pub fn address(job: &Job, number: u32) -> Address {
    Address { file: number / job.blocks_per_file(), block: number % job.blocks_per_file() }
}

/// The number of a block, counted over all files; `None` if there is no such block.
pub fn number(job: &Job, address: Address) -> Option<u32> {
    let inside = (address.file as usize) < job.data.files && address.block < job.blocks_per_file();
    inside.then(|| address.file * job.blocks_per_file() + address.block)
}

/// Opens a file for reading and writing.
pub fn open(path: &Path, direct: bool, dsync: bool) -> Result<File> {
    open_with(path, direct, dsync, 0)
}

/// Opens a file for reading and writing, so that reading does not update its access time (`O_NOATIME`), like other I/O
/// generators. The kernel allows that only to the file's owner; for others the time is updated.
pub fn open_unstamped(path: &Path, direct: bool) -> Result<File> {
    open_with(path, direct, false, libc::O_NOATIME).or_else(|_| open(path, direct, false))
}

fn open_with(path: &Path, direct: bool, dsync: bool, mut flags: i32) -> Result<File> {
    if direct {
        flags |= libc::O_DIRECT;
    }
    if dsync {
        flags |= libc::O_DSYNC;
    }
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).with_context(|| {
        let hint = if direct { " for direct I/O (on a file system without it use `dbsim.direct=off`)" } else { "" };
        format!("Cannot open {}{hint}", path.display())
    })
}

/// The data files, open.
pub struct DataFiles {
    files: Vec<File>,
    /// `data.dontcache`.
    dontcache: bool,
}

impl DataFiles {
    pub fn open(job: &Job, dir: &Path) -> Result<Self> {
        let dsync = job.data.sync == DataSync::Dsync;
        Self::open_each(job, dir, job.data.direct, dsync)
    }

    /// The same for bulk reads: past the page cache or through it, whatever the other processes do.
    pub fn open_for_scan(job: &Job, dir: &Path, direct: bool) -> Result<Self> {
        Self::open_each(job, dir, direct, false)
    }

    fn open_each(job: &Job, dir: &Path, direct: bool, dsync: bool) -> Result<Self> {
        let open = |f| open(&data_path(dir, f), direct, dsync);
        let files: Vec<File> = (0..job.data.files).map(open).collect::<Result<_>>()?;
        let dontcache = job.data.dontcache && !direct;
        if dontcache && let Some(file) = files.first() {
            // Without kernel and file-system support every read fails; test one here to report the cause.
            let read = preadv2(file, &mut [io::IoSliceMut::new(&mut [0; 512])], 0, DONTCACHE);
            read.context(
                "`data.dontcache` needs Linux 6.14 or later and a file system that supports RWF_DONTCACHE, such as ext4, XFS or Btrfs",
            )?;
        }
        Ok(Self { files, dontcache })
    }

    /// Reads one block into a page-aligned `page`. The caller must check the contents.
    pub fn read(&self, address: Address, page: &mut [u8]) -> Result<()> {
        let file = &self.files[address.file as usize];
        let read = match self.dontcache {
            false => rustix::io::pread(file, &mut *page, offset(address)),
            true => preadv2(file, &mut [io::IoSliceMut::new(page)], offset(address), DONTCACHE),
        };
        let n = read.with_context(|| format!("Cannot read {address}"))?;
        ensure!(n == BLOCK, "Only {n} bytes of {address} could be read");
        Ok(())
    }

    /// A request for one block, with the engine's buffer `slot`.
    pub fn request(&self, slot: usize, address: Address, write: bool) -> Request<'_> {
        Request {
            slot,
            fd: self.fd(address.file as usize),
            offset: offset(address),
            len: BLOCK,
            write,
            dsync: false,
            dontcache: self.dontcache,
        }
    }

    /// A request to read `len` bytes of a file from `offset` on into the engine's buffer `slot`.
    pub fn read_range(&self, slot: usize, file: usize, offset: u64, len: usize) -> Request<'_> {
        Request { slot, fd: self.fd(file), offset, len, write: false, dsync: false, dontcache: self.dontcache }
    }

    /// A request to read `len` bytes at a byte `offset` of a file into the engine's buffer `slot`.
    pub fn read_at(&self, slot: usize, file: usize, offset: u64, len: usize) -> Request<'_> {
        Request { slot, fd: self.fd(file), offset, len, write: false, dsync: false, dontcache: self.dontcache }
    }

    /// Makes everything written so far durable, unless every write already was.
    pub fn sync(&self, job: &Job) -> Result<()> {
        if job.data.sync == DataSync::Fdatasync {
            for file in &self.files {
                file.sync_data().context("Cannot sync a data file")?;
            }
        }
        Ok(())
    }

    fn fd(&self, file: usize) -> BorrowedFd<'_> {
        self.files[file].as_fd()
    }
}

fn offset(address: Address) -> u64 {
    u64::from(address.block) * BLOCK as u64
}

/// The journals, open.
pub struct Journals(Vec<File>);

impl Journals {
    pub fn open(job: &Job, dir: &Path) -> Result<Self> {
        let dsync = job.journal.sync == LogSync::Dsync;
        let file = |j| open(&journal_path(dir, j), job.journal.direct, dsync);
        (0..job.journal.files).map(file).collect::<Result<_>>().map(Self)
    }

    /// Writes the first `len` bytes of the engine's buffer 0 at `offset` of a journal, durably.
    pub fn write(&self, job: &Job, engine: &mut dyn Engine, journal: usize, offset: u64, len: usize) -> Result<()> {
        let fd = self.0[journal].as_fd();
        let dsync = job.journal.sync == LogSync::RwfDsync;
        let request = Request { slot: 0, fd, offset, len, write: true, dsync, dontcache: false };
        if job.journal.sync == LogSync::Linked {
            let written = engine.write_durably(&request).context("Cannot write redo")?;
            ensure!(written == len, "Only {written} of {len} bytes of redo were written");
            return Ok(());
        }
        let mut done = Vec::with_capacity(1);
        engine.submit_and_wait(&[request], 1, &mut done).context("Cannot write redo")?;
        finished(&done, len).context("Cannot write redo")?;
        match job.journal.sync {
            LogSync::Dsync | LogSync::RwfDsync | LogSync::Linked => Ok(()),
            LogSync::Fdatasync => rustix::fs::fdatasync(fd).context("Cannot sync the journal"),
            LogSync::Fsync => rustix::fs::fsync(fd).context("Cannot sync the journal"),
        }
    }

    /// The open file of a journal.
    pub fn file(&self, journal: usize) -> &File {
        &self.0[journal]
    }
}

/// Checks that every completion moved `len` bytes.
pub fn finished(done: &[Completion], len: usize) -> Result<()> {
    for c in done {
        match c.result() {
            Ok(n) => ensure!(n == len, "Only {n} of {len} bytes were transferred"),
            Err(e) => return Err(std::io::Error::from(e.kind())).with_context(|| e.to_string()),
        }
    }
    Ok(())
}

/// The requested engine, with buffers of this many bytes.
pub fn engine(spec: &EngineSpec, bytes: usize) -> Result<Box<dyn Engine>> {
    engine_on(spec, bytes, &[])
}

/// The same for requests only to those files, which io_uring registers if so configured.
pub fn engine_on(spec: &EngineSpec, bytes: usize, files: &[BorrowedFd<'_>]) -> Result<Box<dyn Engine>> {
    let engine =
        async_io::open(spec, bytes, files).with_context(|| format!("Cannot open the engine {:?}", spec.method))?;
    #[cfg(test)]
    let engine = super::tests::stack::under(engine);
    Ok(engine)
}

/// Whether the path is a block device, or a link to one.
fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_block_device())
}

/// Lays out all files, every byte written, so that the run allocates nothing. Leaves nothing of them in the page cache.
pub fn lay_out(job: &Job, dir: &Path, progress: impl Fn(usize)) -> Result<()> {
    let mut engine = Blocking::new(1, EXTENT).context("Cannot allocate a buffer")?;
    for f in 0..job.data.files {
        progress(f);
        if requests::blind(job) && is_device(&data_path(dir, f)) {
            continue;
        }
        let extents = u64::from(job.blocks_per_file()) * BLOCK as u64 / EXTENT as u64;
        create(&data_path(dir, f), job.data.direct, &mut engine, extents, |extent, buffer| {
            for (i, page) in buffer.chunks_exact_mut(BLOCK).enumerate() {
                let block = extent as u32 * (EXTENT / BLOCK) as u32 + i as u32;
                block::initialise(page, Address { file: f as u32, block });
                block::seal_unmeasured(page);
            }
        })?;
    }
    for j in 0..job.journal.files {
        create(
            &journal_path(dir, j),
            job.journal.direct,
            &mut engine,
            job.journal.bytes / EXTENT as u64,
            |extent, buffer| {
                buffer.fill(0);
                // The first journal is the current one from the start, at LSN 0; the second has never been used.
                if extent == 0 && j == 0 {
                    JournalHeader { sequence: 1, start: 0 }.encode(&mut buffer[..JOURNAL_HEADER]);
                }
            },
        )?;
    }
    rustix::fs::fsync(File::open(dir)?).context("Cannot sync the directory")?;
    Ok(())
}

fn create(path: &Path, direct: bool, engine: &mut Blocking, extents: u64, fill: impl Fn(u64, &mut [u8])) -> Result<()> {
    File::create(path).with_context(|| format!("Cannot create {}", path.display()))?;
    let file = open(path, direct, false)?;
    let mut done = Vec::with_capacity(1);
    for extent in 0..extents {
        fill(extent, engine.buffer(0));
        let offset = extent * EXTENT as u64;
        let laid = engine
            .submit(&[Request {
                slot: 0,
                fd: file.as_fd(),
                offset,
                len: EXTENT,
                write: true,
                dsync: false,
                dontcache: false,
            }])
            .and_then(|()| engine.wait(1, &mut done));
        laid.with_context(|| format!("Cannot lay out {}", path.display()))?;
        finished(&done, EXTENT).with_context(|| format!("Cannot lay out {}", path.display()))?;
        done.clear();
    }
    file.sync_all().with_context(|| format!("Cannot sync {}", path.display()))?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).context("Cannot drop a file from the page cache")?;
    Ok(())
}

/// A file for the verifier: read by extents, past the page cache if the job bypassed it.
pub struct ExtentReader {
    file: File,
    path: PathBuf,
    engine: Blocking,
}

impl ExtentReader {
    pub fn open(path: PathBuf, direct: bool) -> Result<Self> {
        let engine = Blocking::new(1, EXTENT).context("Cannot allocate a buffer")?;
        Ok(Self { file: open(&path, direct, false)?, path, engine })
    }

    /// The extent's bytes; an error if the file is too short.
    pub fn read(&mut self, extent: u64) -> Result<&mut [u8]> {
        let buffer = self.engine.buffer(0);
        self.file
            .read_exact_at(buffer, extent * EXTENT as u64)
            .with_context(|| format!("Cannot read {} at {extent} MiB", self.path.display()))?;
        Ok(buffer)
    }
}
