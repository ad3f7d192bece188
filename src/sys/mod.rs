//! The only unsafe code: system calls that rustix has no safe form of, shared memory, port I/O.

pub mod async_io;
pub mod cpu_clock;
pub mod futex;
pub mod latch;
pub mod process;
pub mod segment;
pub mod shared_memory;
