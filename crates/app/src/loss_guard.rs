//! Ends a wait for responses that cannot come: Tomcat waits for a database whose machine is lost, and the driver for Tomcat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How often the connection is looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// A thread that kills a process when a connection is lost. The thread ends when this value is dropped.
pub struct LossGuard {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LossGuard {
    /// Kills the process `pid`, a child of this one, when `lost` becomes true.
    pub fn start(lost: Arc<AtomicBool>, pid: u32) -> Self {
        let (stop, stopped) = mpsc::channel();
        // Its number may be another's once it was waited for.
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let watch = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if lost.load(Ordering::Acquire) {
                    if let Some(process) = &process {
                        let _ = pidfd_send_signal(process, Signal::KILL);
                    }
                    return;
                }
            }
        };
        Self { stop: Some(stop), thread: Some(thread::spawn(watch)) }
    }
}

impl Drop for LossGuard {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_process_is_killed_when_the_connection_is_lost_and_only_then() {
        let mut sleep = Command::new("sleep").arg("600").spawn().unwrap();
        let lost = Arc::new(AtomicBool::new(false));
        drop(LossGuard::start(Arc::clone(&lost), sleep.id()));
        assert!(sleep.try_wait().unwrap().is_none());
        let guard = LossGuard::start(Arc::clone(&lost), sleep.id());
        lost.store(true, Ordering::Release);
        assert_eq!(sleep.wait().unwrap().signal(), Some(9));
        drop(guard);
    }
}
