//! The surroundings of a test: the users' shared directory, and a user's state between calls.
//!
//! Invariant: a user writes only names that carry its number; shared files are prepared before the users start and only read by
//! them.

use std::path::{Path, PathBuf};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

use super::{Needs, Test, directory, disk, values};
use bigiron_sys::heap::Heap;

/// Bytes that every disk test reads or writes at a time.
pub const BLOCK: usize = 1024;

/// Number of blocks of a file of this many bytes, at least one.
pub(super) fn blocks(file_bytes: u64) -> u64 {
    (file_bytes / BLOCK as u64).max(1)
}

/// The number of blocks that a synchronous test writes.
pub(super) fn half_blocks(file_bytes: u64) -> u64 {
    (blocks(file_bytes) / 2).max(1)
}

/// The divisor of the inner loop of each call: a loop of n rounds has n/divisor rounds, at least one. The files have the length
/// of [`TestDirectory::file_bytes`] at any scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(u64);

impl Scale {
    /// ReAIM's own loops.
    pub const FULL: Scale = Scale(1);

    /// Loops divided by `divisor`; 0 counts as 1.
    pub fn divided_by(divisor: u64) -> Self {
        Self(divisor.max(1))
    }

    /// Rounds of a loop that has `full` of them at full scale.
    pub fn times(self, full: u64) -> u64 {
        (full / self.0).max(1)
    }
}

/// A directory in which users work side by side, with the files that they only read.
#[derive(Clone, Debug)]
pub struct TestDirectory {
    dir: PathBuf,
    file_bytes: u64,
}

impl TestDirectory {
    /// Prepares the input files of `tests` in `dir`, which exists: a file of `file_bytes` (rounded down to whole KiB), a tree of
    /// names. Files of other sizes from an earlier call are replaced.
    ///
    /// # Errors
    /// If the directory is not writable, or the disk is full.
    pub fn lay_out<'t>(dir: &Path, file_bytes: u64, tests: impl IntoIterator<Item = &'t Test>) -> anyhow::Result<Self> {
        let disk = Self { dir: dir.to_owned(), file_bytes };
        let (mut file, mut tree) = (false, false);
        for test in tests {
            file |= test.needs == Needs::File;
            tree |= test.needs == Needs::Directory;
        }
        if file {
            disk::lay_out(&disk)?;
        }
        if tree {
            directory::lay_out(&disk)?;
        }
        values::make();
        Ok(disk)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of the files of the disk tests.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(super) fn blocks(&self) -> u64 {
        blocks(self.file_bytes)
    }

    pub(super) fn half_blocks(&self) -> u64 {
        half_blocks(self.file_bytes)
    }

    /// Removes the files created by [`TestDirectory::lay_out`].
    ///
    /// # Errors
    /// Those of the file system, except that a file does not exist.
    pub fn clear(self) -> anyhow::Result<()> {
        disk::clear(&self)?;
        directory::clear(&self)
    }
}

/// The tests' state between calls; empty until a test needs it.
#[derive(Default)]
pub(super) struct TestState {
    /// The index of the next message in the table.
    pub message: usize,
    /// The mark of the previous message.
    pub mark: u8,
    /// The positions in the numeric tests' values.
    pub halved: usize,
    pub wide: usize,
    /// The heap for allocated blocks.
    pub heap: Option<Box<Heap>>,
    /// The destination of copies.
    pub copies: Vec<u8>,
    /// The table to sort, once sorted.
    pub sorted: Vec<i32>,
    /// Whether there is a shell, once checked.
    pub has_shell: Option<bool>,
    /// Number of files created so far: each has its own name.
    pub files: u64,
}

/// The user's input to a test: its number among the directory's users, its random draws, buffers kept between calls. A few
/// hundred bytes until a test needs buffers.
pub struct UserContext<'a> {
    disk: &'a TestDirectory,
    executable: &'a Path,
    user: u32,
    pub(super) scale: Scale,
    syncs: bool,
    draws: SplitMix64,
    pub(super) kept: TestState,
}

impl<'a> UserContext<'a> {
    /// The context of user number `user`, whose draws depend on `seed` and that number. `executable` is bigiron itself.
    pub fn new(disk: &'a TestDirectory, executable: &'a Path, user: u32, seed: u64) -> Self {
        let mut mixed = SplitMix64::seed_from_u64(seed);
        let seed = mixed.next_u64() ^ u64::from(user).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            disk,
            executable,
            user,
            scale: Scale::FULL,
            syncs: true,
            draws: SplitMix64::seed_from_u64(seed),
            kept: TestState::default(),
        }
    }

    /// With shorter loops.
    pub fn scaled(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// Whether the disk tests call `sync` (the default), or leave it out.
    pub fn syncing(self, syncs: bool) -> Self {
        Self { syncs, ..self }
    }

    pub fn user(&self) -> u32 {
        self.user
    }

    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Rounds of a loop that has `full` of them at full scale.
    pub(super) fn times(&self, full: u64) -> u64 {
        self.scale.times(full)
    }

    pub(super) fn disk(&self) -> &'a TestDirectory {
        self.disk
    }

    pub(super) fn executable(&self) -> &'a Path {
        self.executable
    }

    /// A path in the directory that no other user has.
    pub(super) fn own(&self, name: &str) -> PathBuf {
        self.disk.dir.join(format!("{name}.{}", self.user))
    }

    /// A number below `n`.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draws.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// `sync`, unless disabled for this user: writes all dirty data in memory to every disk of the machine.
    pub(super) fn sync(&self) {
        if self.syncs {
            rustix::fs::sync();
        }
    }
}
