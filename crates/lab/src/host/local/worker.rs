//! The process that runs a trial on this machine: how it is started, gets its task and is read from, and its own work.
//!
//! Invariant: it leads its own process group, and the rest of the group is killed with it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
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
use bigiron_workload::shortage;

/// Interval at which a running trial is checked for interruption and hanging.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Interval at which a silent trial's CPU time is measured. Walking through /proc takes CPU time of the measured machine.
const MEASURE: Duration = Duration::from_secs(1);

/// How long the processes of a killed trial may take to end. A program's process guard ends its processes.
const GRACE: Duration = Duration::from_secs(10);

/// How long a trial may go without a sign of progress.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// CPU seconds of all CPUs together.
    pub cpu_seconds: u32,
    pub cpus: u32,
}

/// Runs the task in a separate process, without a `limit` for any length of time; returns its events and how it ended.
pub(super) fn work(
    task: &Task,
    limit: Option<Limit>,
    cancel: &AtomicBool,
    phase: &dyn Fn(Phase),
) -> Result<(ReceivedEvents, WorkerEnd), HostError> {
    phase(Phase::Booting);
    let mut received = ReceivedEvents::default();
    let mut process = Process::start(command(task)).map_err(fatal)?;
    received.take(GuestEvent::Hello { protocol: PROTOCOL, guest: task.machine.clone() }, phase);
    received.take(GuestEvent::Ready, phase);
    let talked =
        converse(task, &mut process, limit.map(SilenceWatch::new), cancel, &mut received, phase).map_err(fatal)?;
    let end = match talked {
        ConversationEnd::Out(status) => WorkerEnd::Exited(status),
        ConversationEnd::Held(why) => {
            let step = received.last_step();
            return Err(HostError::Void(format!("A process of the trial {why} {step}{}", process.killed())));
        }
        ConversationEnd::Hung(why) => WorkerEnd::Hung(format!("{why}{}", process.killed())),
        ConversationEnd::Malformed(line) => {
            WorkerEnd::Malformed(format!("`{line}` {}{}", received.last_step(), process.killed()))
        }
        ConversationEnd::Cancelled => return Err(HostError::Cancelled),
    };
    Ok((received, end))
}

/// How a trial's process ended.
pub(super) enum WorkerEnd {
    Exited(ExitStatus),
    /// Killed by bigiron; the reason.
    Hung(String),
    /// Killed by us, since what it said is no event; what it said, and when.
    Malformed(String),
}

/// Why nothing more is read from a trial's process.
#[derive(Debug)]
enum ConversationEnd {
    /// The process has ended.
    Out(ExitStatus),
    Hung(String),
    /// By somebody, or a frozen cgroup.
    Held(&'static str),
    /// It has said this line, which is no event.
    Malformed(String),
    Cancelled,
}

/// Watches a silent trial.
struct SilenceWatch {
    hang_detector: HangDetector,
    /// A shorter silence cannot be a hang: all CPUs together could not have used up the limit.
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

    /// Why the trial of process `pid` counts as hung. CPU time is measured only after a long silence, never in a trial that makes
    /// progress.
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

/// Sends the process its task and reads its events until it has ended.
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
    // If the process has already ended, its exit status shows that.
    let _ = acks.write_all(&line);
    let (mut said, mut status) = (Vec::new(), None);
    while !received.done {
        if cancel.load(Ordering::Relaxed) {
            return Ok(ConversationEnd::Cancelled);
        }
        if status.is_none() {
            if let Some(why) = silence.as_mut().and_then(|silence| silence.hung(process.pid(), received)) {
                return Ok(hung_or_held(process.pid(), why));
            }
            // Before the poll, so that what it said until its end is read whole.
            status = process.ended()?;
        }
        match poll(&mut [PollFd::new(&events, PollFlags::IN)], Some(&POLL)) {
            // A process that it has left behind holds its standard output open.
            Ok(0) if status.is_some() => break,
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
            match GuestEvent::of_line(&line[..line.len() - 1]) {
                Ok(event) => received.take(event, phase),
                Err(said) => return Ok(ConversationEnd::Malformed(said)),
            }
            let _ = acks.write_all(b".");
        }
    }
    loop {
        if let Some(status) = status {
            return Ok(ConversationEnd::Out(status));
        }
        if cancel.load(Ordering::Relaxed) {
            return Ok(ConversationEnd::Cancelled);
        }
        if let Some(why) = silence.as_mut().and_then(|silence| silence.hung(process.pid(), received)) {
            return Ok(hung_or_held(process.pid(), why));
        }
        std::thread::sleep(Duration::from_millis(1));
        status = process.ended()?;
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

/// A trial's process and all its descendants, killed when dropped.
struct Process(Option<Child>);

/// What does the task.
fn command(task: &Task) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("bigiron").args(["worker", "trial"]);
    if let Some(mounts) = task.mounts.first() {
        command.current_dir(&mounts.dir);
    }
    command
}

impl Process {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = sys::child::die_with_parent(&mut command).spawn();
        let child = child.map_err(|e| anyhow!("The trial's process does not start: {}", shortage::no_process(&e)))?;
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

    /// Its exit status, if it has ended; the processes that it left running are then killed.
    fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let pid = self.pid();
        let Some(status) = self.0.as_mut().expect("it has not ended").try_wait()? else { return Ok(None) };
        let _ = kill_process_group(pid, Signal::KILL);
        self.0 = None;
        Ok(Some(status))
    }

    /// Kills it with all its descendants; words on those that cannot be killed.
    fn killed(&mut self) -> String {
        match self.kill_all() {
            0 => String::new(),
            n => format!("; {n} of its processes cannot be killed"),
        }
    }

