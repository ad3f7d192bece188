//! Watches a guest: its events as they arrive, and whether it still makes progress.
//!
//! Invariant: a guest hangs by CPU time, not wall time, so that a busy host is not mistaken for a guest that hangs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use super::hang_detector::HangDetector;
use crate::protocol::GuestEvent;

/// A trial that uses (almost) no CPU and sends nothing is stuck too: asleep with no timer to wake it. Wall seconds of that, per
/// CPU second of the limit; far more than a starved host needs to give it some CPU.
pub const IDLE_FACTOR: u32 = 10;

/// What a guest may write to its console, and say in events: far more than any does (a console has some hundred KiB; events have most where a
/// profile's samples and the kernel's symbols are among them), and little enough for the host's disk and memory.
pub const CONSOLE_LIMIT: u64 = 64 << 20;
const EVENTS_LIMIT: u64 = 512 << 20;

/// How a VM came to its end.
#[derive(Debug)]
pub enum VmEnd {
    Exited(ExitStatus),
    /// Killed by bigiron; the reason.
    Hung(String),
    /// Killed by bigiron because it sent a line that is not an event; the line.
    Malformed(String),
    /// Killed by us, since it wrote without end; what.
    Flooded(String),
}

/// A guest being watched.
pub struct Watch {
    events: Tail,
    console: PathBuf,
    hang_detector: HangDetector,
}

impl Watch {
    /// `limit_s`: CPU seconds without progress that make a hang.
    pub fn new(events: &Path, console: &Path, limit_s: u32) -> Self {
        Self {
            events: Tail::new(events),
            console: console.to_owned(),
            hang_detector: HangDetector::new(limit_s, Duration::from_secs(u64::from(limit_s) * u64::from(IDLE_FACTOR))),
        }
    }

    /// What the guest has said since the last call, by [`GuestEvent::of_line`]. What it writes to its console is no progress: a kernel that
    /// hangs may complain for ever.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&mut self) -> io::Result<Vec<Result<GuestEvent, String>>> {
        let lines = self.events.lines()?;
        if !lines.is_empty() {
            self.seen();
        }
        Ok(lines.iter().map(|line| GuestEvent::of_line(line)).collect())
    }

    /// Which of its files the guest has filled beyond what it may; `None` if none.
    pub fn flooded(&self) -> Option<String> {
        let console = std::fs::metadata(&self.console).map_or(0, |m| m.len());
        let beyond = |what: &str, length: u64, limit: u64| {
            (length > limit).then(|| format!("The guest wrote more than {} MiB {what}", limit >> 20))
        };
        beyond("to its console", console, CONSOLE_LIMIT)
            .or_else(|| beyond("of events", self.events.length, EVENTS_LIMIT))
    }

    /// A sign of progress that is no event.
    pub fn seen(&mut self) {
        self.hang_detector.progressed();
    }

    /// Why the guest counts as hung, given the CPU seconds its VM has used; `None` while it does not.
    pub fn hung(&mut self, cpu: Option<f64>, doing: String) -> Option<String> {
        self.hang_detector.hung(cpu, &doing)
    }

    /// CPU seconds used when last looked.
    pub fn cpu_seconds(&self) -> f64 {
        self.hang_detector.cpu_seconds()
    }
}

/// The complete lines that are being appended to a file.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    partial: Vec<u8>,
    /// Bytes read so far.
    length: u64,
}

impl Tail {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, partial: Vec::new(), length: 0 }
    }

    fn lines(&mut self) -> io::Result<Vec<Vec<u8>>> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.file = Some(file),
                // QEMU has not made it yet.
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(e) => return Err(e),
            }
        }
        let Some(file) = &mut self.file else { return Ok(Vec::new()) };
        // No more than a byte beyond the limit: all of it goes into memory.
        let most = (EVENTS_LIMIT + 1).saturating_sub(self.length);
        self.length += file.take(most).read_to_end(&mut self.partial)? as u64;
        let Some(end) = self.partial.iter().rposition(|b| *b == b'\n') else { return Ok(Vec::new()) };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        Ok(whole.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_whole_lines_are_events() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let mut watch = Watch::new(&path, &dir.path().join("console"), 10);
        assert!(watch.read().unwrap().is_empty());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"{\"event\":\"done\"}\n{\"event\":").unwrap();
        assert_eq!(watch.read().unwrap(), [Ok(GuestEvent::Done)]);
        file.write_all(b"\"done\"}\n").unwrap();
        assert_eq!(watch.read().unwrap(), [Ok(GuestEvent::Done)]);
    }

    #[test]
    fn a_line_that_is_no_event_hides_none_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        std::fs::write(&path, b"{\"event\":\"ready\"}\n\xff\x1bgarbage\n").unwrap();
        let mut watch = Watch::new(&path, &dir.path().join("console"), 10);
        let said = watch.read().unwrap();
        assert_eq!(said, [Ok(GuestEvent::Ready), Err("\u{fffd}\\u{1b}garbage".to_owned())]);
    }

    #[test]
    fn a_guest_hangs_by_cpu_time_since_its_last_sign_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let console = dir.path().join("console");
        let mut watch = Watch::new(&dir.path().join("events"), &console, 10);
        assert_eq!(watch.hung(Some(9.0), String::new()), None);
        std::fs::write(dir.path().join("events"), "{\"event\":\"ready\"}\n").unwrap();
        watch.read().unwrap();
        assert_eq!(watch.hung(Some(18.5), String::new()), None, "progress at 9 s");
        std::fs::write(&console, "a line").unwrap();
        watch.read().unwrap();
        let why = watch.hung(Some(19.5), "in `micro`".to_owned()).expect("10.5 s without progress");
        assert!(why.contains("in `micro`"), "{why}");
    }
}
