//! How a trial on this machine ended.
//!
//! Invariant: what somebody did to it, or a limit of the user's, is not its kernel's failure.

use std::os::unix::process::ExitStatusExt as _;

use rustix::io::Errno;

use super::worker::{NO_THREAD, WorkerEnd, ended};
use crate::host::HostError;
use crate::host::received_events::ReceivedEvents;
use bigiron_model::record::Failure;
use bigiron_workload::shortage::{self, Shortage};

/// What a trial has failed of; `killed` is the number of processes that the kernel killed meanwhile because memory ran out.
///
/// # Errors
/// [`HostError::Void`] if somebody killed it.
pub(super) fn failure(
    received: &mut ReceivedEvents,
    end: WorkerEnd,
    killed: u64,
) -> Result<Option<(Failure, String)>, HostError> {
    Ok(match (received.failed.take(), end) {
        (Some(failure), _) => Some(failure),
        (None, WorkerEnd::Hung(why)) => Some((Failure::Hang, why)),
        (None, WorkerEnd::Malformed(said)) => {
            Some((Failure::BadEvent, format!("The process that ran the workload said {said}, which is not an event")))
        }
        (None, WorkerEnd::Exited(_)) if received.done => None,
        (None, WorkerEnd::Exited(status)) => {
            let how = format!("The process that ran the workload {} {}", ended(status), received.last_step());
            if status.code() == Some(NO_THREAD) {
                let again = shortage::no_process(&Errno::AGAIN.into());
                return Err(HostError::Fatal(format!("{how}: no thread could be started: {again}")));
            }
            match (killed, status.signal()) {
                (0, Some(KILL)) => {
                    return Err(HostError::Void(format!("{how}, and not by the kernel for want of memory")));
                }
                (0, _) => Some((Failure::AgentDied, how)),
                (n, _) => {
                    let shortage = Shortage::of_memory("", n, &how, "let the workload do less");
                    Some((Failure::OutOfMemory, shortage.to_string()))
                }
            }
        }
    })
}

/// The signal that no program can send itself by a fault of its own.
const KILL: i32 = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitStatus;

    #[test]
    fn how_a_trials_process_ended_is_the_trials_failure() {
        let of = |end| failure(&mut ReceivedEvents::default(), end, 0).unwrap().expect("it has failed");
        assert_eq!(of(WorkerEnd::Hung("No progress".to_owned())), (Failure::Hang, "No progress".to_owned()));
        let (kind, message) = of(WorkerEnd::Malformed("`garbage` in `micro`, step `run`".to_owned()));
        assert_eq!(kind, Failure::BadEvent);
        assert!(message.ends_with("said `garbage` in `micro`, step `run`, which is not an event"), "{message}");
        let exited = |status| WorkerEnd::Exited(ExitStatus::from_raw(status));
        assert_eq!(of(exited(11)).0, Failure::AgentDied);
        assert_eq!(of(exited(1 << 8)).0, Failure::AgentDied);
        // By somebody; by the kernel.
        let Err(HostError::Void(why)) = failure(&mut ReceivedEvents::default(), exited(9), 0) else { panic!() };
        assert!(why.starts_with("The process that ran the workload was killed by signal 9 "), "{why}");
        let (kind, message) = failure(&mut ReceivedEvents::default(), exited(9), 1).unwrap().unwrap();
        assert_eq!(kind, Failure::OutOfMemory);
        assert!(
            message.starts_with("Out of memory: the kernel killed a process (The process that ran the"),
            "{message}"
        );
    }
}
