//! The job: dbsim's work, in numbers.
//!
//! Invariant: a valid [`Job`] can be run: everything that can be refused without a machine has been refused.

mod check;
mod class;
mod draft;
pub mod explain;
pub mod fio;
mod forms;
#[cfg(test)]
mod fuzz;
mod keys;
mod options;
mod print;
pub mod shipped;
mod source;
mod step;
mod step_text;
mod words;

use std::path::PathBuf;
use std::time::Duration;

pub use bigiron_sys::async_io::{EngineSpec as Engine, Method};
pub use bigiron_sys::memory::Memory;

use bigiron_model::clock::Clock;

use super::block::BLOCK;
use bigiron_workload::acknowledgements::AckTarget;
pub use bigiron_workload::units::Pace;

pub use draft::{Draft, dotted};
pub use keys::explain as explain_key;
pub use options::OPTIONS;
pub use print::print;
pub use source::{check_dotted, draft, embed};
pub use step::{Amount, Choice, Step};

/// Unit in which files are written and verified, in bytes.
pub const EXTENT: usize = 1 << 20;

/// A checked job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    pub run: RunSpec,
    pub cache: CacheSpec,
    pub data: DataSpec,
    pub journal: JournalSpec,
    /// The work of foregrounds (and the servers of clients); a transaction is drawn by weight.
    pub transactions: Vec<TransactionSpec>,
    /// The process classes, in the order in which they are started and numbered.
    pub classes: Vec<ClassSpec>,
}

/// How long the job runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The measured window.
    pub length: Length,
    /// The part before it; `None`: a quarter of the window.
    pub ramp: Option<Length>,
    /// Named stretches of the window, each with its own share of it and pace; empty: one stretch, at the classes' own pace.
    pub phases: Vec<PhaseSpec>,
    /// Where acknowledgements are sent first, so that they outlive this machine.
    pub acks: Option<AckTarget>,
    /// The network below TCP connections of clients.
    pub network: Wire,
}

/// Work or time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// A number of transactions that suits the clock.
    Auto,
    /// Transactions of all foregrounds together.
    Transactions(u64),
    Time(Duration),
}

/// A named stretch of the window.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseSpec {
    pub name: String,
    pub length: Length,
    /// Overrides the pace of every foreground and client.
    pub pace: Option<Pace>,
}

/// The shared buffer cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    pub bytes: u64,
    pub memory: Memory,
    pub replacement: Replacement,
    /// Per cent of buffers that may be dirty before database writers start to clean.
    pub dirty_percent: u32,
    /// Whether each process that executes transactions touches every page of the cache before its first one.
    pub prefault: bool,
}

/// How a buffer is chosen for replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    Clock,
    Lru,
}

/// The data files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSpec {
    pub files: usize,
    /// Of all files together.
    pub bytes: u64,
    pub direct: bool,
    /// Whether block reads and writes, which go through the page cache, use `RWF_DONTCACHE`.
    pub dontcache: bool,
    pub sync: DataSync,
    /// Directories or block devices among which the files are distributed in turn; empty: the run's own directory.
    pub places: Vec<PathBuf>,
}

impl DataSpec {
    /// The unit of the bytes of all data files: an extent of each.
    fn unit(&self) -> u64 {
        (self.files * EXTENT) as u64
    }

    /// Whether anything is on block devices.
    pub fn has_devices(&self) -> bool {
        self.places.iter().any(|place| place.starts_with("/dev"))
    }
}

/// How writes of blocks become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSync {
    /// Files opened with `O_DSYNC`.
    Dsync,
    /// `fdatasync` of the data files before a checkpoint counts.
    Fdatasync,
}

/// The journals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSpec {
    /// Written in turn; at least 2.
    pub files: usize,
    /// Of each journal.
    pub bytes: u64,
    pub direct: bool,
    pub sync: LogSync,
    /// Redo is written in multiples of this.
    pub block: usize,
    pub place: Option<PathBuf>,
}

