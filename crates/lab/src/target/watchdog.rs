//! The target's hardware watchdog: it resets a machine whose kernel under test no longer runs programs.
//!
//! Invariant: bigiron starts only a watchdog that does not run yet and can be stopped, and stops only one that it has started in this boot: firmware or
//! another program may have started others.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bigiron_sys::this_machine;
use bigiron_sys::watchdog::set_timeout;

use super::folder::{self, TargetFolder};

/// The watchdogs in sysfs.
pub(super) const CLASS: &str = "/sys/class/watchdog";
/// Dies with the kernel, and is none.
const SOFTWARE: &str = "Software Watchdog";
/// Seconds without a sign of life after which the machine is reset: far more than a loaded machine needs to run a thread.
const LIMIT: i32 = 180;
/// Least seconds of a watchdog whose limit is fixed.
const SHORTEST: i32 = 30;
/// Interval of the signs of life.
const INTERVAL: Duration = Duration::from_secs(5);
/// The file that names the watchdog that was started last, and the boot in which it was.
const STARTED: &str = "watchdog.json";
/// Written before it is closed, this stops it.
const STOP: &[u8] = b"V";

/// A watchdog of the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hardware {
    /// What it is, such as `i6300ESB timer`.
    pub(super) identity: String,
    /// Its file's name, such as `watchdog0`.
    device: String,
    /// Whether it runs on when it is closed.
    nowayout: bool,
    is_active: bool,
}

/// The hardware watchdogs in `class`.
pub(super) fn all(class: &Path) -> Vec<Hardware> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let mut found: Vec<Hardware> = entries
        .filter_map(|entry| {
            let text = |name: &str| {
                fs::read_to_string(entry.path().join(name)).map(|text| text.trim().to_owned()).unwrap_or_default()
            };
            let identity = text("identity");
            let is_hardware = !identity.is_empty() && identity != SOFTWARE;
            is_hardware.then(|| Hardware {
                identity,
                device: entry.file_name().to_string_lossy().into_owned(),
                nowayout: text("nowayout") != "0",
                is_active: text("state") == "active",
            })
        })
        .collect();
    found.sort();
    found
}

/// Opens a watchdog, which starts it. Fails while another program uses it.
fn open(hardware: &Hardware) -> Option<File> {
    File::options().write(true).open(Path::new("/dev").join(&hardware.device)).ok()
}

fn stop(mut device: File) {
    let _ = device.write_all(STOP);
}

/// A watchdog that runs, and the thread that gives it signs of life. Dropping it stops it.
pub(super) struct Watchdog {
    /// For people.
    pub(super) name: String,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the first watchdog that does not run and can be stopped again; `folder` remembers it.
    pub(super) fn start(folder: &TargetFolder) -> Option<Self> {
        let may_start = |hardware: &Hardware| !hardware.nowayout && !hardware.is_active;
        all(Path::new(CLASS)).into_iter().filter(may_start).find_map(|hardware| {
            folder::write(folder.path(), STARTED, &(&hardware.device, this_machine::boot_id())).ok()?;
            let mut device = open(&hardware)?;
            let class = Path::new(CLASS).join(&hardware.device);
            let fixed = || fs::read_to_string(class.join("timeout")).ok()?.trim().parse().ok();
            let limit = set_timeout(device.as_fd(), LIMIT).ok().or_else(fixed).filter(|limit| *limit >= SHORTEST);
            let Some(limit) = limit else {
                stop(device);
                return None;
            };
            let (end, ended) = channel();
            let thread = thread::spawn(move || {
                while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    let _ = device.write_all(b"\0");
                }
                stop(device);
            });
            Some(Self { name: format!("{}, {limit} s", hardware.identity), end: Some(end), thread: Some(thread) })
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Stops the watchdog that a killed trial of this boot has left running, which would reset the machine in its next boot; its name.
pub(super) fn stop_left_over(folder: &TargetFolder) -> anyhow::Result<Option<String>> {
    let started: Option<(String, String)> = folder::read(folder.path(), STARTED)?;
    let Some((device, _)) = started.filter(|(_, boot)| *boot == this_machine::boot_id()) else { return Ok(None) };
    let left = all(Path::new(CLASS)).into_iter().find(|hardware| hardware.device == device && hardware.is_active);
    Ok(left.and_then(|hardware| {
        stop(open(&hardware)?);
        Some(hardware.identity)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hardware_counts() {
        let class = tempfile::tempdir().unwrap();
        for (device, identity, nowayout, state) in [
            ("watchdog0", SOFTWARE, "0", "inactive"),
            ("watchdog1", "iTCO_wdt", "1", "active"),
            ("watchdog2", "i6300ESB timer", "0", "inactive"),
        ] {
            let dir = class.path().join(device);
            fs::create_dir(&dir).unwrap();
            for (name, text) in [("identity", identity), ("nowayout", nowayout), ("state", state)] {
                fs::write(dir.join(name), format!("{text}\n")).unwrap();
            }
        }
        let found = all(class.path());
        let of = |hardware: &Hardware| (hardware.identity.clone(), hardware.nowayout, hardware.is_active);
        assert_eq!(
            found.iter().map(of).collect::<Vec<_>>(),
            [("i6300ESB timer".to_owned(), false, false), ("iTCO_wdt".to_owned(), true, true)]
        );
        assert!(all(Path::new("/nonexistent")).is_empty());
    }
}
