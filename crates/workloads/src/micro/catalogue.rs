//! Every test of micro: name, group, what it measures, how often.
//!
//! Invariant: a count is chosen so that a window lasts 20 to 90 ms of virtual time under the exact clock (a timer tick more
//! or less then changes it by less than 0.1 %) and 0.1 to 0.5 s on the wall clock; all of them together stay below 2 s of
//! virtual time.

use super::bench::{Bench, Window};
use super::blocks::{self, Access};
use super::files::{self, Half};
use super::{calls, copy, ipc, memory, process, switch};
use bigiron_sys::mapping::Sharing;

/// What a test's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Nanoseconds of one operation.
    Latency,
    /// Bytes per second, of operations that move this many bytes each.
    Bandwidth { bytes: u64 },
}

/// What a test wants in [`Bench::dir`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    None,
    /// A directory on the file system under test.
    Directory,
    /// The data file in it.
    Data,
}

/// A test.
pub struct Test {
    pub name: &'static str,
    pub group: &'static str,
    pub summary: &'static str,
    pub measure: Measure,
    pub storage: Storage,
    /// Whether it talks over the loopback interface.
    pub loopback: bool,
    /// Operations at scale 1 under the exact clock.
    pub exact: u64,
    /// Operations at scale 1 on the wall clock.
    pub wall: u64,
    pub run: fn(&Bench<'_>) -> anyhow::Result<Window>,
}

type Run = fn(&Bench<'_>) -> anyhow::Result<Window>;

const fn latency(
    name: &'static str,
    group: &'static str,
    (exact, wall): (u64, u64),
    run: Run,
    summary: &'static str,
) -> Test {
    Test { name, group, summary, measure: Measure::Latency, storage: Storage::None, loopback: false, exact, wall, run }
}

const fn bandwidth(name: &'static str, bytes: usize, counts: (u64, u64), run: Run, summary: &'static str) -> Test {
    Test { measure: Measure::Bandwidth { bytes: bytes as u64 }, ..latency(name, "copy", counts, run, summary) }
}

impl Test {
    const fn on(self, storage: Storage) -> Self {
        Self { storage, ..self }
    }

    const fn over_loopback(self) -> Self {
        Self { loopback: true, ..self }
    }
}

/// All tests, in the order in which they run.
pub fn all() -> &'static [Test] {
    TESTS
}

/// The groups, in the catalogue's order.
pub fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = all().iter().map(|t| t.group).collect();
    groups.dedup();
    groups
}

/// In a window of 20 ms Linux 6.1 needs 5 % less time for a hop between two processes than in one of 30 ms.
const SWITCH: (u64, u64) = (4_800, 160_000);
const SWITCH_LARGE: (u64, u64) = (4_800, 80_000);