/// How redo becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSync {
    /// Journals opened with `O_DSYNC`.
    Dsync,
    /// `RWF_DSYNC` on each write.
    RwfDsync,
    Fdatasync,
    Fsync,
    /// io_uring only: the write and its fdatasync as linked requests of one system call.
    Linked,
}

/// A kind of transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionSpec {
    pub name: String,
    pub weight: u32,
    pub steps: Vec<Step>,
}

/// One process class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSpec {
    pub name: String,
    /// Processes (for clients: pairs).
    pub count: usize,
    /// Threads of one process instead of processes.
    pub threads: bool,
    pub pace: Pace,
    pub kind: ClassKind,
}

/// The work of a class.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassKind {
    /// Transactions.
    Foreground,
    /// Writes redo to the journals; exactly one if there are foregrounds or clients.
    LogWriter { engine: Engine, group_bytes: usize, group_wait: Duration, wake: Wake },
    /// Writes dirty blocks to the data files.
    DatabaseWriter { engine: Engine, batch: usize, sorted: bool },
    /// Requests a checkpoint from the database writers whenever this percentage of a journal is full. Without one, only log
    /// switches do.
    Checkpointer { percent: u32 },
    /// Reads the data files from end to end.
    Scanner { engine: Engine, request: usize, direct: bool, work: WorkShare },
    /// Copies each full journal before it may be reused.
    Archiver { request: usize, bytes_per_second: Option<u64> },
    /// Sorts: fills memory, spills sorted runs to temporary files, merges them.
    Sorter { bytes: u64, memory: u64, request: usize },
    /// Appends blocks in bulk to its own file.
    Loader { engine: Engine, request: usize, bytes: u64 },
    /// Reads data files and writes a copy.
    Backup { request: usize, bytes_per_second: Option<u64> },
    /// Connected, mostly asleep: touches this many blocks of the cache once, then wakes at this interval.
    Idle { touch: usize, every: Duration },
    /// A client process and its server process; the server executes the transactions.
    Client { transport: Transport, request: usize, reply: usize },
    /// Plain requests, like those of an I/O generator.
    Requests(RequestSpec),
}

/// How the log writer is told of work, and foregrounds of the flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A futex for the log writer, and one for all commits of the same redo write.
    Post,
    /// Waiting processes poll.
    Poll,
}

/// The amount of work of a background class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkShare {
    /// One request per this many transactions: fixed work, whatever the speed.
    PerTransactions(u64),
    /// As much as possible until the window closes.
    Free,
}

/// How a client communicates with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A pair of Unix stream sockets.
    Socket,
    /// Two pipes.
    Pipe,
    /// Shared memory and futexes.
    Memory,
    /// TCP, over the network in `run.network`.
    Tcp,
}

/// The network below TCP connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The loopback: no queues, no offloads, no polling.
    Loopback,
    /// A pair of virtual Ethernet devices, with clients and servers in separate network namespaces.
    Veth,
}

/// Plain requests on the data files: random ones on all of them, sequential ones from one file to the next, with each process
/// starting at another.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpec {
    pub engine: Engine,
    /// Bytes of a request.
    pub bytes: usize,
    pub random: bool,
    /// The distribution of random requests.
    pub choice: Choice,
    /// The data files that are used, from the first to the last; `None`: all.
    pub files: Option<(usize, usize)>,
    /// Per cent of reads; the rest are writes.
    pub read_percent: u32,
    pub direct: bool,
    /// `RWF_DSYNC` on writes.
    pub dsync: bool,
    /// `fdatasync` after this many writes; 0: never.
    pub fdatasync_every: u32,
    /// Written blocks carry address, version and checksum, and are verified when read.
    pub verify: bool,
    /// Requests of the whole class in the window; `None`: until the window closes.
    pub count: Option<u64>,
}

impl RequestSpec {
    /// Number of the first data file of the class, and the number of its files.
    pub fn span(&self, files: usize) -> (usize, usize) {
        self.files.map_or((0, files), |(first, last)| (first, last - first + 1))
    }
}

