//! The only unsafe code: system calls without a safe form in rustix, shared memory, port I/O. Above it, load generation ([`load`]) and network
//! namespaces ([`network`]).

pub mod async_io;
pub mod broadcast;
pub mod child;
pub mod cpu_clock;
pub mod cpu_list;
pub mod emulation;
pub mod ethtool;
pub mod family;
pub mod futex;
pub mod guarded_segment;
pub mod heap;
pub mod jump;
pub mod kernel_file;
pub mod latch;
pub mod launch;
pub mod load;
pub mod mapping;
pub mod mark;
pub mod memory;
pub mod mempolicy;
pub mod module;
pub mod mount;
pub mod nbd;
pub mod net;
pub mod netns;
pub mod network;
pub mod partition;
pub mod perf;
pub mod port;
pub mod priority;
pub mod process;
pub mod program_break;
pub mod record_lock;
pub mod register;
pub mod sandbox;
pub mod segment;
pub mod select;
pub mod shared_memory;
pub mod signal;
pub mod spin;
pub mod swap;
#[cfg(test)]
mod testing;
pub mod ticks;
pub mod veth;
