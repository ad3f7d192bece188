//! The ledger: what a run has acknowledged, kept apart from the database so that verification can compare the two.
//!
//! Invariant: it is written while the run proceeds, in a shared mapping of a file in memory that outlives every process, so that
//! acknowledgements before a kill are on record. Each word shows by itself whether it is whole. A kill
//! between the two words of an acknowledgement leaves the previous one intact.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Context as _, Result, bail};
use rustix::fs::statfs;

use bigiron_sys::segment::Segment;
use bigiron_sys::shared_memory::SharedMemory;

use super::job::Job;

const MAGIC: u64 = 0x3252_4547_444c_4244;
/// Words before those of the foregrounds (two cache lines): magic, foregrounds, blocks, and then:
const HEAD: usize = 16;
const ENDED: usize = 3;
const FLUSHED: usize = 4;
const CHECKPOINT: usize = 5;
const SEQUENCE: usize = 6;
const SWITCHING: usize = 7;
const ARCHIVED: usize = 8;
/// A cache line for each foreground: none writes to another's.
const PER_PROCESS: usize = 8;
const PER_BLOCK: usize = 3;
/// Bits of a word that show whether it is whole; the value is above them, so that words compare like values.
const CHECK_BITS: u32 = 16;

/// The acknowledgements for one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockEntry {
    /// Latest version whose commit was acknowledged.
    pub committed: u32,
    /// Latest version that the kernel reported as written to the data file.
    pub written: u32,
    /// Latest version submitted for writing.
    pub writing: u32,
}

/// The last commit acknowledged to one foreground.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitEntry {
    pub transaction: u64,
    /// LSN after its commit record.
    pub lsn: u64,
}

/// The acknowledgements of a run, for verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// How the run stopped.
    pub stop: Stop,
    /// Everything before this LSN was reported to be on disk.
    pub flushed: u64,
    /// All changes before this LSN were reported to be in the data files.
    pub checkpoint: u64,
    /// The latest journal header reported to be on disk, by its sequence.
    pub sequence: u64,
    /// The latest journal header submitted for writing.
    pub switching: u64,
    /// The last turn of a journal with a durable copy.
    pub archived: u64,
    /// By foreground.
    pub commits: Vec<CommitEntry>,
    /// By block, counted over all files.
    pub blocks: Vec<BlockEntry>,
}

/// How a run stopped, which decides what may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// It completed: nothing was in flight.
    #[default]
    Ended,
    /// Its processes were killed; the kernel still has everything it had accepted.
    Killed,
    /// The machine stopped: everything that was not durable may be gone.
    Crashed,
}

/// SplitMix64's finaliser (S. Vigna), cut to the bits that a word has for it.
fn check_of(index: usize, value: u64) -> u64 {
    let x = value ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) >> (64 - CHECK_BITS)
}

fn word(index: usize, value: u64) -> u64 {
    value << CHECK_BITS | check_of(index, value)
}

fn value(index: usize, word: u64) -> Option<u64> {
    let value = word >> CHECK_BITS;
    (check_of(index, value) == word & ((1 << CHECK_BITS) - 1)).then_some(value)
}

/// Indices of a foreground's last two acknowledgements, each a transaction and an LSN.
fn entries(process: usize) -> [usize; 2] {
    let at = HEAD + PER_PROCESS * process;
    [at, at + 2]
}

fn words(processes: usize, blocks: usize) -> usize {
    HEAD + PER_PROCESS * processes + PER_BLOCK * blocks
}

/// The ledger of a run in progress, as each of its processes sees it.
pub struct LiveLedger<'s> {
    words: &'s [AtomicU64],
    processes: usize,
}

impl<'s> LiveLedger<'s> {
    /// Uses the mapping that [`LedgerFile::open`] created for `job`. Must be called before the first fork.
    pub fn new(segment: &'s Segment, job: &Job) -> Self {
        let (processes, blocks) = (job.transactors(), job.blocks() as usize);
        let live = Self { words: segment.many(words(processes, blocks)), processes };
        for index in 1..live.words.len() {
            live.set(index, 0);
        }
        live.set(1, processes as u64);
        live.set(2, blocks as u64);
        live.set(SEQUENCE, 1);
        live.set(SWITCHING, 1);
        // Last: a ledger without its magic belongs to a run that never began.
        live.words[0].store(MAGIC, SeqCst);
        live
    }

    fn set(&self, index: usize, value: u64) {
        self.words[index].store(word(index, value), SeqCst);
    }

    fn raise(&self, index: usize, value: u64) {
        self.words[index].fetch_max(word(index, value), SeqCst);
    }

    /// Everything before `lsn` is on disk. Must be called before the waiters are woken.
    pub fn flushed(&self, lsn: u64) {
        self.raise(FLUSHED, lsn);
    }

