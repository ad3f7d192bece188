//! A storage stack between the engines and the kernel that can lie, or keep what a simulated power loss needs.
//!
//! Invariant: it is set up only in a forked child, before the run, so that no other test is affected.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};

use crate::block;
use crate::files;
use crate::job::Job;
use crate::journal::{ChunkHeader, JOURNAL_HEADER};
use bigiron_sys::async_io::{Completion, Engine, Request};
use bigiron_sys::shared_memory::SharedMemory;

/// What happens to an acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Nothing is written.
    Drop,
    /// Half of it is.
    Half,
    /// It goes to the neighbouring block.
    Elsewhere,
}

/// The behaviour of the stack besides passing requests on.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Lies about the write of that number, counted from 0 over all of journals or of data files (or the first after it for which
    /// the lie makes a difference), and about every later one to the same place.
    Lie { lie: Lie, journals: bool, nth: u64 },
    /// Records the data that every write replaces.
    Remember(PathBuf),
}

pub struct Stack {
    mode: Mode,
    /// By inode: the files concerned.
    files: BTreeMap<u64, StackFile>,
    memory: Arc<SharedMemory>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFile {
    Journal(usize),
    Data(usize),
}

static STACK: OnceLock<Stack> = OnceLock::new();
/// Words of the shared memory: writes so far, inode and offset of the lie, the false acknowledgement (1 + LSN after the chunk, or
/// 1 + block << 32 + version), number of the next remembered write.
const COUNT: usize = 0;
const INODE: usize = 8;
const OFFSET: usize = 16;
const TOLD: usize = 24;
const NUMBER: usize = 32;

/// Sets the stack up. `memory` is shared with the process that started the run.
pub fn set(mode: Mode, job: &Job, dir: &Path, memory: Arc<SharedMemory>) {
    let stack = Stack { mode, files: inodes(job, dir), memory };
    assert!(STACK.set(stack).is_ok(), "only in a child of its own");
}

/// The lie told so far, if any: 1 + LSN after the chunk, or 1 + block << 32 + version.
pub fn told(memory: &SharedMemory) -> u64 {
    memory.at::<AtomicU64>(TOLD).load(SeqCst)
}

pub fn inodes(job: &Job, dir: &Path) -> BTreeMap<u64, StackFile> {
    let journals = (0..job.journal.files).map(|j| (files::journal_path(dir, j), StackFile::Journal(j)));
    let data = (0..job.data.files).map(|f| (files::data_path(dir, f), StackFile::Data(f)));
    journals.chain(data).map(|(path, place)| (std::fs::metadata(path).unwrap().ino(), place)).collect()
}

/// Puts the stack, if one is set up, under an engine.
pub fn under(engine: Box<dyn Engine>) -> Box<dyn Engine> {
    let Some(stack) = STACK.get() else { return engine };
    let undo = match &stack.mode {
        Mode::Remember(path) => Some(File::options().append(true).open(path).unwrap()),
        Mode::Lie { .. } => None,
    };
    Box::new(Under { engine, stack, faked: Vec::new(), remembered: BTreeMap::new(), undo })
}

struct Under {
    engine: Box<dyn Engine>,
    stack: &'static Stack,
    /// Completions of writes that were not passed on.
    faked: Vec<Completion>,
    /// By slot: the number of the remembered write in flight.
    remembered: BTreeMap<usize, u64>,
    undo: Option<File>,
}

impl Under {
    fn word(&self, at: usize) -> &AtomicU64 {
        self.stack.memory.at(at)
    }

    fn place(&self, fd: BorrowedFd<'_>) -> Option<(u64, StackFile)> {
        let inode = rustix::fs::fstat(fd).ok()?.st_ino;
        Some((inode, *self.stack.files.get(&inode)?))
    }

    /// Whether to lie about this write.
    fn lied_about(&mut self, request: &Request<'_>) -> Option<Lie> {
        let Mode::Lie { lie, journals, nth } = self.stack.mode else { return None };
        let (inode, place) = self.place(request.fd).filter(|_| request.write)?;
        let header = matches!(place, StackFile::Journal(_)) && request.offset < JOURNAL_HEADER as u64;
        if matches!(place, StackFile::Journal(_)) != journals || header {
            return None;
        }
        let due = self.word(COUNT).fetch_add(1, SeqCst) >= nth && self.word(TOLD).load(SeqCst) == 0;
        if due && self.matters(lie, request) && self.word(INODE).compare_exchange(0, inode, SeqCst, SeqCst).is_ok() {
            self.word(OFFSET).store(request.offset, SeqCst);
            let buffer = self.engine.buffer(request.slot);
            let told = match place {
                StackFile::Journal(_) => ChunkHeader::read(buffer).map(|c| c.lsn + u64::from(c.len)).unwrap(),
                StackFile::Data(_) => {
                    let stamp = block::stamp(buffer);
                    let address = [buffer[8..12].as_ref(), &buffer[12..16]];
                    let [file, block] = address.map(|b| u64::from(u32::from_le_bytes(b.try_into().unwrap())));
                    (file << 48 | block << 32) + u64::from(stamp.version)
                }
            };
            self.word(TOLD).store(told + 1, SeqCst);
        }
        let same = self.word(INODE).load(SeqCst) == inode && self.word(OFFSET).load(SeqCst) == request.offset;
        (same && self.word(TOLD).load(SeqCst) > 0).then_some(lie)
    }

