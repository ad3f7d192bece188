//! The only unsafe code: system calls that rustix has no safe form of, shared memory, port I/O.

pub mod async_io;
pub mod broadcast;
pub mod child;
pub mod cpu_clock;
pub mod enclosure;
pub mod family;
pub mod futex;
pub mod latch;
pub mod launch;
pub mod mapping;
pub mod memory;
pub mod mempolicy;
pub mod module;
pub mod nbd;
pub mod net;
pub mod partition;
pub mod port;
pub mod priority;
pub mod process;
pub mod segment;
pub mod select;
pub mod shared_memory;
pub mod signal;
pub mod spin;
pub mod swap;
pub mod ticks;