    /// All changes before `lsn` are in the data files.
    pub fn checkpoint(&self, lsn: u64) {
        self.raise(CHECKPOINT, lsn);
    }

    /// A journal header of this sequence is about to be written.
    pub fn switching(&self, sequence: u64) {
        self.raise(SWITCHING, sequence);
    }

    /// It is on disk.
    pub fn switched(&self, sequence: u64) {
        self.raise(SEQUENCE, sequence);
    }

    /// A durable copy of this turn of a journal exists.
    pub fn archived(&self, turn: u64) {
        self.raise(ARCHIVED, turn);
    }

    /// A foreground has its commit. Must be called after [`LiveLedger::committed`] for its blocks.
    pub fn acknowledged(&self, process: usize, commit: CommitEntry) {
        let at = self.older_entry(process);
        self.set(at, commit.transaction);
        self.set(at + 1, commit.lsn);
    }

    /// Index of a foreground's older entry, which its next acknowledgement overwrites. The LSN is written last; until then, the entry still
    /// counts as the older one.
    fn older_entry(&self, process: usize) -> usize {
        let [first, second] = entries(process);
        let lsn = |at: usize| self.words[at + 1].load(SeqCst) >> CHECK_BITS;
        if lsn(first) <= lsn(second) { first } else { second }
    }

    fn block(&self, number: u32) -> usize {
        HEAD + PER_PROCESS * self.processes + PER_BLOCK * number as usize
    }

    /// The commit of this version of a block was acknowledged.
    pub fn committed(&self, number: u32, version: u32) {
        self.raise(self.block(number), version.into());
    }

    /// This version of a block is about to be written to its data file.
    pub fn writing(&self, number: u32, version: u32) {
        self.raise(self.block(number) + 2, version.into());
    }

    /// The kernel has reported it as written.
    pub fn written(&self, number: u32, version: u32) {
        self.raise(self.block(number) + 1, version.into());
    }
}

/// The file of a live ledger, and its destination when the run has ended.
pub struct LedgerFile {
    segment: Segment,
    /// Its place while the run proceeds.
    live: PathBuf,
    dir: PathBuf,
}

/// The place of a finished run's ledger.
fn path(dir: &Path) -> PathBuf {
    dir.join("ledger")
}

/// Its name before it is renamed.
fn unfinished(dir: &Path) -> PathBuf {
    dir.join("ledger.new")
}

/// The symbolic link to the ledger of a run in progress or killed.
fn link(dir: &Path) -> PathBuf {
    dir.join("ledger.live")
}

/// A writable directory in memory, if the machine has one, so that keeping the ledger causes no I/O.
fn in_memory() -> Option<&'static Path> {
    /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of linux/magic.h.
    const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    let fits = |p: &&Path| {
        statfs(*p).is_ok_and(|s| MEMORY.contains(&(s.f_type as u64)))
            && rustix::fs::access(*p, rustix::fs::Access::WRITE_OK).is_ok()
    };
    ["/dev/shm", "/run", "/tmp"].map(Path::new).into_iter().find(fits)
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("Cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Removes every ledger of earlier runs in `dir`.
pub fn clear(dir: &Path) -> Result<()> {
    if let Ok(live) = std::fs::read_link(link(dir)) {
        remove(&live)?;
    }
    for p in [path(dir), unfinished(dir), link(dir)] {
        remove(&p)?;
    }
    Ok(())
}

impl LedgerFile {
    /// A new file for the ledger of a run of `job` in `dir`, in memory if the machine has a file system there, else in `dir`.
    pub fn open(job: &Job, dir: &Path) -> Result<Self> {
        clear(dir)?;
        let dir = dir.canonicalize().with_context(|| format!("Cannot find {}", dir.display()))?;
        // Only the directory's name decides: nothing about a run may depend on time or process ids.
        let name = dir.as_os_str().as_encoded_bytes().iter();
        let name = name.fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        let live = match in_memory() {
            Some(memory) => memory.join(format!("bigiron-ledger-{name:016x}")),
            None => dir.join("ledger.words"),
        };
        remove(&live)?;
        let len = words(job.transactors(), job.blocks() as usize) * 8;
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&live);
        let segment = file.and_then(|f| SharedMemory::of_file(len, f.as_fd())).map(Segment::of);
        let segment = segment.with_context(|| format!("Cannot keep the ledger in {}", live.display()))?;
        std::os::unix::fs::symlink(&live, link(&dir)).context("Cannot link to the ledger")?;
        Ok(Self { segment, live, dir })
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The mapping.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Writes the ledger beside the database, durably, once every process has ended.
    pub fn close(&self, live: &LiveLedger<'_>) -> Result<()> {
        live.set(ENDED, 1);
        self.save().with_context(|| format!("Cannot write {}", path(&self.dir).display()))
    }

    fn save(&self) -> std::io::Result<()> {
        let mut bytes = std::fs::read(&self.live)?;
        bytes.extend(u64::from(crc32c::crc32c(&bytes)).to_le_bytes());
        let new = unfinished(&self.dir);
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path(&self.dir))?;
        File::open(&self.dir)?.sync_all()?;
        std::fs::remove_file(link(&self.dir))?;
        std::fs::remove_file(&self.live)
    }
}

