//! A running QEMU.
//!
//! Invariant: it does not outlive its [`Process`], unless somebody has frozen it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bigiron_sys as sys;

use super::freezer;
use super::lockstep::{self, Library};
use super::qemu::{Config, Qemu, arguments};

/// A running QEMU, killed when dropped.
pub struct Process {
    child: Child,
    errors: PathBuf,
    status: Option<ExitStatus>,
    is_killed: bool,
}

/// How long a killed QEMU may take to end before its cgroup is looked at.
const GRACE: Duration = Duration::from_secs(1);

impl Process {
    /// Starts QEMU, with the library that keeps its threads in lockstep if there is one; what it says on its standard error goes to the
    /// file `errors`.
    pub fn start(qemu: &Qemu, config: &Config<'_>, lockstep: Option<&Library>, errors: &Path) -> io::Result<Self> {
        let mut command = qemu.command();
        command.args(arguments(config)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(errors)?);
        if let Some(library) = lockstep {
            library.preload(&mut command, config.cpus, config.clock);
        }
        let child = sys::child::die_with_parent(&mut command).spawn()?;
        Ok(Self { child, errors: errors.to_owned(), status: None, is_killed: false })
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// CPU seconds it has used so far (user and system, all threads); `None` once it has ended.
    pub fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds(self.child.id())
    }

    /// As [`held`].
    pub fn held(&self) -> Option<&'static str> {
        held(self.child.id())
    }

    /// Whether its threads are seen to take turns; not before its guest has first waited for a timer.
    pub fn is_in_lockstep(&self) -> bool {
        lockstep::has(self.child.id())
    }

    /// Ends it now. In a frozen cgroup of version 1 it ends only when somebody lets it go on, which is not waited for.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let began = Instant::now();
        while self.status.is_none() && !(began.elapsed() > GRACE && freezer::is_frozen(self.child.id())) {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(status) => self.status = status,
                Err(_) => return,
            }
        }
        self.is_killed = true;
    }

    /// What it said on its standard error, without the CPU features that software emulation leaves out of the named model.
    pub fn errors(&self) -> String {
        let said = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<&str> = said.lines().filter(|l| !l.contains("TCG doesn't support requested feature")).collect();
        lines.join("\n")
    }
}

/// Why a process does not run for the host's sake: a signal stopped it, or a debugger, or its cgroup is frozen; `None` if it may run.
pub fn held(pid: u32) -> Option<&'static str> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    match stat.rsplit_once(')')?.1.trim_start().chars().next() {
        Some('T') => return Some("was stopped by a signal"),
        Some('t') => return Some("was stopped by a debugger"),
        _ => {}
    }
    freezer::is_frozen(pid).then_some("was in a frozen cgroup")
}

/// CPU seconds that a process has used so far (user and system, all threads); `None` once it has ended.
pub(super) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold spaces; utime and stime are fields 14 and 15 of proc(5).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() && !self.is_killed {
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    use rustix::process::{Pid, Signal, kill_process};

    #[test]
    fn a_stopped_process_is_told_from_one_that_waits() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert_eq!(held(child.id()), None);
        kill_process(pid, Signal::STOP).unwrap();
        // The signal is on its way.
        while held(child.id()).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(held(child.id()), Some("was stopped by a signal"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(held(child.id()), None);
    }
}
