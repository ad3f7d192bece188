//! The disk tests: a user's file written, read and copied one KiB at a time, in order or at random places, in four ways.
//!
//! Invariant: each KiB carries its number and its write; every read checks both, and a call that writes checks its file's length
//! and the last KiB written before it removes the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use anyhow::Context as _;

use super::UserContext;
use super::block::{AGAIN, Block, Buffer, FIRST};
use super::user_context::{BLOCK, TestDirectory};
use super::verdict::{expect, wrong};

/// The file that users read and copy from, under [`TestDirectory::dir`].
const SOURCE: &str = "source";
/// Prefix of the names of a user's files.
const OWN: &str = "work";

impl TestDirectory {
    pub(super) fn source(&self) -> PathBuf {
        self.dir().join(SOURCE)
    }
}

/// Writes the source file.
pub(super) fn lay_out(disk: &TestDirectory) -> anyhow::Result<()> {
    let path = disk.source();
    let write = || -> io::Result<()> {
        let file = File::create(&path)?;
        let mut buffer = Buffer::plain();
        let mut writer = io::BufWriter::with_capacity(64 << 10, &file);
        for number in 0..disk.blocks() {
            writer.write_all(buffer.block().stamped(number, FIRST))?;
        }
        writer.flush()?;
        drop(writer);
        file.sync_all()
    };
    write().with_context(|| format!("Cannot lay out `{}`", path.display()))
}

/// Removes the source file.
pub(super) fn clear(disk: &TestDirectory) -> anyhow::Result<()> {
    match fs::remove_file(disk.source()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("Cannot remove `{}`", disk.source().display()))
        }
        _ => Ok(()),
    }
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenMode {
    /// Through the page cache, with a `sync` of everything before and after.
    Synced,
    /// Through the page cache.
    Cached,
    /// `O_DIRECT`, with a `sync` of everything before and after.
    Direct,
    /// `O_SYNC`.
    Synchronous,
}

impl OpenMode {
    fn flags(self) -> i32 {
        match self {
            OpenMode::Synced | OpenMode::Cached => 0,
            OpenMode::Direct => libc::O_DIRECT,
            OpenMode::Synchronous => libc::O_SYNC,
        }
    }

    fn sync(self, place: &UserContext<'_>) {
        if matches!(self, OpenMode::Synced | OpenMode::Direct) {
            place.sync();
        }
    }

    fn buffer(self) -> Buffer {
        if self == OpenMode::Direct { Buffer::aligned() } else { Buffer::plain() }
    }

    /// Number of blocks of a call: half the file's if each write waits for the disk.
    fn blocks(self, disk: &TestDirectory) -> u64 {
        if self == OpenMode::Synchronous { disk.half_blocks() } else { disk.blocks() }
    }
}

/// A file and its path, for messages.
pub(super) struct Opened {
    pub file: File,
    path: PathBuf,
}

impl Opened {
    fn open(path: PathBuf, options: &mut OpenOptions, way: OpenMode) -> anyhow::Result<Self> {
        let file = options.custom_flags(way.flags()).open(&path).with_context(|| {
            let hint = if way == OpenMode::Direct { "; O_DIRECT needs a file system that has it" } else { "" };
            format!("Cannot open `{}`{hint}", path.display())
        })?;
        Ok(Self { file, path })
    }

    fn fail(&self, verb: &str, number: u64) -> String {
        format!("Cannot {verb} block {number} of `{}`", self.path.display())
    }

    fn seek(&mut self, number: u64) -> anyhow::Result<()> {
        self.file.seek(SeekFrom::Start(number * BLOCK as u64)).with_context(|| self.fail("seek", number))?;
        Ok(())
    }

    /// Reads the block at the file's position, which must be `number`.
    fn read(&mut self, buffer: &mut Buffer, number: u64) -> anyhow::Result<u64> {
        let read = self.file.read(buffer.bytes()).with_context(|| self.fail("read", number))?;
        self.check(buffer.block(), read, number)
    }

    /// The write of the block just read.
    pub(super) fn check(&self, block: Block<'_>, read: usize, number: u64) -> anyhow::Result<u64> {
        let path = self.path.display();
        if read != BLOCK {
            return Err(wrong(format!("`{path}` ended in block {number}: {read} bytes of {BLOCK} were read")));
        }
        block
            .write_of(number)
            .ok_or_else(|| wrong(format!("Block {number} of `{path}` differs from what was written there")))
    }