impl Drop for LedgerFile {
    /// A failed run also leaves a ledger, like a killed one, but not in memory: nobody may come for it.
    fn drop(&mut self) {
        if self.live.exists() {
            let _ = self.save();
            let _ = std::fs::remove_file(&self.live);
        }
    }
}

/// The state of a ledger in a directory.
pub enum LedgerLookup {
    Whole(Ledger),
    /// It exists, but was damaged.
    Damaged(&'static str),
    /// It was written and synced, but not renamed.
    NotRenamed,
}

impl Ledger {
    /// Bytes that the ledger of a job takes on disk.
    pub fn bytes(processes: usize, blocks: u32) -> u64 {
        8 * (words(processes, blocks as usize) as u64 + 1)
    }

    /// The ledger of the run in `dir`, whether finished or killed. An error if there is none, or none that is whole.
    #[cfg(test)]
    pub fn load(dir: &Path) -> Result<Self> {
        match Self::find(dir)? {
            LedgerLookup::Whole(ledger) => Ok(ledger),
            LedgerLookup::Damaged(how) => bail!("The ledger is damaged: {how}"),
            LedgerLookup::NotRenamed => bail!("The ledger was not renamed"),
        }
    }

    /// The state of the ledger of the run in `dir`. An error if there never was one.
    pub fn find(dir: &Path) -> Result<LedgerLookup> {
        if let Some(bytes) = read(&path(dir))? {
            let Some((body, sum)) = bytes.split_last_chunk::<8>() else {
                return Ok(LedgerLookup::Damaged("it is empty"));
            };
            if u64::from_le_bytes(*sum) != u64::from(crc32c::crc32c(body)) {
                return Ok(LedgerLookup::Damaged("its checksum is wrong"));
            }
            return Ok(Self::parse(body));
        }
        if let Some(bytes) = read(&link(dir))? {
            return Ok(Self::parse(&bytes));
        }
        if unfinished(dir).exists() {
            return Ok(LedgerLookup::NotRenamed);
        }
        if link(dir).is_symlink() {
            bail!(
                "The ledger was in memory and is gone; after a restart of the machine only a stream of acknowledgements can replace it"
            );
        }
        bail!("No ledger: there has been no run in {}", dir.display())
    }

    fn parse(bytes: &[u8]) -> LedgerLookup {
        Self::read_words(bytes).map_or_else(LedgerLookup::Damaged, LedgerLookup::Whole)
    }

    fn read_words(bytes: &[u8]) -> Result<Self, &'static str> {
        let raw: Vec<_> = bytes.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
        let get =
            |index: usize| value(index, *raw.get(index).ok_or("it is too short")?).ok_or("a word of it is not whole");
        if raw.first() != Some(&MAGIC) {
            return Err("its header is wrong");
        }
        let (processes, blocks) = (get(1)? as usize, get(2)? as usize);
        if raw.len() != words(processes, blocks) {
            return Err("its length does not match its header");
        }
        if !(1..raw.len()).all(|index| value(index, raw[index]).is_some()) {
            return Err("a word of it is not whole");
        }
        let entry =
            |at: usize| -> Result<_, &'static str> { Ok(CommitEntry { transaction: get(at)?, lsn: get(at + 1)? }) };
        let commit = |p: usize| -> Result<_, &'static str> {
            let [first, second] = entries(p).map(entry);
            let (first, second) = (first?, second?);
            Ok(if first.lsn > second.lsn { first } else { second })
        };
        let block = |b: usize| -> Result<_, &'static str> {
            let at = HEAD + PER_PROCESS * processes + PER_BLOCK * b;
            Ok(BlockEntry { committed: get(at)? as u32, written: get(at + 1)? as u32, writing: get(at + 2)? as u32 })
        };
        Ok(Self {
            stop: if get(ENDED)? == 1 { Stop::Ended } else { Stop::Killed },
            flushed: get(FLUSHED)?,
            checkpoint: get(CHECKPOINT)?,
            sequence: get(SEQUENCE)?,
            switching: get(SWITCHING)?,
            archived: get(ARCHIVED)?,
            commits: (0..processes).map(commit).collect::<Result<_, _>>()?,
            blocks: (0..blocks).map(block).collect::<Result<_, _>>()?,
        })
    }
}

/// The file's bytes, or `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("Cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests;
