//! The process that does a trial on this machine: how it is started, told its task and read from, and what it does itself.
//!
//! Invariant: it is the head of a process group of its own, and whatever is left of the group is killed with it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::descendants::Descendants;
use super::{Task, fatal};
use crate::guest::runner;
use crate::host::received_events::ReceivedEvents;
use crate::host::{HostError, Phase};
use crate::protocol::{GuestEvent, PROTOCOL};
use crate::vm::hang_detector::HangDetector;
use crate::vm::watch::IDLE_FACTOR;
use bigiron_sys as sys;
use bigiron_workload::registry::Registry;

/// How often a running trial is looked at: whether the user has had enough, and whether it has hung.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How often a trial that says nothing is measured. Walking through /proc takes CPU time of the machine that is measured.
const MEASURE: Duration = Duration::from_secs(1);

/// How long the processes of a killed trial may take to end. What a program has started is ended by its guard.
const GRACE: Duration = Duration::from_secs(10);

/// How long a trial may go without a sign of progress.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// Of all CPUs together.
    pub cpu_seconds: u32,
    pub cpus: u32,
}

/// Has a process of its own do the task, which without a `limit` may take for ever: what it said, and how it ended.
pub(super) fn work(
    task: &Task,
    limit: Option<Limit>,
    cancel: &AtomicBool,
    phase: &dyn Fn(Phase),
) -> Result<(ReceivedEvents, WorkerEnd), HostError> {
    phase(Phase::Booting);
    let mut received = ReceivedEvents::default();
    let mut process = Process::start(task).map_err(fatal)?;
    received.take(GuestEvent::Hello { protocol: PROTOCOL, guest: task.machine.clone() }, phase);
    received.take(GuestEvent::Ready, phase);
    let talked =
        converse(task, &mut process, limit.map(SilenceWatch::new), cancel, &mut received, phase).map_err(fatal)?;
    let end = match talked {
        ConversationEnd::Out(status) => WorkerEnd::Exited(status),
        ConversationEnd::Held(why) => {
            process.kill_all();
            return Err(HostError::Void(format!("A process of the trial {why} {}", received.last_step())));
        }
        ConversationEnd::Hung(why) => {
            let left = match process.kill_all() {
                0 => String::new(),
                n => format!("; {n} of its processes cannot be killed"),
            };
            WorkerEnd::Hung(format!("{why}{left}"))
        }
        ConversationEnd::Malformed(line) => {
            process.kill_all();
            WorkerEnd::Malformed(line)
        }
        ConversationEnd::Cancelled => return Err(HostError::Cancelled),
    };
    Ok((received, end))
}

/// How a trial's process came to its end.
pub(super) enum WorkerEnd {
    Exited(ExitStatus),
    /// Killed by us; why.
    Hung(String),
    /// Killed by us, since what it said is no event; what it said.
    Malformed(String),
}

/// Why nothing more is read from a trial's process.
enum ConversationEnd {
    /// It has ended.
    Out(ExitStatus),
    Hung(String),
    /// By somebody, or a frozen cgroup.
    Held(&'static str),
    Malformed(String),
    Cancelled,
}

/// Watches over a trial that says nothing.
struct SilenceWatch {
    hang_detector: HangDetector,
    /// Before so much of it nothing can have hung: all CPUs together could not have used the limit up.
    least: Duration,
    measured: Option<Instant>,
}

impl SilenceWatch {
    fn new(limit: Limit) -> Self {
        let least = Duration::from_secs(u64::from(limit.cpu_seconds)) / limit.cpus.max(1);
        Self { hang_detector: HangDetector::new(limit.cpu_seconds, least * IDLE_FACTOR), least, measured: None }
    }

    fn broken(&mut self) {
        self.hang_detector.progressed();
        self.measured = None;
    }