    fn write(&mut self, buffer: &mut Buffer, number: u64, write: u64) -> anyhow::Result<()> {
        let written =
            self.file.write(buffer.block().stamped(number, write)).with_context(|| self.fail("write", number))?;
        expect("Writing a block", written, BLOCK)
    }

    /// Compares the length with `blocks`, and block `last` with what was written there.
    pub(super) fn verify(&self, buffer: &mut Buffer, blocks: u64, last: u64, write: u64) -> anyhow::Result<()> {
        let length = self.file.metadata().with_context(|| self.fail("measure", last))?.len();
        expect("Writing a file", length, blocks * BLOCK as u64)?;
        let read = self.file.read_at(buffer.bytes(), last * BLOCK as u64).with_context(|| self.fail("read", last))?;
        expect("Reading back a block", self.check(buffer.block(), read, last)?, write)
    }
}

/// A file of this user, removed when dropped.
pub(super) struct UserFile(PathBuf);

impl UserFile {
    /// A name that no other file has or had.
    pub(super) fn new(place: &mut UserContext<'_>) -> Self {
        place.kept.files += 1;
        Self(place.own(&format!("{OWN}{}", place.kept.files)))
    }

    fn create(&self, way: OpenMode) -> anyhow::Result<Opened> {
        Opened::open(self.0.clone(), OpenOptions::new().read(true).write(true).create(true).truncate(true), way)
    }

    pub(super) fn open(&self, way: OpenMode, write: bool) -> anyhow::Result<Opened> {
        Opened::open(self.0.clone(), OpenOptions::new().read(true).write(write), way)
    }

    /// Creates it with this many blocks, through the page cache.
    pub(super) fn fill(&self, blocks: u64) -> anyhow::Result<()> {
        let mut opened = self.create(OpenMode::Cached)?;
        let mut buffer = Buffer::plain();
        for number in 0..blocks {
            opened.write(&mut buffer, number, FIRST)?;
        }
        Ok(())
    }

    fn remove(self) -> anyhow::Result<()> {
        let path = self.0.clone();
        std::mem::forget(self);
        fs::remove_file(&path).with_context(|| format!("Cannot remove `{}`", path.display()))
    }
}

impl Drop for UserFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Opens the source file.
fn source(place: &UserContext<'_>, way: OpenMode) -> anyhow::Result<Opened> {
    // Reading needs no O_SYNC.
    let way = if way == OpenMode::Direct { OpenMode::Direct } else { OpenMode::Cached };
    Opened::open(place.disk().source(), OpenOptions::new().read(true), way)
}

/// Reads `opened` from its beginning.
fn read_through(opened: &mut Opened, blocks: u64, way: OpenMode) -> anyhow::Result<()> {
    let mut buffer = way.buffer();
    opened.seek(0)?;
    for number in 0..blocks {
        expect("Reading a block", opened.read(&mut buffer, number)?, FIRST)?;
    }
    Ok(())
}

/// Reads every block in order; of the source file, or (with syncs) of the user's own file.
pub(super) fn sequential_read(place: &mut UserContext<'_>, way: OpenMode) -> anyhow::Result<()> {
    let blocks = place.disk().blocks();
    let own = if way == OpenMode::Synced {
        let own = UserFile::new(place);
        own.fill(blocks)?;
        place.sync();
        Some(own)
    } else {
        None
    };
    let mut opened = match &own {
        Some(own) => own.open(way, false)?,
        None => source(place, way)?,
    };
    read_through(&mut opened, blocks, way)?;
    drop(opened);
    way.sync(place);
    own.map_or(Ok(()), UserFile::remove)
}

/// Writes a new file of the same number of blocks.
pub(super) fn sequential_write(place: &mut UserContext<'_>, way: OpenMode) -> anyhow::Result<()> {
    let blocks = way.blocks(place.disk());
    let own = UserFile::new(place);
    let mut opened = own.create(way)?;
    way.sync(place);
    let mut buffer = way.buffer();
    for number in 0..blocks {
        opened.write(&mut buffer, number, FIRST)?;
    }
    opened.verify(&mut buffer, blocks, blocks - 1, FIRST)?;
    own.remove()?;
    drop(opened);
    way.sync(place);
    Ok(())
}