    /// Whether the lie has an effect: half a block may be all that has changed.
    fn matters(&mut self, lie: Lie, request: &Request<'_>) -> bool {
        let half = half(request.len);
        lie != Lie::Half || self.engine.buffer(request.slot)[half..request.len] != on_disk(request)[half..]
    }

    fn fake(&mut self, lie: Lie, request: &Request<'_>) -> io::Result<()> {
        let buffer = &self.engine.buffer(request.slot)[..request.len];
        match lie {
            Lie::Drop => {}
            Lie::Half => {
                let half = half(request.len);
                if half > 0 {
                    rustix::io::pwrite(request.fd, &buffer[..half], request.offset)?;
                }
            }
            Lie::Elsewhere => {
                let len = request.len as u64;
                let to = if request.offset >= len { request.offset - len } else { request.offset + len };
                rustix::io::pwrite(request.fd, buffer, to)?;
            }
        }
        self.faked.push(Completion::of(request.slot, request.len));
        Ok(())
    }

    fn remember(&mut self, request: &Request<'_>) {
        let Some((inode, _)) = self.place(request.fd).filter(|_| request.write && self.undo.is_some()) else { return };
        let number = self.word(NUMBER).fetch_add(1, SeqCst);
        let mut entry = Vec::new();
        for word in [1, number, inode, request.offset, request.len as u64] {
            entry.extend(word.to_le_bytes());
        }
        entry.extend(on_disk(request));
        entry.extend(&self.engine.buffer(request.slot)[..request.len]);
        self.undo.as_ref().unwrap().write_all(&entry).unwrap();
        self.remembered.insert(request.slot, number);
    }
}

/// Half of a write, in multiples that direct I/O accepts anywhere.
fn half(len: usize) -> usize {
    len / 2 / 4096 * 4096
}

/// The data that a write will replace. Read through a separate open file, because direct I/O would need an aligned buffer.
fn on_disk(request: &Request<'_>) -> Vec<u8> {
    let path = format!("/proc/self/fd/{}", request.fd.as_raw_fd());
    let mut bytes = vec![0; request.len];
    File::open(path).unwrap().read_exact_at(&mut bytes, request.offset).unwrap();
    bytes
}

impl Engine for Under {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.engine.buffer(slot)
    }

    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        let mut passed = Vec::with_capacity(requests.len());
        for request in requests {
            self.remember(request);
            match self.lied_about(request) {
                Some(lie) => self.fake(lie, request)?,
                None => passed.push(*request),
            }
        }
        if passed.is_empty() { Ok(()) } else { self.engine.submit(&passed) }
    }

    fn take(&mut self, min: usize, max: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        let from = done.len();
        done.extend(self.faked.drain(..max.min(self.faked.len())));
        let min = min.saturating_sub(done.len() - from);
        if min > 0 || self.engine.pending() > 0 {
            self.engine.take(min, max - (done.len() - from), done)?;
        }
        for c in &done[from..] {
            if let (Some(number), Some(mut undo)) = (self.remembered.remove(&c.slot), self.undo.as_ref()) {
                let entry = [2, number, 0, 0, 0u64].map(u64::to_le_bytes).concat();
                undo.write_all(&entry).unwrap();
            }
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.engine.pending() + self.faked.len()
    }

    fn describe(&self) -> String {
        self.engine.describe()
    }
}

/// A write that was remembered.
pub struct Remembered {
    pub place: StackFile,
    pub offset: u64,
    pub before: Vec<u8>,
    pub after: Vec<u8>,
    /// Whether it had ended.
    pub done: bool,
}

/// The remembered writes, in the order in which they began.
pub fn remembered(path: &Path, inodes: &BTreeMap<u64, StackFile>) -> Vec<Remembered> {
    let mut from = std::io::BufReader::new(File::open(path).unwrap());
    let mut writes = BTreeMap::new();
    loop {
        let mut words = [[0; 8]; 5];
        if from.read_exact(words.as_flattened_mut()).is_err() {
            return writes.into_values().collect();
        }
        let [kind, number, inode, offset, len] = words.map(u64::from_le_bytes);
        if kind == 2 {
            let write: &mut Remembered = writes.get_mut(&number).unwrap();
            write.done = true;
            continue;
        }
        let (mut before, mut after) = (vec![0; len as usize], vec![0; len as usize]);
        // Killed while recording: the write itself had not begun.
        if from.read_exact(&mut before).and_then(|()| from.read_exact(&mut after)).is_err() {
            return writes.into_values().collect();
        }
        writes.insert(number, Remembered { place: inodes[&inode], offset, before, after, done: false });
    }
}
