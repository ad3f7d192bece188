//! What the kernel counts anyway, read at the edges of what a workload measures: events of memory, scheduler, interrupts and block devices.
//!
//! Invariant: nothing is read between a window's marks, and what a kernel does not tell, or what cannot be known of a window, is absent, never 0.

pub mod own_processes;
mod reader;
pub mod reading;
pub mod source;
pub mod span;
