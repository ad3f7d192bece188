//! The only unsafe code: system calls that rustix has no safe form of, shared memory, port I/O.

pub mod async_io;