static TESTS: &[Test] = &[
    latency("null-call", "call", (60_000, 2_000_000), calls::null_call, "`getpid`: into the kernel and out again"),
    latency("getppid", "call", (60_000, 2_000_000), calls::parent_id, "`getppid`: a call that follows pointers"),
    latency("read-1b", "call", (30_000, 1_000_000), calls::read_byte, "`read` of 1 byte from /dev/zero"),
    latency("write-1b", "call", (35_000, 1_000_000), calls::write_byte, "`write` of 1 byte to /dev/null"),
    latency("stat", "call", (5_000, 300_000), calls::stat, "`stat` of a file by its path").on(Storage::Directory),
    latency("open-close", "call", (3_500, 200_000), calls::open_close, "`open` and `close` of a file")
        .on(Storage::Directory),
    latency("select-100", "call", (900, 50_000), calls::select, "`select` on 100 TCP sockets, one of them readable")
        .over_loopback(),
    latency(
        "epoll-100",
        "call",
        (22_000, 1_000_000),
        calls::epoll,
        "`epoll_wait` on 100 TCP sockets, one of them readable",
    )
    .over_loopback(),
    latency("signal-install", "signal", (50_000, 1_000_000), calls::signal_install, "`sigaction`"),
    latency("signal-handle", "signal", (5_500, 300_000), calls::signal_handle, "Signal sent to oneself and handled"),
    latency("pipe-rtt", "ipc", (3_000, 60_000), ipc::pipe, "Round trip of 1 byte between two processes: pipes"),
    latency(
        "unix-rtt",
        "ipc",
        (2_500, 50_000),
        ipc::unix,
        "Round trip of 1 byte between two processes: AF_UNIX stream",
    ),
    latency("udp-rtt", "ipc", (1_500, 30_000), ipc::udp, "Round trip of 1 byte between two processes: UDP, loopback")
        .over_loopback(),
    latency("tcp-rtt", "ipc", (1_500, 30_000), ipc::tcp, "Round trip of 1 byte between two processes: TCP, loopback")
        .over_loopback(),
    latency(
        "tcp-connect",
        "ipc",
        (350, 10_000),
        ipc::tcp_connect,
        "TCP connection made, accepted and closed, loopback",
    )
    .over_loopback(),
    latency("futex-rtt", "ipc", (3_000, 60_000), ipc::futex_turns, "Two processes waking each other by a shared futex"),
    latency("switch-2p-0k", "switch", SWITCH, |b| switch::ring(b, 2, 0), "Hop in a ring of 2 processes, no array"),
    latency("switch-2p-16k", "switch", SWITCH, |b| switch::ring(b, 2, 16), "Hop in a ring of 2 processes, 16 KiB each"),
    latency(
        "switch-2p-64k",
        "switch",
        SWITCH_LARGE,
        |b| switch::ring(b, 2, 64),
        "Hop in a ring of 2 processes, 64 KiB each",
    ),
    latency("switch-8p-0k", "switch", SWITCH, |b| switch::ring(b, 8, 0), "Hop in a ring of 8 processes, no array"),
    latency("switch-8p-16k", "switch", SWITCH, |b| switch::ring(b, 8, 16), "Hop in a ring of 8 processes, 16 KiB each"),
    latency(
        "switch-8p-64k",
        "switch",
        SWITCH_LARGE,
        |b| switch::ring(b, 8, 64),
        "Hop in a ring of 8 processes, 64 KiB each",
    ),
    latency("switch-16p-0k", "switch", SWITCH, |b| switch::ring(b, 16, 0), "Hop in a ring of 16 processes, no array"),
    latency(
        "switch-16p-16k",
        "switch",
        SWITCH,
        |b| switch::ring(b, 16, 16),
        "Hop in a ring of 16 processes, 16 KiB each",
    ),
    latency(
        "switch-16p-64k",
        "switch",
        SWITCH_LARGE,
        |b| switch::ring(b, 16, 64),
        "Hop in a ring of 16 processes, 64 KiB each",
    ),
    latency("fork-exit", "process", (200, 4_000), process::fork, "`fork`, the child's exit, `wait`"),
    latency("fork-exec", "process", (100, 1_000), process::exec, "`fork`, `execve` of a program that exits, `wait`"),
    latency("thread", "process", (500, 10_000), process::thread, "Thread created and joined"),
    latency("mmap", "memory", (4_000, 200_000), memory::map, "`mmap` and `munmap` of 1 MiB, untouched"),
    latency(
        "fault-private",
        "memory",
        (8_192, 204_800),
        |b| memory::fault_anonymous(b, Sharing::Private),
        "First write to a page of private anonymous memory",
    ),
    latency(
        "fault-shared",
        "memory",
        (4_096, 204_800),
        |b| memory::fault_anonymous(b, Sharing::Shared),
        "First write to a page of shared anonymous memory",
    ),
    latency(
        "fault-file",
        "memory",
        (2_560, 204_800),
        memory::fault_file,
        "Read fault on a mapped file in the page cache, with fault-around",
    )
    .on(Storage::Data),
    latency(
        // In a window of half the length Linux 6.1 needs 6 % more time.
        "fault-protection",
        "memory",
        (6_144, 102_400),
        memory::fault_protection,
        "Write to a protected page, handled by SIGSEGV and `mprotect`",
    ),
    latency("create-0k", "file", (800, 20_000), |b| files::lives(b, Half::Create, 0), "Empty file created")
        .on(Storage::Directory),
    latency("delete-0k", "file", (1_000, 20_000), |b| files::lives(b, Half::Delete, 0), "Empty file deleted")
        .on(Storage::Directory),
    latency(
        "create-10k",
        "file",
        (500, 10_000),
        |b| files::lives(b, Half::Create, 10 << 10),
        "File of 10 KiB created and written",
    )
    .on(Storage::Directory),
    latency("delete-10k", "file", (700, 10_000), |b| files::lives(b, Half::Delete, 10 << 10), "File of 10 KiB deleted")
        .on(Storage::Directory),
    latency(
        "pread-4k-direct",
        "io",
        (1_000, 10_000),
        |b| blocks::pread(b, Access::Direct),
        "`pread` of 4 KiB at random, O_DIRECT",
    )
    .on(Storage::Data),
    latency(
        "pread-4k-buffered",
        "io",
        (15_000, 200_000),
        |b| blocks::pread(b, Access::Buffered),
        "`pread` of 4 KiB at random, page cache",
    )
    .on(Storage::Data),
    latency(
        "aio-4k-d1",
        "io",
        (1_000, 10_000),
        |b| blocks::aio_read(b, 1),
        "`io_submit` random direct reads of 4 KiB, 1 in flight",
    )
    .on(Storage::Data),
    latency(
        "aio-4k-d16",
        "io",
        (2_000, 40_000),
        |b| blocks::aio_read(b, 16),
        "`io_submit` random direct reads of 4 KiB, 16 in flight",
    )
    .on(Storage::Data),
    latency(
        "uring-4k-d1",
        "io",
        (1_000, 10_000),
        |b| blocks::uring_read(b, 1),
        "io_uring random direct reads of 4 KiB, 1 in flight",
    )
    .on(Storage::Data),
    latency(
        "uring-4k-d16",
        "io",
        (2_000, 40_000),
        |b| blocks::uring_read(b, 16),
        "io_uring random direct reads of 4 KiB, 16 in flight",
    )
    .on(Storage::Data),
    latency(
        blocks::WRITERS[0],
        "io",
        (1_500, 10_000),
        |b| blocks::pwrite(b, Access::Direct),
        "`pwrite` of 4 KiB at random, O_DIRECT",
    )
    .on(Storage::Data),
    latency(
        blocks::WRITERS[1],
        "io",
        (10_000, 100_000),
        |b| blocks::pwrite(b, Access::Buffered),
        "`pwrite` of 4 KiB at random, page cache",
    )
    .on(Storage::Data),
    latency(blocks::APPEND, "io", (200, 1_000), blocks::append, "8 KiB appended to a log, then `fdatasync`")
        .on(Storage::Directory),
    bandwidth("copy-memory", copy::MEMORY_BYTES, (30, 3_000), copy::memory, "`memcpy` between two buffers of 8 MiB"),
    bandwidth("copy-pipe", copy::TRANSFER_BYTES, (400, 10_000), copy::pipe, "Pipe, from one process to another"),
    bandwidth(
        "copy-unix",
        copy::TRANSFER_BYTES,
        (400, 20_000),
        copy::unix,
        "AF_UNIX stream, from one process to another",
    ),
    bandwidth("copy-file", copy::TRANSFER_BYTES, (1_500, 20_000), copy::file, "File in the page cache read again")
        .on(Storage::Data),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_no_group_is_a_name() {
        let names: HashSet<_> = all().iter().map(|t| t.name).collect();
        assert_eq!(names.len(), all().len());
        let groups = groups();
        assert_eq!(groups.iter().collect::<HashSet<_>>().len(), groups.len(), "a group's tests stand together");
        assert!(groups.iter().all(|g| !names.contains(g) && *g != "all"));
    }

    #[test]
    fn writers_run_in_their_order() {
        let place = |name: &str| all().iter().position(|t| t.name == name).unwrap();
        assert!(blocks::WRITERS.is_sorted_by_key(|w| place(w)));
    }
}