    /// Why the trial of process `pid` counts as hung. CPU time is measured only when there was silence for long: never in a trial that gets on.
    fn hung(&mut self, pid: Pid, received: &ReceivedEvents) -> Option<String> {
        if self.hang_detector.silence() < self.least || self.measured.is_some_and(|at| at.elapsed() < MEASURE) {
            return None;
        }
        let cpu = Descendants::of(pid).cpu_seconds();
        if self.measured.replace(Instant::now()).is_none() {
            self.hang_detector.measure_from(cpu);
        }
        self.hang_detector.hung(Some(cpu), &received.last_step())
    }
}

/// Tells the process its task and reads its events until it has ended.
fn converse(
    task: &Task,
    process: &mut Process,
    mut silence: Option<SilenceWatch>,
    cancel: &AtomicBool,
    received: &mut ReceivedEvents,
    phase: &dyn Fn(Phase),
) -> anyhow::Result<ConversationEnd> {
    let (mut events, mut acks) = process.channel();
    let mut line = serde_json::to_vec(task)?;
    line.push(b'\n');
    // If it is gone already, its exit status says so.
    let _ = acks.write_all(&line);
    let mut said = Vec::new();
    while !received.done {
        if cancel.load(Ordering::Relaxed) {
            return Ok(ConversationEnd::Cancelled);
        }
        if let Some(why) = silence.as_mut().and_then(|silence| silence.hung(process.pid(), received)) {
            return Ok(hung_or_held(process.pid(), why));
        }
        match poll(&mut [PollFd::new(&events, PollFlags::IN)], Some(&POLL)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(e).context("The trial's process cannot be waited for"),
        }
        let mut piece = [0; 1 << 16];
        let read = events.read(&mut piece)?;
        if read == 0 {
            break;
        }
        said.extend_from_slice(&piece[..read]);
        if let Some(silence) = &mut silence {
            silence.broken();
        }
        while let Some(end) = said.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = said.drain(..=end).collect();
            match GuestEvent::of_line(line.trim_ascii_end()) {
                Ok(event) => received.take(event, phase),
                Err(line) => return Ok(ConversationEnd::Malformed(line)),
            }
            let _ = acks.write_all(b".");
        }
    }
    loop {
        if let Some(status) = process.ended()? {
            return Ok(ConversationEnd::Out(status));
        }
        if cancel.load(Ordering::Relaxed) {
            return Ok(ConversationEnd::Cancelled);
        }
        if let Some(why) = silence.as_mut().and_then(|silence| silence.hung(process.pid(), received)) {
            return Ok(hung_or_held(process.pid(), why));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A trial of which a process was stopped does not hang.
fn hung_or_held(pid: Pid, why: String) -> ConversationEnd {
    Descendants::of(pid).held().map_or(ConversationEnd::Hung(why), ConversationEnd::Held)
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

    fn channel(&mut self) -> (File, File) {
        let child = self.0.as_mut().expect("it has not ended");
        let out = child.stdout.take().expect("standard output is a pipe, taken once");
        let acks = child.stdin.take().expect("standard input is a pipe, taken once");
        (File::from(OwnedFd::from(out)), File::from(OwnedFd::from(acks)))
    }

    /// How it ended, if it has; what it left running is killed then.
    fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let pid = self.pid();
        let Some(status) = self.0.as_mut().expect("it has not ended").try_wait()? else { return Ok(None) };
        let _ = kill_process_group(pid, Signal::KILL);
        self.0 = None;
        Ok(Some(status))
    }

    /// Kills it with all its descendants and waits for their end: how many could not be killed and are left alone.
    fn kill_all(&mut self) -> usize {
        let Some(mut child) = self.0.take() else { return 0 };
        let family = Descendants::of(Pid::from_child(&child));
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        // Those in groups of their own end by themselves when it is gone, and clear up before.
        let mut is_over = || !matches!(child.try_wait(), Ok(None)) && family.running() == 0;
        if !wait_for(&mut is_over) {
            family.kill();
            wait_for(&mut is_over);
        }
        family.running()
    }
}

/// Waits until it is so; `false` if it is not within [`GRACE`].
fn wait_for(is_over: &mut dyn FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_over() {
        if began.elapsed() > GRACE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// `bigiron worker trial`: a task on standard input, events on standard output.
pub fn worker(registry: Registry) -> i32 {
    match serve(registry) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("bigiron: {e:#}");
            1
        }
    }
}

fn serve(registry: Registry) -> anyhow::Result<()> {
    // Unbuffered to the byte: what follows the task's line are acknowledgements.
    let input = File::from(rustix::io::dup(rustix::stdio::stdin())?);
    let mut line = Vec::new();
    let mut byte = [0];
    while std::io::Read::read(&mut &input, &mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let task: Task = serde_json::from_slice(&line).context("The task is not readable")?;
    let events = File::from(rustix::io::dup(rustix::stdio::stdout())?);
    let workloads = runner::workloads(registry, &task.job)?;
    runner::serve(&workloads, &task.job, &task.machine, &task.mounts, &PathBuf::from("/proc/self/exe"), events, input);
    Ok(())
}