/// Copies the source file.
pub(super) fn copy(place: &mut UserContext<'_>, way: OpenMode) -> anyhow::Result<()> {
    let blocks = way.blocks(place.disk());
    way.sync(place);
    let mut from = source(place, way)?;
    let own = UserFile::new(place);
    let mut to = own.create(way)?;
    way.sync(place);
    from.seek(0)?;
    let mut buffer = way.buffer();
    for number in 0..blocks {
        expect("Reading a block", from.read(&mut buffer, number)?, FIRST)?;
        to.write(&mut buffer, number, AGAIN)?;
    }
    to.verify(&mut buffer, blocks, blocks - 1, AGAIN)?;
    own.remove()?;
    drop((from, to));
    way.sync(place);
    Ok(())
}

/// Reads or rewrites as many blocks at random places of a new file.
fn random(place: &mut UserContext<'_>, way: OpenMode, write: bool) -> anyhow::Result<()> {
    let blocks = way.blocks(place.disk());
    let own = UserFile::new(place);
    own.fill(blocks)?;
    way.sync(place);
    let mut opened = own.open(way, write)?;
    let mut buffer = way.buffer();
    let mut last = 0;
    for _ in 0..blocks {
        let number = place.below(blocks);
        opened.seek(number)?;
        if write {
            opened.write(&mut buffer, number, AGAIN)?;
            last = number;
        } else {
            expect("Reading a block", opened.read(&mut buffer, number)?, FIRST)?;
        }
    }
    if write {
        opened.verify(&mut buffer, blocks, last, AGAIN)?;
    }
    own.remove()?;
    drop(opened);
    way.sync(place);
    Ok(())
}

pub(super) fn random_read(place: &mut UserContext<'_>, way: OpenMode) -> anyhow::Result<()> {
    random(place, way, false)
}

pub(super) fn random_write(place: &mut UserContext<'_>, way: OpenMode) -> anyhow::Result<()> {
    random(place, way, true)
}

/// Reads half as many blocks as a new file has at random places and writes them back, `O_SYNC`.
pub fn update(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let (blocks, rounds) = (place.disk().blocks(), place.disk().half_blocks());
    let own = UserFile::new(place);
    own.fill(blocks)?;
    let mut opened = own.open(OpenMode::Synchronous, true)?;
    let mut buffer = OpenMode::Synchronous.buffer();
    let mut last = 0;
    for _ in 0..rounds {
        last = place.below(blocks);
        opened.seek(last)?;
        let found = opened.read(&mut buffer, last)?;
        if found != FIRST && found != AGAIN {
            return Err(wrong(format!("Block {last} of `{}` comes from no write", opened.path.display())));
        }
        let written = opened
            .file
            .write_at(buffer.block().stamped(last, AGAIN), last * BLOCK as u64)
            .with_context(|| opened.fail("write", last))?;
        expect("Writing a block", written, BLOCK)?;
    }
    opened.verify(&mut buffer, blocks, last, AGAIN)?;
    drop(opened);
    own.remove()
}

/// The tests in the catalogue.
macro_rules! ways {
    ($($name:ident: $act:ident, $way:ident);+ $(;)?) => {$(
        pub fn $name(place: &mut UserContext<'_>) -> anyhow::Result<()> {
            $act(place, OpenMode::$way)
        }
    )+};
}

ways! {
    disk_rd: sequential_read, Synced;
    disk_wrt: sequential_write, Synced;
    disk_cp: copy, Synced;
    disk_rr: random_read, Synced;
    disk_rw: random_write, Synced;
    disk_brd: sequential_read, Cached;
    disk_bwrt: sequential_write, Cached;
    disk_bcp: copy, Cached;
    disk_brr: random_read, Cached;
    disk_brw: random_write, Cached;
    disk_dio_rd: sequential_read, Direct;
    disk_dio_wrt: sequential_write, Direct;
    disk_dio_cp: copy, Direct;
    disk_dio_rr: random_read, Direct;
    disk_dio_rw: random_write, Direct;
    sync_disk_wrt: sequential_write, Synchronous;
    sync_disk_cp: copy, Synchronous;
    sync_disk_rw: random_write, Synchronous;
}
