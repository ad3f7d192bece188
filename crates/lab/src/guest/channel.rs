//! The guest's output channel: events over QEMU's debug console, and its exit port.

use std::time::Duration;

use crate::protocol::{EVENT_PORT, EXIT_DONE, EXIT_PORT, GuestEvent};
use bigiron_sys::port;

/// Sends `event` to the host.
pub(super) fn send(event: &GuestEvent) {
    let mut line = serde_json::to_vec(event).expect("events have string keys only");
    line.push(b'\n');
    if let Err(e) = port::write(EVENT_PORT, &line) {
        // There is no other channel: the console is kept as an artefact, and the host sees a guest that never sent an event.
        eprintln!("bigiron: Cannot write to the event port: {e}");
    }
}

/// Ends the VM in an orderly way; if that fails, by power-off.
pub(super) fn exit() -> ! {
    let _ = port::write(EXIT_PORT, &[EXIT_DONE]);
    // QEMU 7.2 has ended by now. 10.0 and 11.1 only note the wish, for their main loop, which gets its turn when the guest idles.
    std::thread::sleep(Duration::from_secs(1));
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}
