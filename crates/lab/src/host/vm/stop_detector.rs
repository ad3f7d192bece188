//! A QEMU that was stopped or frozen from outside.
//!
//! Invariant: such a trial is void; its guest is not taken for one that hangs.

use crate::host::HostError;
use crate::host::received_events::ReceivedEvents;
use crate::vm::process::Process;

/// Counts consecutive checks that found QEMU stopped. A single one may be the moment in which a user's shell continues a stopped job.
#[derive(Default)]
pub(super) struct StopDetector {
    polls: u32,
    held: u32,
}

impl StopDetector {
    /// A check costs CPU time of the host, so not every poll makes one.
    const POLLS_PER_CHECK: u32 = 50;
    const LIMIT: u32 = 2;

    /// Checks the process. If it stays stopped, the guest does not hang: the trial is void.
    pub(super) fn check(&mut self, process: &mut Process, received: &ReceivedEvents) -> Result<(), HostError> {
        self.polls += 1;
        if !self.polls.is_multiple_of(Self::POLLS_PER_CHECK) {
            return Ok(());
        }
        let Some(why) = process.held() else {
            self.held = 0;
            return Ok(());
        };
        self.held += 1;
        if self.held < Self::LIMIT {
            return Ok(());
        }
        process.kill();
        Err(HostError::Void(format!("QEMU {why} {}", received.last_step())))
    }
}
