//! The process that does a trial on this machine: how it is started, told its task and heard out, and what it does itself.
//!
//! Invariant: it is the head of a process group of its own, and whatever is left of the group is killed with it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{Task, fatal};
use crate::guest::protocol::{Event, PROTOCOL};
use crate::guest::runner;
use crate::host::heard::Heard;
use crate::host::{HostError, Phase};
use crate::sys;

/// How often a running trial is asked whether the user has had enough.
const POLL: Duration = Duration::from_millis(20);

/// Has a process of its own do the task: what it said, and how it ended.
pub(super) fn work(task: &Task, cancel: &AtomicBool, phase: &dyn Fn(Phase)) -> Result<(Heard, ExitStatus), HostError> {
    phase(Phase::Booting);
    let mut heard = Heard::default();
    let (finished, killed) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let status = std::thread::scope(|scope| -> anyhow::Result<ExitStatus> {
        let mut process = Process::start(task)?;
        let (mut events, acks) = process.channel();
        let pid = process.pid();
        // What ends the watcher, however the reading ends.
        let _done = Done(finished);
        scope.spawn(move || {
            while !finished.load(Ordering::Acquire) {
                if cancel.load(Ordering::Relaxed) {
                    killed.store(true, Ordering::Release);
                    let _ = kill_process_group(pid, Signal::KILL);
                    break;
                }
                std::thread::sleep(POLL);
            }
        });
        heard.take(Event::Hello { protocol: PROTOCOL, guest: task.machine.clone() }, phase);
        heard.take(Event::Ready, phase);
        converse(task, &mut events, acks, &mut heard, phase)?;
        finished.store(true, Ordering::Release);
        process.end()
    });
    if killed.load(Ordering::Acquire) {
        return Err(HostError::Cancelled);
    }
    Ok((heard, status.map_err(fatal)?))
}

/// Sets its flag when dropped.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Tells the process its task and hears it out.
fn converse(
    task: &Task,
    events: &mut dyn BufRead,
    mut acks: File,
    heard: &mut Heard,
    phase: &dyn Fn(Phase),
) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(task)?;
    line.push(b'\n');
    // If it is gone already, its exit status says so.
    let _ = acks.write_all(&line);
    let mut line = String::new();
    while !heard.done {
        line.clear();
        if events.read_line(&mut line)? == 0 {
            break;
        }
        let event =
            serde_json::from_str(&line).with_context(|| format!("The trial's process said `{}`", line.trim()))?;
        heard.take(event, phase);
        let _ = acks.write_all(b".");
    }
    Ok(())
}

pub(super) fn ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("ended with status {}", status.code().unwrap_or(0)),
    }
}

/// A trial's process and all that it has started, killed when dropped.
struct Process(Option<Child>);

impl Process {
    fn start(task: &Task) -> anyhow::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("bigiron").args(["worker", "trial"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(mounts) = task.mounts.first() {
            command.current_dir(&mounts.dir);
        }
        let child = sys::child::die_with_parent(&mut command).spawn().context("The trial's process does not start")?;
        Ok(Self(Some(child)))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().expect("it has not ended"))
    }

    fn channel(&mut self) -> (BufReader<File>, File) {
        let child = self.0.as_mut().expect("it has not ended");
        let out = child.stdout.take().expect("standard output is a pipe, taken once");
        let acks = child.stdin.take().expect("standard input is a pipe, taken once");
        (BufReader::new(File::from(OwnedFd::from(out))), File::from(OwnedFd::from(acks)))
    }

    /// Waits for its end; what it left running is killed.
    fn end(mut self) -> anyhow::Result<ExitStatus> {
        let pid = self.pid();
        let status = self.0.take().expect("it has not ended").wait()?;
        let _ = kill_process_group(pid, Signal::KILL);
        Ok(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

/// `bigiron worker trial`: a task on standard input, events on standard output.
pub fn worker() -> i32 {
    match serve() {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("bigiron: {e:#}");
            1
        }
    }
}

fn serve() -> anyhow::Result<()> {
    // Unbuffered to the byte: what follows the task's line are acknowledgements.
    let input = File::from(rustix::io::dup(rustix::stdio::stdin())?);
    let mut line = Vec::new();
    let mut byte = [0];
    while std::io::Read::read(&mut &input, &mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let task: Task = serde_json::from_slice(&line).context("The task is not readable")?;
    let events = File::from(rustix::io::dup(rustix::stdio::stdout())?);
    runner::serve(&task.job, &task.machine, &task.mounts, &PathBuf::from("/proc/self/exe"), events, input);
    Ok(())
}
