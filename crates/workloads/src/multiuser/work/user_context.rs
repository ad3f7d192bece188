//! Where a test runs: the directory that users share, and what one user keeps between calls.
//!
//! Invariant: a user writes only names that carry its number; what users share is laid out before they start and only read by them.

use std::path::{Path, PathBuf};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

use super::{Needs, Test, directory, disk, values};
use bigiron_sys::heap::Heap;

/// Bytes that every disk test reads or writes at a time.
pub const BLOCK: usize = 1024;

/// Blocks of a file of this many bytes: one at least.
pub(super) fn blocks(file_bytes: u64) -> u64 {
    (file_bytes / BLOCK as u64).max(1)
}

/// What a synchronous test writes of it.
pub(super) fn half_blocks(file_bytes: u64) -> u64 {
    (blocks(file_bytes) / 2).max(1)
}

/// By how much the inner loop of each call is made shorter: a call's loop of n rounds has n/divisor, one at least. A call's files are as
/// long as [`TestDirectory::file_bytes`] says at any scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(u64);

impl Scale {
    /// The ancestor's loops.
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

/// A directory in which users work side by side, with what they only read.
#[derive(Clone, Debug)]
pub struct TestDirectory {
    dir: PathBuf,
    file_bytes: u64,
}

impl TestDirectory {
    /// Lays out in `dir`, which exists, what `tests` read: a file of `file_bytes` (rounded down to whole KiB), a tree of names. What an
    /// earlier call has laid out there with other sizes is replaced.
    ///
    /// # Errors
    /// A directory that cannot be written, a full disk.
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

    /// Removes what [`TestDirectory::lay_out`] has made.
    ///
    /// # Errors
    /// What the file system says, but that it is not there.
    pub fn clear(self) -> anyhow::Result<()> {
        disk::clear(&self)?;
        directory::clear(&self)
    }
}

/// What tests keep from one call to the next; empty until one needs it.
#[derive(Default)]
pub(super) struct TestState {
    /// Which message of the table is next.
    pub message: usize,
    /// What marks the message before it.
    pub mark: u8,
    /// Where the walks through the numeric tests' values are.
    pub halved: usize,
    pub wide: usize,
    /// What blocks are allocated from.
    pub heap: Option<Box<Heap>>,
    /// What copies are made to.
    pub copies: Vec<u8>,
    /// What is sorted, once it has been.
    pub sorted: Vec<i32>,
    /// Whether there is a shell, once that was looked for.
    pub has_shell: Option<bool>,
    /// Files made so far: each has a name of its own.
    pub files: u64,
}

/// What a test is given of its user: the number among those of the directory, its draws, buffers kept between calls. A few hundred bytes until a test needs
/// buffers.
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

    /// `sync`, unless this place leaves it out: writes everything in memory to every disk of the machine.
    pub(super) fn sync(&self) {
        if self.syncs {
            rustix::fs::sync();
        }
    }
}