impl ClassKind {
    /// The kind's word in a job file.
    pub fn word(&self) -> &'static str {
        match self {
            ClassKind::Foreground => "foreground",
            ClassKind::LogWriter { .. } => "log-writer",
            ClassKind::DatabaseWriter { .. } => "database-writer",
            ClassKind::Checkpointer { .. } => "checkpointer",
            ClassKind::Scanner { .. } => "scanner",
            ClassKind::Archiver { .. } => "archiver",
            ClassKind::Sorter { .. } => "sorter",
            ClassKind::Loader { .. } => "loader",
            ClassKind::Backup { .. } => "backup",
            ClassKind::Idle { .. } => "idle",
            ClassKind::Client { .. } => "client",
            ClassKind::Requests(_) => "requests",
        }
    }

    /// Whether processes of this kind execute transactions.
    pub fn transacts(&self) -> bool {
        matches!(self, ClassKind::Foreground | ClassKind::Client { .. })
    }
}

impl Job {
    /// Transactions in the measured window under `clock`; `None` if the window is a time.
    pub fn transactions(&self, clock: Clock) -> Option<u64> {
        self.count(self.run.length, clock)
    }

    /// Transactions before the window, which bring cache, log and writer to a steady state; `None` if the ramp is a time.
    pub fn ramp(&self, clock: Clock) -> Option<u64> {
        match self.run.ramp {
            Some(length) => self.count(length, clock),
            None => self.transactions(clock).map(|n| n.div_ceil(4)),
        }
    }

    fn count(&self, length: Length, clock: Clock) -> Option<u64> {
        match (length, clock) {
            (Length::Time(_), _) => None,
            (Length::Transactions(n), _) => Some(n),
            (Length::Auto, Clock::Wall) => Some(60_000),
            // Instructions are emulated: a few seconds of the host's time.
            (Length::Auto, Clock::Exact | Clock::ExactParallel | Clock::Exact1 | Clock::None) => Some(3_000),
        }
    }

    /// Number of processes that execute transactions: foregrounds, and the servers of clients.
    pub fn transactors(&self) -> usize {
        self.classes.iter().filter(|c| c.kind.transacts()).map(|c| c.count).sum()
    }

    /// Whether transactions change blocks.
    pub fn changes(&self) -> bool {
        let changes =
            |s: &Step| !matches!(s, Step::Dirty(Amount::Count(0) | Amount::Percent(0))) && matches!(s, Step::Dirty(_));
        self.any_step(changes)
    }

    /// Whether transactions write redo, so that their commits wait for the log.
    pub fn writes(&self) -> bool {
        self.changes() || self.any_step(|s| matches!(s, Step::Redo { max, .. } if *max > 0))
    }

    /// Whether transactions must read blocks, because the cache does not hold all of them.
    pub fn reads(&self) -> bool {
        self.cache.bytes < self.data.bytes && self.any_step(|s| s.gets_max() > 0)
    }

    fn any_step(&self, of: impl Fn(&Step) -> bool) -> bool {
        self.transactors() > 0 && self.transactions.iter().flat_map(|t| &t.steps).any(of)
    }

    /// The log writer's class, if the job has one.
    pub fn log_writer(&self) -> Option<&ClassSpec> {
        self.classes.iter().find(|c| matches!(c.kind, ClassKind::LogWriter { .. }))
    }

    /// Number of block gets of the largest transaction.
    pub fn gets_max(&self) -> usize {
        let gets = |t: &TransactionSpec| t.steps.iter().map(Step::gets_max).sum();
        self.transactions.iter().map(gets).max().unwrap_or(0)
    }

    /// Database blocks in all data files.
    pub fn blocks(&self) -> u32 {
        (self.data.bytes / BLOCK as u64) as u32
    }

    /// Database blocks in each data file.
    pub fn blocks_per_file(&self) -> u32 {
        self.blocks() / self.data.files as u32
    }

    /// Buffers in the cache.
    pub fn buffers(&self) -> usize {
        (self.cache.bytes / BLOCK as u64) as usize
    }

    /// Bytes of the log buffer: room for the outstanding redo of every foreground.
    pub fn log_buffer_bytes(&self) -> usize {
        (self.transactors() * 16 * 1024).clamp(512 * 1024, 16 * EXTENT)
    }
}
