//! The process that starts a workload's programs, accounts for their resources and leaves no process of theirs running.
//!
//! It is a separate process because it must outlive the trial's: if that one is killed, by anything, the process guard sees the end of its connection
//! and kills everything that a program has started, daemons included (they become its children, however they try to escape).
//! Invariant: between two runs, and after the process guard ends, no process of a program exists.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::cgroup::{CgroupParent, RunCgroup};
use super::measured::{Counted, MeasuredRun, RunEnd};
use bigiron_probe::counters::span;
use bigiron_sys::launch;
use bigiron_sys::launch::{Program, Usage};
use bigiron_sys::process::Exit;

/// The words that request a run with and without a window of its own.
const MEASURED: &str = "measured";
const NOT_MEASURED: &str = "other";

/// The settings that all runs of a trial share.
pub struct ProgramSet<'a> {
    /// A run executes one of them, chosen by its index.
    pub programs: Vec<Program>,
    /// Longest time that a run may take.
    pub limit: Duration,
    /// The folder for the outputs, `NAME.stdout` and `NAME.stderr`.
    pub outputs: &'a Path,
    /// Whether standard output is kept.
    pub keep_stdout: bool,
    /// The folder that is the programs' `/`, if it is not this process's.
    pub root: Option<PathBuf>,
}

/// The process guard, as the trial's process sees it. Dropping it ends it and all its processes.
pub struct ProcessGuard {
    pid: Pid,
    line: Option<BufReader<UnixStream>>,
}

impl ProcessGuard {
    /// Forks it. Call this from a single-threaded process.
    ///
    /// # Errors
    /// The system has no process or descriptor left.
    pub fn start(orders: &ProgramSet<'_>) -> anyhow::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        let mut ours = Some(ours);
        let pid = launch::fork_guard(|| {
            // The child's copy of the trial's end would keep the connection open after the trial ends.
            ours.take();
            serve(orders, its)
        })
        .context("Cannot start the guard of the programs")?;
        let line = ours.take().map(BufReader::new);
        Ok(Self { pid, line })
    }

    /// Runs a program once, by its index in [`ProgramSet::programs`]; the outputs are called `name`, a single word.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn run(&mut self, program: usize, name: &str) -> anyhow::Result<MeasuredRun> {
        self.ask(program, name, NOT_MEASURED)
    }

    /// Like [`ProcessGuard::run`], in a window of its own ([`bigiron_model::workload::Window`]).
    ///
    /// # Errors
    /// As [`ProcessGuard::run`].
    pub fn measure(&mut self, program: usize, name: &str) -> anyhow::Result<MeasuredRun> {
        self.ask(program, name, MEASURED)
    }

    fn ask(&mut self, program: usize, name: &str, measured: &str) -> anyhow::Result<MeasuredRun> {
        let line = self.line.as_mut().expect("open until it is dropped");
        let gone = "The guard of the programs is gone";
        writeln!(line.get_mut(), "{program} {measured} {name}").context(gone)?;
        let mut answer = String::new();
        line.read_line(&mut answer)?;
        let answer: Result<MeasuredRun, RunError> = serde_json::from_str(&answer).context(gone)?;
        answer.map_err(RunError::into_error)
    }
}

/// Why there was no run, as the process guard says it. The kernel's error keeps its number, which tells what a user ran out of.
#[derive(Serialize, Deserialize)]
struct RunError {
    said: String,
    errno: Option<i32>,
}

impl RunError {
    fn of(error: &anyhow::Error) -> Self {
        let errno = error.root_cause().downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        let mut said: Vec<String> = error.chain().map(ToString::to_string).collect();
        if errno.is_some() && said.len() > 1 {
            said.pop();
        }
        Self { said: said.join(": "), errno }
    }

    fn into_error(self) -> anyhow::Error {
        match self.errno {
            Some(errno) => anyhow::Error::new(io::Error::from_raw_os_error(errno)).context(self.said),
            None => anyhow!(self.said),
        }
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        // The process guard reads this as the end of the connection.
        self.line.take();
        let _ = launch::reap(Some(self.pid));
    }
}

/// The process guard's main function. Returns its exit status.
fn serve(orders: &ProgramSet<'_>, line: UnixStream) -> i32 {
    match Life::begin(orders).and_then(|life| life.live(line)) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("bigiron: {e:#}");
            1
        }
    }
}

struct Life<'a> {
    orders: &'a ProgramSet<'a>,
    outputs: OwnedFd,
    cgroups: Option<CgroupParent>,
}

