//! The tests of a `multiuser` user: the work of one call, its credit, and the check of its result.
//!
//! Invariant: a call's work depends only on its test, on the given [`UserContext`] and on earlier calls with it; a call that
//! returns has done all of its work and has verified the result.

mod arithmetic;
mod asynchronous;
mod block;
mod calls;
mod catalogue;
mod directory;
mod disk;
mod linear;
mod memory;
mod messages;
mod numeric;
mod process;
pub mod shell;
mod sort;
mod text;
mod user_context;
mod values;
mod verdict;

use std::fmt;

pub use self::catalogue::{catalogue, find};
pub use self::user_context::{Scale, TestDirectory, UserContext};

/// The subject of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Arithmetic and library functions: no system calls.
    Cpu,
    /// The allocator, copies, the program break, page faults.
    Memory,
    /// Processes, signals, programs.
    Process,
    /// Pipes, socket pairs, System V shared memory.
    Ipc,
    /// TCP and UDP over the loopback interface.
    Net,
    /// Names: files created, linked, looked up.
    Directory,
    /// Files through the page cache.
    Disk,
    /// The same with `O_DIRECT`.
    DirectDisk,
    /// The same with `O_SYNC`.
    SyncDisk,
    /// The same with `io_submit`, 32 requests in flight.
    Async,
}

impl Group {
    /// Every group, in the catalogue's order.
    pub const ALL: [Group; 10] = [
        Group::Cpu,
        Group::Memory,
        Group::Process,
        Group::Ipc,
        Group::Net,
        Group::Directory,
        Group::Disk,
        Group::DirectDisk,
        Group::SyncDisk,
        Group::Async,
    ];
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Group::Cpu => "cpu",
            Group::Memory => "memory",
            Group::Process => "process",
            Group::Ipc => "ipc",
            Group::Net => "net",
            Group::Directory => "directory",
            Group::Disk => "disk",
            Group::DirectDisk => "direct-disk",
            Group::SyncDisk => "sync-disk",
            Group::Async => "async",
        })
    }
}

/// The number of operations credited to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// This number if the call's inner loop runs `of` times, as at [`Scale::FULL`].
    Loops { operations: u64, of: u64 },
    /// One for each KiB of the file.
    Blocks,
    /// One for each KiB of half the file: the tests that write synchronously do half the work.
    HalfBlocks,
}

/// What a test requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// The loopback interface, up.
    Loopback,
    /// [`TestDirectory::dir`], for creating names and for reading the prepared files; a few hundred KiB in all.
    Directory,
    /// The same, with room for two files of [`TestDirectory::file_bytes`] per user besides the shared one.
    File,
}

/// One test.
pub struct Test {
    /// The name in a workfile.
    pub name: &'static str,
    pub credit: Credit,
    /// The unit of counting, in the plural, such as `thousand additions`.
    pub unit: &'static str,
    pub group: Group,
    /// One call: does the work and checks it. Wrong data are a [`WrongData`](bigiron_workload::WrongData).
    pub run: fn(&mut UserContext<'_>) -> anyhow::Result<()>,
    pub needs: Needs,
    /// One line, for lists of tests.
    pub summary: &'static str,
}

impl Test {
    /// Whether it runs a shell, or the substitute for one; see [`shell::interpreter`].
    pub fn runs_scripts(&self) -> bool {
        self.name == "exec_test" || self.name.starts_with("shell_rtns_")
    }

    /// Operations credited to one call with files of `file_bytes`: the factor from calls per second to operations per second.
    pub fn operations(&self, file_bytes: u64, scale: Scale) -> f64 {
        match self.credit {
            Credit::Loops { operations, of } => operations as f64 * scale.times(of) as f64 / of as f64,
            Credit::Blocks => user_context::blocks(file_bytes) as f64,
            Credit::HalfBlocks => user_context::half_blocks(file_bytes) as f64,
        }
    }
}

#[cfg(test)]
mod tests;
