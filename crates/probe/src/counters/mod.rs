//! The kernel's own counters, read before and after each measurement: events of memory, scheduler, interrupts and block devices.
//!
//! Invariant: nothing is read between a window's marks. A counter that a kernel does not report, or that cannot be known for a window, is absent,
//! never 0.

pub mod own_processes;
mod reader;
pub mod reading;
pub mod source;
pub mod span;