impl<'a> Life<'a> {
    fn begin(orders: &'a ProgramSet<'a>) -> anyhow::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let outputs = rustix::fs::open(orders.outputs, flags, rustix::fs::Mode::empty())
            .with_context(|| format!("Cannot open {}", orders.outputs.display()))?;
        let cgroups = CgroupParent::find();
        if let Some(root) = &orders.root {
            rustix::process::chroot(root).with_context(|| format!("Cannot enter {}", root.display()))?;
            rustix::process::chdir("/")?;
        }
        Ok(Self { orders, outputs, cgroups })
    }

    /// Serves one run after the other, until the connection ends.
    fn live(&self, mut line: UnixStream) -> anyhow::Result<()> {
        let mut asked = BufReader::new(line.try_clone()?);
        let mut order = String::new();
        loop {
            order.clear();
            if asked.read_line(&mut order)? == 0 {
                return Ok(());
            }
            let mut words = order.split_whitespace();
            let (Some(program), Some(measured), Some(name)) = (words.next(), words.next(), words.next()) else {
                bail!("A request for a run needs a program, whether it is measured, and a name");
            };
            let program = self.orders.programs.get(program.parse::<usize>()?).context("No such program")?;
            let Some(run) = self.run(program, name, measured == MEASURED, &line) else { return Ok(()) };
            let answer = run.map_err(|e| RunError::of(&e));
            let mut text = serde_json::to_vec(&answer)?;
            text.push(b'\n');
            line.write_all(&text)?;
        }
    }

    /// One run; `None` if the connection ended in the meantime.
    fn run(
        &self,
        program: &Program,
        name: &str,
        measured: bool,
        line: &UnixStream,
    ) -> Option<anyhow::Result<MeasuredRun>> {
        let begun = self.start(program, name, measured);
        let (started, group, running) = match begun {
            Ok(begun) => begun,
            Err(e) => return Some(Err(e)),
        };
        let waited = self.wait(&running.end, line);
        let ended = if measured { span::close(Instant::now) } else { Instant::now() };
        let wall_ns = (ended - started).as_nanos() as u64;
        if measured {
            span::cut();
        }
        let over = !matches!(waited, Ok(Waited::Ended));
        if over {
            let _ = kill_process(running.pid, Signal::KILL);
        }
        let (exit, usage) = match launch::reap(Some(running.pid)) {
            Ok((_, exit, usage)) => (exit, usage),
            Err(e) => return Some(Err(anyhow!(e).context("Cannot wait for the program"))),
        };
        let (left, later) = sweep(group.as_ref());
        let counted = group.as_ref().map_or_else(Counted::default, RunCgroup::counted);
        let ended = match (waited, exit) {
            (Err(e), _) => return Some(Err(e)),
            (Ok(Waited::Alone), _) => return None,
            (Ok(Waited::Limit), _) => RunEnd::Limit,
            (Ok(Waited::Ended), Exit::Status(n)) => RunEnd::Status(n),
            (Ok(Waited::Ended), Exit::Signal(n)) => RunEnd::Signal(n),
        };
        Some(Ok(MeasuredRun::new(wall_ns, ended, usage.and(later), counted, left)))
    }

    fn start(
        &self,
        program: &Program,
        name: &str,
        measured: bool,
    ) -> anyhow::Result<(Instant, Option<RunCgroup<'_>>, launch::RunningProgram)> {
        let stderr = self.output(&format!("{name}.stderr"))?;
        let stdout = match self.orders.keep_stdout {
            true => self.output(&format!("{name}.stdout"))?,
            false => File::options().write(true).open("/dev/null")?,
        };
        let group = self.cgroups.as_ref().and_then(|place| place.group(name));
        let started = if measured { span::open(Instant::now) } else { Instant::now() };
        let running = program.start(stdout.as_fd(), stderr.as_fd(), group.as_ref().map(RunCgroup::fd));
        let running = running.with_context(|| {
            let (path, dir) = (program.path.to_string_lossy(), program.dir.to_string_lossy());
            format!("Cannot run `{path}` in `{dir}`")
        })?;
        Ok((started, group, running))
    }

    fn output(&self, name: &str) -> anyhow::Result<File> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.outputs, name, flags, Mode::from_raw_mode(0o644));
        Ok(File::from(file.with_context(|| format!("Cannot make the file `{name}`"))?))
    }

    fn wait(&self, end: &OwnedFd, line: &UnixStream) -> anyhow::Result<Waited> {
        let deadline = Instant::now() + self.orders.limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(end, PollFlags::IN), PollFd::new(line, PollFlags::IN)];
            let timeout = left.try_into().unwrap_or(rustix::time::Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            match poll(&mut fds, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
                Ok(_) => {}
            }
            // No request is sent before this one is answered, so readable data is the end of the connection.
            let [ended, alone] = fds.map(|fd| !fd.revents().is_empty());
            match (ended, alone) {
                (true, _) => return Ok(Waited::Ended),
                (false, true) => return Ok(Waited::Alone),
                (false, false) if left.is_zero() => return Ok(Waited::Limit),
                (false, false) => {}
            }
        }
    }
}

/// Why a wait ended.
enum Waited {
    Ended,
    Limit,
    /// The trial's process has ended.
    Alone,
}

/// Ends and reaps all processes left of a run; returns how many still ran, and the resources used by all of them.
fn sweep(group: Option<&RunCgroup<'_>>) -> (u32, Usage) {
    let mut killed = BTreeSet::new();
    let mut usage = Usage::default();
    loop {
        match launch::try_reap(None) {
            Ok(Some((_, _, used))) => {
                usage = usage.and(used);
                continue;
            }
            Ok(None) => {}
            // There is no child left.
            Err(_) => return (killed.len() as u32, usage),
        }
        let children = children();
        killed.extend(children.iter().map(|pid| pid.as_raw_nonzero()));
        if let Some(group) = group {
            group.kill();
        }
        for pid in children {
            let _ = kill_process(pid, Signal::KILL);
        }
        if let Ok((_, _, used)) = launch::reap(None) {
            usage = usage.and(used);
        }
    }
}

/// Children of this process that have not ended.
fn children() -> Vec<Pid> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // proc(5): after the name in parentheses come state and parent.
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let (state, parent) = (fields.next()?, fields.next()?.parse::<i32>().ok()?);
            (parent == me && state != "Z").then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}
