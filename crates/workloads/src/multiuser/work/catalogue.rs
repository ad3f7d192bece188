//! All tests, by their names in workfiles.
//!
//! Invariant: names are unique, groups are together, and a call at full scale performs the credited operations.

use super::Credit::{Blocks, HalfBlocks};
use super::Group::{Async, Cpu, DirectDisk, Directory, Disk, Ipc, Memory, Net, Process, SyncDisk};
use super::{
    Credit, Group, Needs, Test, UserContext, arithmetic, asynchronous, calls, directory, disk, linear, memory,
    messages, numeric, process, sort, text,
};

/// All tests, group by group.
pub fn catalogue() -> &'static [Test] {
    TESTS
}

/// The test of that name.
pub fn find(name: &str) -> Option<&'static Test> {
    TESTS.iter().find(|t| t.name == name)
}

type Run = fn(&mut UserContext<'_>) -> anyhow::Result<()>;

/// A test whose call is credited with `operations` if its loop runs `of` times.
const fn loops(
    group: Group,
    name: &'static str,
    (operations, of): (u64, u64),
    unit: &'static str,
    run: Run,
    summary: &'static str,
) -> Test {
    let needs = if matches!(group, Net) { Needs::Loopback } else { Needs::Nothing };
    Test { name, credit: Credit::Loops { operations, of }, unit, group, run, needs, summary }
}

/// A test on a file.
const fn file(
    group: Group,
    name: &'static str,
    credit: Credit,
    unit: &'static str,
    run: Run,
    summary: &'static str,
) -> Test {
    Test { name, credit, unit, group, run, needs: Needs::File, summary }
}

impl Test {
    const fn needing(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }
}

// A table: one test per line.
#[rustfmt::skip]
static TESTS: &[Test] = &[
    loops(Cpu, "add_double", (18_000, 1_500_000), "thousand additions", arithmetic::add_double, "12 additions of 64-bit floats a round"),
    loops(Cpu, "add_float", (12_000, 1_000_000), "thousand additions", arithmetic::add_float, "12 additions of 32-bit floats a round"),
    loops(Cpu, "add_long", (60_000, 5_000_000), "thousand additions", arithmetic::add_long, "12 additions of 64-bit integers a round"),
    loops(Cpu, "add_int", (60_000, 5_000_000), "thousand additions", arithmetic::add_int, "12 additions of 32-bit integers a round"),
    loops(Cpu, "add_short", (24_000, 2_000_000), "thousand additions", arithmetic::add_short, "12 additions of 16-bit integers a round"),
    loops(Cpu, "mul_double", (12_000, 1_000_000), "thousand multiplications", arithmetic::mul_double, "12 multiplications of 64-bit floats a round"),
    loops(Cpu, "mul_float", (12_000, 1_000_000), "thousand multiplications", arithmetic::mul_float, "12 multiplications of 32-bit floats a round"),
    loops(Cpu, "mul_long", (240, 20_000), "thousand multiplications", arithmetic::mul_long, "12 multiplications of 64-bit integers a round"),
    loops(Cpu, "mul_int", (240, 20_000), "thousand multiplications", arithmetic::mul_int, "12 multiplications of 32-bit integers a round"),
    loops(Cpu, "mul_short", (300, 25_000), "thousand multiplications", arithmetic::mul_short, "12 multiplications of 16-bit integers a round"),
    loops(Cpu, "div_double", (3000, 250_000), "thousand divisions", arithmetic::div_double, "12 divisions of 64-bit floats a round"),
    loops(Cpu, "div_float", (3000, 250_000), "thousand divisions", arithmetic::div_float, "12 divisions of 32-bit floats a round"),
    loops(Cpu, "div_long", (900, 75_000), "thousand divisions", arithmetic::div_long, "12 divisions of 64-bit integers a round"),
    loops(Cpu, "div_int", (900, 75_000), "thousand divisions", arithmetic::div_int, "12 divisions of 32-bit integers a round"),
    loops(Cpu, "div_short", (900, 75_000), "thousand divisions", arithmetic::div_short, "12 divisions of 16-bit integers a round"),
    loops(Cpu, "fun_cal", (512_000, 1000), "function calls", calls::no_argument, "512 function calls with no argument a round"),
    loops(Cpu, "fun_cal1", (512_000, 1000), "function calls", calls::one_argument, "512 function calls with 1 argument a round"),
    loops(Cpu, "fun_cal2", (512_000, 1000), "function calls", calls::two_arguments, "512 function calls with 2 arguments a round"),
    loops(Cpu, "fun_cal15", (512_000, 1000), "function calls", calls::fifteen_arguments, "512 function calls with 15 arguments a round"),
    loops(Cpu, "sieve", (5, 5), "sieves", numeric::sieve, "Primes below 1,000,000"),
    loops(Cpu, "matrix_rtns", (100, 100), "points transformed", linear::points, "A 4×4 matrix times a point"),
    loops(Cpu, "array_rtns", (20, 20), "systems solved", linear::systems, "Systems of 5 to 100 linear equations"),
    loops(Cpu, "new_raph", (200, 200), "zeros found", numeric::zeros, "Zeros by Newton's method"),
    loops(Cpu, "num_rtns_1", (100, 100), "sets of numeric functions", numeric::numbers, "exp, logarithms, powers, roots, remainders"),
    loops(Cpu, "trig_rtns", (10_000, 10_000), "sets of trigonometric functions", numeric::angles, "Sines to hyperbolic tangents, and their inverses"),
    loops(Cpu, "series_1", (100, 100), "series evaluated", numeric::series, "Sines by their series"),
    loops(Cpu, "string_rtns", (100, 100), "sets of string functions", text::strings, "Numbers printed and read, characters told apart, strings built and searched"),
    loops(Cpu, "sort_rtns_1", (10, 2), "sorts and searches", sort::sort, "10,000 numbers sorted, 2000 searched for"),
    loops(Memory, "mem_rtns_1", (30_000, 100), "allocations", memory::allocate, "300 blocks of 1 byte to 8 KiB allocated, touched and given back a round"),
    loops(Memory, "mem_rtns_2", (100, 100), "sets of block operations", memory::block_operations, "Blocks of up to 8 KiB filled, searched, compared, copied, moved"),
    loops(Memory, "ram_copy", (25_020, 100), "copied units", memory::copies, "Copies of 1 byte to 64 KiB at all alignments"),
    loops(Memory, "brk_test", (17_000, 1000), "moves of the program break", memory::program_break, "The program break moved down and up again"),
    loops(Memory, "page_test", (1700, 100), "moves of the program break, pages touched", memory::pages, "The same, and every page touched"),
    loops(Process, "jmp_test", (1000, 1000), "non-local jumps", process::jumps, "A mark set and jumped to out of 10 nested calls"),
    loops(Process, "signal_test", (1000, 1000), "signals handled", process::signals, "A signal to oneself"),
    loops(Process, "fork_test", (100, 100), "processes made", process::forks, "A process made and waited for"),
    loops(Process, "exec_test", (5, 5), "programs loaded", process::programs, "A process that loads a shell, which lists a directory").needing(Needs::Directory),
    loops(Process, "shell_rtns_1", (1, 1), "scripts", process::lists, "A shell that becomes another, which lists a directory").needing(Needs::Directory),
    loops(Process, "shell_rtns_2", (1, 1), "scripts", process::pauses, "A shell that waits for 5 s"),
    loops(Process, "shell_rtns_3", (1, 1), "scripts", process::lists, "A shell that becomes another, which lists a directory").needing(Needs::Directory),
    loops(Ipc, "pipe_cpy", (100, 100), "messages", messages::pipe, "Messages through a pipe"),
    loops(Ipc, "fifo_test", (100, 100), "messages", messages::fifo, "Messages through a FIFO").needing(Needs::Directory),
    loops(Ipc, "stream_pipe", (100, 100), "messages", messages::stream_pair, "Messages through a pair of AF_UNIX stream sockets"),
    loops(Ipc, "dgram_pipe", (100, 100), "messages", messages::datagram_pair, "Messages through a pair of AF_UNIX datagram sockets"),
    loops(Ipc, "shared_memory", (100, 100), "exchanges", messages::shared_memory, "Messages through a System V segment and semaphore"),
    loops(Net, "tcp_test", (90, 90), "messages", messages::tcp, "Messages over TCP, loopback"),
    loops(Net, "udp_test", (100, 100), "datagrams", messages::udp, "Datagrams over UDP, loopback"),
    loops(Directory, "creat_clo", (1000, 1000), "files created and closed", directory::creations, "A file created and closed").needing(Needs::Directory),
    loops(Directory, "link_test", (63, 9), "names removed and made", directory::links, "7 of a file's 8 names removed and made again").needing(Needs::Directory),
    loops(Directory, "dir_rtns_1", (10_000, 10_000), "directory reads", directory::listings, "A directory read entry by entry").needing(Needs::Directory),
    loops(Directory, "disk_src", (75, 1), "directory searches", directory::searches, "57 names of a tree looked up, 43 made and removed").needing(Needs::Directory),
    loops(Directory, "misc_rtns_1", (10, 10), "sets of calls", directory::identities, "Who and where one is: IDs, accounts, times, names").needing(Needs::Directory),
    file(Disk, "disk_rd", Blocks, "KiB of disk sequential reads", disk::disk_rd, "A file read in order through the page cache, with `sync`"),
    file(Disk, "disk_wrt", Blocks, "KiB of disk sequential writes", disk::disk_wrt, "A file written in order through the page cache, with `sync`"),
    file(Disk, "disk_cp", Blocks, "KiB of disk copies", disk::disk_cp, "A file copied through the page cache, with `sync`"),
    file(Disk, "disk_rr", Blocks, "KiB of disk random reads", disk::disk_rr, "A file read at random places through the page cache, with `sync`"),
    file(Disk, "disk_rw", Blocks, "KiB of disk random writes", disk::disk_rw, "A file written at random places through the page cache, with `sync`"),
    file(Disk, "disk_brd", Blocks, "KiB of buffered disk sequential reads", disk::disk_brd, "A file read in order through the page cache"),
    file(Disk, "disk_bwrt", Blocks, "KiB of buffered disk sequential writes", disk::disk_bwrt, "A file written in order through the page cache"),
    file(Disk, "disk_bcp", Blocks, "KiB of buffered disk copies", disk::disk_bcp, "A file copied through the page cache"),
    file(Disk, "disk_brr", Blocks, "KiB of buffered disk random reads", disk::disk_brr, "A file read at random places through the page cache"),
    file(Disk, "disk_brw", Blocks, "KiB of buffered disk random writes", disk::disk_brw, "A file written at random places through the page cache"),
    file(DirectDisk, "disk_dio_rd", Blocks, "KiB of direct disk sequential reads", disk::disk_dio_rd, "A file read in order, O_DIRECT"),
    file(DirectDisk, "disk_dio_wrt", Blocks, "KiB of direct disk sequential writes", disk::disk_dio_wrt, "A file written in order, O_DIRECT"),
    file(DirectDisk, "disk_dio_cp", Blocks, "KiB of direct disk copies", disk::disk_dio_cp, "A file copied, O_DIRECT"),
    file(DirectDisk, "disk_dio_rr", Blocks, "KiB of direct disk random reads", disk::disk_dio_rr, "A file read at random places, O_DIRECT"),
    file(DirectDisk, "disk_dio_rw", Blocks, "KiB of direct disk random writes", disk::disk_dio_rw, "A file written at random places, O_DIRECT"),
    file(SyncDisk, "sync_disk_wrt", HalfBlocks, "KiB of synchronous disk sequential writes", disk::sync_disk_wrt, "A file written in order, O_SYNC"),
    file(SyncDisk, "sync_disk_cp", HalfBlocks, "KiB of synchronous disk copies", disk::sync_disk_cp, "A file copied, O_SYNC"),
    file(SyncDisk, "sync_disk_rw", HalfBlocks, "KiB of synchronous disk random writes", disk::sync_disk_rw, "A file written at random places, O_SYNC"),
    file(SyncDisk, "sync_disk_update", HalfBlocks, "KiB of synchronous disk updates", disk::update, "A file's blocks read and written again at random places, O_SYNC"),
    file(Async, "disk_aio_rr", Blocks, "KiB of asynchronous random reads", asynchronous::cached_read, "A file read at random places by io_submit, 32 at a time"),
    file(Async, "disk_aio_rw", Blocks, "KiB of asynchronous random writes", asynchronous::cached_write, "A file written at random places by io_submit, 32 at a time"),
    file(Async, "disk_aiodio_rr", Blocks, "KiB of asynchronous direct random reads", asynchronous::direct_read, "The same, O_DIRECT"),
    file(Async, "disk_aiodio_rw", Blocks, "KiB of asynchronous direct random writes", asynchronous::direct_write, "The same, O_DIRECT"),
];
