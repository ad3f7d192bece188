//! A QEMU that was stopped or frozen from outside.
//!
//! Invariant: such a trial is void; its guest is not taken for one that hangs.

use crate::host::HostError;
use crate::host::received_events::ReceivedEvents;
use crate::vm::process::Process;

/// How often in a row a QEMU was found stopped: once may be the moment in which a user's shell lets all of a stopped job go on.
#[derive(Default)]
pub(super) struct HeldLooks {
    polls: u32,
    held: u32,
}

impl HeldLooks {
    /// Polls for a look: looking costs CPU time of the host.
    const POLLS: u32 = 50;
    const MOST: u32 = 2;

    /// Looks at the process. One that somebody has stopped for longer is no guest that hangs: the trial is void.
    pub(super) fn look(&mut self, process: &mut Process, received: &ReceivedEvents) -> Result<(), HostError> {
        self.polls += 1;
        if !self.polls.is_multiple_of(Self::POLLS) {
            return Ok(());
        }
        let Some(why) = process.held() else {
            self.held = 0;
            return Ok(());
        };
        self.held += 1;
        if self.held < Self::MOST {
            return Ok(());
        }
        process.kill();
        Err(HostError::Void(format!("QEMU {why} {}", received.last_step())))
    }
}