    /// Kills it with all its descendants and waits for their end: how many could not be killed and are left alone.
    fn kill_all(&mut self) -> usize {
        let Some(mut child) = self.0.take() else { return 0 };
        let family = Descendants::of(Pid::from_child(&child));
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        // Processes in their own groups end by themselves once it is gone, and clean up first.
        let mut is_over = || !matches!(child.try_wait(), Ok(None)) && family.running() == 0;
        // Frozen processes do not end before somebody lets them go on.
        let grace = if family.held().is_some() { GRACE / 10 } else { GRACE };
        if !wait_for(grace, &mut is_over) {
            family.kill();
            wait_for(grace, &mut is_over);
        }
        family.running()
    }
}

/// Waits until `is_over`; `false` after `grace`.
fn wait_for(grace: Duration, is_over: &mut dyn FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_over() {
        if began.elapsed() > grace {
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
    exit_without_threads();
    match serve(registry) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("bigiron: {e:#}");
            1
        }
    }
}

/// The exit status for want of a thread: `EX_OSERR` of sysexits(3).
pub(super) const NO_THREAD: i32 = 71;

/// Libraries panic if no thread can be started. That is a limit of the user's and no fault of the kernel's.
fn exit_without_threads() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload_as_str().is_some_and(|text| text.starts_with("failed to spawn thread")) {
            std::process::exit(NO_THREAD);
        }
        before(info);
    }));
}

fn serve(registry: Registry) -> anyhow::Result<()> {
    // Unbuffered: the bytes after the task's line are acknowledgements.
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

#[cfg(test)]
mod tests {
    use super::super::{identity_here, job};
    use super::*;
    use crate::vm::freezer;
    use crate::vm::process::held;
    use bigiron_model::clock::Clock;

    /// What comes of a trial whose process is `script`, with so much patience, and what cannot be killed of it.
    fn talked(script: &str, silence: Option<SilenceWatch>) -> (ConversationEnd, usize) {
        talked_after(script, |_| silence)
    }

    /// The same with the patience that `ready` returns, which gets the number of the process.
    fn talked_after(script: &str, ready: impl FnOnce(u32) -> Option<SilenceWatch>) -> (ConversationEnd, usize) {
        let task =
            Task { job: job(Clock::Wall, 1, Vec::new()), machine: identity_here(1, 1 << 30), mounts: Vec::new() };
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut process = Process::start(command).unwrap();
        let silence = ready(process.pid().as_raw_nonzero().get().unsigned_abs());
        let cancel = AtomicBool::new(false);
        let (over, wait) = std::sync::mpsc::channel::<()>();
        let talked = std::thread::scope(|threads| {
            let cancel = &cancel;
            threads.spawn(move || {
                let _ = wait.recv_timeout(Duration::from_secs(600));
                cancel.store(true, Ordering::Relaxed);
            });
            let talked = converse(&task, &mut process, silence, cancel, &mut ReceivedEvents::default(), &|_| {});
            drop(over);
            talked.unwrap()
        });
        (talked, process.kill_all())
    }

    fn silence_watch(limit_s: u32, idle: Duration) -> Option<SilenceWatch> {
        Some(SilenceWatch { hang_detector: HangDetector::new(limit_s, idle), least: Duration::ZERO, measured: None })
    }

    #[test]
    fn a_trial_that_waits_for_ever_has_hung_though_it_uses_no_cpu() {
        let (ended, left) = talked("exec sleep 600", silence_watch(60, Duration::from_millis(100)));
        let ConversationEnd::Hung(why) = ended else { panic!("{ended:?}") };
        assert!(why.starts_with("No progress and no CPU used for "), "{why}");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_trial_in_a_frozen_cgroup_is_held_and_has_not_hung() {
        for group in freezer::testing::groups("local") {
            let (file, word) = group.switch(true);
            let script =
                format!("echo $$ >{}; echo {word} >{}; exec sleep 600", group.procs().display(), file.display());
            // The patience begins when the shell has frozen itself, however late that is.
            let (ended, _) = talked_after(&script, |pid| {
                assert!(wait_for(Duration::from_secs(300), &mut || held(pid).is_some()), "it is not frozen");
                silence_watch(60, Duration::from_millis(100))
            });
            let ConversationEnd::Held(why) = ended else { panic!("{ended:?}") };
            assert_eq!(why, "was in a frozen cgroup");
            group.set(false);
            assert!(wait_for(Duration::from_secs(300), &mut || group.processes() == 0), "the trial is left");
        }
    }

    #[test]
    fn a_trial_that_gets_nowhere_has_hung_by_the_cpu_time_of_its_descendants() {
        let (ended, left) = talked("sh -c 'while :; do :; done' & wait", silence_watch(0, Duration::MAX));
        let ConversationEnd::Hung(why) = ended else { panic!("{ended:?}") };
        assert!(why.contains(" CPU seconds (limit 0) "), "{why}");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_trial_that_says_what_is_no_event_is_ended() {
        let (ended, left) = talked("echo '{\"event\":\"ready\"}'; echo garbage; exec sleep 600", None);
        assert!(matches!(&ended, ConversationEnd::Malformed(line) if line == "garbage"), "{ended:?}");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_trial_whose_process_is_gone_has_ended_though_its_output_is_held_open() {
        let pid = tempfile::NamedTempFile::new().unwrap();
        // In a session of its own before the trial's process dies, whose group is killed.
        let script = format!(
            "setsid sh -c 'echo $$ >{0}; exec sleep 600' & while [ ! -s {0} ]; do sleep 0.01; done; kill -9 $$",
            pid.path().display()
        );
        let (ended, _) = talked(&script, None);
        let left: i32 = std::fs::read_to_string(pid.path()).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
        assert!(matches!(&ended, ConversationEnd::Out(status) if status.signal() == Some(9)), "{ended:?}");
    }
}
