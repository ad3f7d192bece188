//! The parts of [`Configured::silence`](crate::Configured::silence) that workloads have in common.

use std::time::Duration;

/// The longest step besides the load: data are written, servers start, or the data are checked.
pub const BESIDE_LOAD: Duration = Duration::from_secs(600);
/// CPU seconds for a second of the exact clock: 10^9 instructions, of which emulation executes some tens of millions per second.
pub const EMULATED_SECOND: u32 = 20;
