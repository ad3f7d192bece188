//! Decides whose fault an end was: turns the end of a VM and its guest's events into the trial's outcome.

use std::process::ExitStatus;

use bigiron_lockstep::OUT_OF_TURN;

use crate::host::HostError;
use crate::host::received_events::ReceivedEvents;
use crate::protocol;
use crate::vm::watch::VmEnd;
use bigiron_model::record::Failure;

/// Lines of the console that go into a failed trial's message.
const TAIL_LINES: usize = 20;

/// The trial's failure, from how the VM ended, what the guest had said until then, its console, and what QEMU said of errors.
pub(super) fn verdict(
    ended: &VmEnd,
    received: &ReceivedEvents,
    console: &str,
    errors: &str,
) -> Result<Option<(Failure, String)>, HostError> {
    if let Some(message) = &received.unfit {
        let message = format!("The guest cannot be used: {message}\n{}", tail(console));
        return Err(HostError::Fatal(message.trim_end().to_owned()));
    }
    if let Some(line) = console.lines().find(|l| l.contains("Kernel panic - not syncing")) {
        let said = line.split_once("Kernel panic").map_or(line, |(_, rest)| rest);
        let message = format!("Kernel panic{said}, {}", received.last_step());
        return Ok(Some((Failure::Panic, with_tail(&message, console))));
    }
    let status = match ended {
        VmEnd::Hung(why) => return Ok(Some((Failure::Hang, with_tail(why, console)))),
        VmEnd::Malformed(line) => {
            let message = format!("The guest said `{line}` {}, which is not an event", received.last_step());
            return Ok(Some((Failure::BadEvent, with_tail(&message, console))));
        }
        VmEnd::Flooded(what) => {
            let message = format!("{what} {}, and was ended", received.last_step());
            return Ok(Some((Failure::Flooded, with_tail(&message, console))));
        }
        VmEnd::Exited(status) => *status,
    };
    if received.done && status.code() == Some(protocol::EXIT_DONE_STATUS) {
        if received.failed.is_none() && errors.contains(OUT_OF_TURN) {
            return Err(HostError::Void(
                "QEMU's threads did not keep their turns, on a machine that gave the guest too little CPU or sent QEMU signals: \
                 the guest's time may be off"
                    .to_owned(),
            ));
        }
        return Ok(received.failed.clone());
    }
    not_orderly(status, received, console, errors)
}

/// QEMU ended without the agent's last event: decides whose fault it was.
fn not_orderly(
    status: ExitStatus,
    received: &ReceivedEvents,
    console: &str,
    errors: &str,
) -> Result<Option<(Failure, String)>, HostError> {
    use std::os::unix::process::ExitStatusExt;
    if let Some(signal) = status.signal() {
        let said = if errors.is_empty() { String::new() } else { format!(": {errors}") };
        return Err(HostError::Void(format!("QEMU was killed by signal {signal} {}{said}", received.last_step())));
    }
    // On SIGTERM, SIGINT or SIGHUP QEMU says so and ends with status 0, as it does when the guest powers off.
    if let Some(line) = errors.lines().find(|l| l.contains("terminating on signal")) {
        return Err(HostError::Void(format!("QEMU was told to end {}: {line}", received.last_step())));
    }
    if !status.success() {
        let what = format!("QEMU ended with {status}: {errors}");
        // Nothing ever ran: the next slot would fail in the same way.
        return Err(if console.is_empty() && received.hello.is_none() {
            HostError::Fatal(what)
        } else {
            HostError::Void(what)
        });
    }
    let (failure, what) = if received.hello.is_none() {
        (Failure::NoAgent, "The VM ended before the agent said a word".to_owned())
    } else {
        (Failure::EarlyExit, format!("The VM ended {} without the agent's doing", received.last_step()))
    };
    Ok(Some((failure, with_tail(&what, console))))
}

fn with_tail(message: &str, console: &str) -> String {
    match tail(console) {
        tail if tail.is_empty() => format!("{message}; the console is empty"),
        tail => format!("{message}\n{tail}"),
    }
}

fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{EXIT_DONE_STATUS, GuestEvent};
    use bigiron_model::record::GuestIdentity;
    use std::os::unix::process::ExitStatusExt;

    const PANIC: &str = "[    8.5] Kernel panic - not syncing: Attempted to kill init!\n[    8.6] more";

    fn exited(code: i32) -> VmEnd {
        VmEnd::Exited(ExitStatus::from_raw(code << 8))
    }

    fn received(events: &[GuestEvent]) -> ReceivedEvents {
        let mut received = ReceivedEvents::default();
        for event in events {
            received.take(event.clone(), &|_| {});
        }
        received
    }

    fn hello() -> GuestEvent {
        let guest = GuestIdentity {
            release: "6.12".to_owned(),
            version: String::new(),
            cmdline: String::new(),
            cpus: 1,
            memory_bytes: 1,
            clocksource: String::new(),
        };
        GuestEvent::Hello { protocol: 1, guest }
    }

    fn failure(ended: &VmEnd, events: &[GuestEvent], console: &str) -> Option<Failure> {
        verdict(ended, &received(events), console, "").unwrap().map(|(failure, _)| failure)
    }

    #[test]
    fn what_the_guest_did_is_told_apart() {
        let done = exited(EXIT_DONE_STATUS);
        let failed = GuestEvent::Failed { failure: Failure::VerifyFailed, message: String::new() };
        assert_eq!(failure(&done, &[hello(), GuestEvent::Done], ""), None);
        assert_eq!(failure(&done, &[hello(), failed, GuestEvent::Done], ""), Some(Failure::VerifyFailed));
        assert_eq!(failure(&exited(0), &[hello()], PANIC), Some(Failure::Panic));
        assert_eq!(failure(&exited(0), &[], PANIC), Some(Failure::Panic));
        assert_eq!(failure(&VmEnd::Hung("stuck".to_owned()), &[hello()], PANIC), Some(Failure::Panic));
        assert_eq!(failure(&VmEnd::Hung("stuck".to_owned()), &[hello()], ""), Some(Failure::Hang));
        let garbage = || VmEnd::Malformed("garbage".to_owned());
        assert_eq!(failure(&garbage(), &[hello()], ""), Some(Failure::BadEvent));
        assert_eq!(failure(&garbage(), &[], PANIC), Some(Failure::Panic));
        assert_eq!(failure(&VmEnd::Flooded("It wrote".to_owned()), &[hello()], ""), Some(Failure::Flooded));
        assert_eq!(failure(&exited(0), &[hello()], ""), Some(Failure::EarlyExit));
        assert_eq!(failure(&exited(0), &[], "Decompressing Linux"), Some(Failure::NoAgent));
    }

    #[test]
    fn what_the_host_did_is_no_outcome_of_the_arm() {
        let killed = VmEnd::Exited(ExitStatus::from_raw(9));
        assert!(matches!(verdict(&killed, &received(&[hello()]), "", ""), Err(HostError::Void(_))));
        assert!(matches!(verdict(&exited(1), &received(&[]), "", "bad argument"), Err(HostError::Fatal(_))));
        assert!(matches!(verdict(&exited(1), &received(&[hello()]), "", "I/O error"), Err(HostError::Void(_))));
        let told = "qemu-system-x86_64: terminating on signal 15 from pid 9401 (bash)";
        assert!(matches!(verdict(&exited(0), &received(&[]), "", told), Err(HostError::Void(_))));
        assert!(matches!(verdict(&exited(0), &received(&[hello()]), "x", told), Err(HostError::Void(_))));
        let unfit = received(&[hello(), GuestEvent::Unfit { message: "no module".to_owned() }, GuestEvent::Done]);
        assert!(matches!(verdict(&exited(EXIT_DONE_STATUS), &unfit, "", ""), Err(HostError::Fatal(_))));
    }

    #[test]
    fn a_guest_that_ran_out_of_turn_runs_again_unless_it_failed() {
        let done = exited(EXIT_DONE_STATUS);
        let said = format!("{OUT_OF_TURN}\n");
        let turn = verdict(&done, &received(&[hello(), GuestEvent::Done]), "", &said);
        assert!(matches!(&turn, Err(HostError::Void(why)) if why.contains("turns")), "{turn:?}");
        let failed = GuestEvent::Failed { failure: Failure::VerifyFailed, message: String::new() };
        let failed = verdict(&done, &received(&[hello(), failed, GuestEvent::Done]), "", &said).unwrap();
        assert_eq!(failed.map(|(failure, _)| failure), Some(Failure::VerifyFailed));
    }

    #[test]
    fn the_console_ends_the_message() {
        let (_, message) = verdict(&exited(0), &received(&[hello()]), PANIC, "").unwrap().unwrap();
        assert!(message.starts_with("Kernel panic - not syncing: Attempted to kill init!, "), "{message}");
        assert!(message.ends_with("more"), "{message}");
    }
}
