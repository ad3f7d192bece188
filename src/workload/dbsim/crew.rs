//! The processes of a run, as the parent sees them.
//!
//! Invariant: whatever happens, no process outlives the crew: one that ends before its time is an error that names it, and
//! dropping the crew kills and reaps the rest.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::PidfdFlags;
use rustix::time::Timespec;

use crate::sys::cpu_clock::cpu_time;
use crate::sys::process::{Child, Exit, exit_now, fork_child};

use super::instance::Instance;
use super::job::Kind;
use super::{archiver, checkpointer, db_writer, foreground, log_writer, pace, page_tables, scanner};

/// Bytes of a thread's stack: what a transaction needs, with room to spare.
const STACK: usize = 256 << 10;

struct Member {
    process: usize,
    child: Child,
    /// Becomes readable when the process ends.
    end: OwnedFd,
}

/// The processes that have not been seen to end.
pub struct Crew<'a> {
    instance: &'a Instance<'a>,
    members: Vec<Member>,
    milestones: File,
}

impl<'a> Crew<'a> {
    /// Forks every process of the instance. `milestones` is the reading end of the instance's pipe.
    pub fn start(instance: &'a Instance<'a>, milestones: File) -> Result<Self> {
        let mut crew = Self { instance, members: Vec::with_capacity(instance.roles.len()), milestones };
        let mut process = 0;
        while process < instance.roles.len() {
            let class = instance.class(process);
            let workers = if class.threads { class.count } else { 1 };
            let child =
                fork_child(
                    || if workers > 1 { together(instance, process, workers) } else { alone(instance, process) },
                )
                .with_context(|| format!("Cannot start process {process} of {}", instance.roles.len()))?;
            let end =
                rustix::process::pidfd_open(child.pid(), PidfdFlags::empty()).context("Cannot watch a process")?;
            crew.members.push(Member { process, child, end });
            process += workers;
        }
        Ok(crew)
    }

    /// Waits for the next milestone.
    pub fn wait_milestone(&mut self) -> Result<()> {
        self.wait(None).map(|_| ())
    }

    /// Waits for the next milestone, no longer than until the monotonic clock says `deadline`, in nanoseconds; whether it came. That
    /// a member ends meanwhile is an error.
    pub fn wait(&mut self, deadline: Option<u64>) -> Result<bool> {
        loop {
            let left = deadline.map(|d| d.saturating_sub(pace::now()));
            let (reached, ended) = self.poll(true, left.map(Duration::from_nanos))?;
            if let Some(member) = ended.first() {
                return Err(self.bury(*member)?);
            }
            if reached {
                self.milestones.read_exact(&mut [0]).context("Cannot hear of a milestone")?;
                return Ok(true);
            }
            if left == Some(0) {
                return Ok(false);
            }
        }
    }

    /// Waits until the members whose class `leaves` have gone home. Anybody else's end is an error, and so is a bad end.
    pub fn wait_gone(&mut self, leaves: impl Fn(&Kind) -> bool) -> Result<()> {
        while self.members.iter().any(|m| leaves(self.kind(m.process))) {
            let (_, ended) = self.poll(false, None)?;
            for i in ended.into_iter().rev() {
                if !leaves(self.kind(self.members[i].process)) {
                    return Err(self.bury(i)?);
                }
                let member = self.members.swap_remove(i);
                let exit = member.child.wait().context("Cannot wait for a process")?;
                if exit != Exit::Status(0) {
                    return Err(obituary(self.instance, member.process, exit));
                }
            }
        }
        Ok(())
    }

    fn kind(&self, process: usize) -> &'a Kind {
        &self.instance.class(process).kind
    }

    /// CPU time of all members so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        let mut sum = Duration::ZERO;
        for m in &self.members {
            sum += cpu_time(m.child.pid())
                .with_context(|| format!("Cannot read the CPU clock of {}", self.instance.name(m.process)))?;
        }
        Ok(sum)
    }

    /// Bytes of page tables of each member: its process number and how many.
    pub fn page_table_bytes(&self) -> Result<Vec<(usize, u64)>> {
        let of = |m: &Member| Ok((m.process, page_tables::of_process(m.child.pid().as_raw_nonzero())?));
        self.members.iter().map(of).collect()
    }

    /// Which members have ended, and whether a milestone has been reached (if that is waited for as well). Sleeps until either, or
    /// until `timeout` has passed.
    fn poll(&self, milestones: bool, timeout: Option<Duration>) -> Result<(bool, Vec<usize>)> {
        let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
        let mut fds: Vec<_> = self.members.iter().map(|m| PollFd::new(&m.end, PollFlags::IN)).collect();
        if milestones {
            fds.push(PollFd::from_borrowed_fd(self.milestones.as_fd(), PollFlags::IN));
        }
        loop {
            match rustix::event::poll(&mut fds, timeout.as_ref()) {
                Ok(_) => break,
                // With a time limit, the caller is to look how much of it is left.
                Err(Errno::INTR) if timeout.is_some() => return Ok((false, Vec::new())),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e).context("Cannot wait for the processes"),
            }
        }
        let ended = (0..self.members.len()).filter(|i| !fds[*i].revents().is_empty()).collect();
        Ok((milestones && fds.last().is_some_and(|f| f.revents().contains(PollFlags::IN)), ended))
    }

    /// The error that the untimely end of a member is.
    fn bury(&mut self, member: usize) -> Result<anyhow::Error> {
        let Member { process, child, .. } = self.members.swap_remove(member);
        let exit = child.wait().context("Cannot wait for a process")?;
        Ok(obituary(self.instance, process, exit))
    }
}

/// A worker that is a process.
fn alone(instance: &Instance<'_>, worker: usize) -> i32 {
    match work(instance, worker) {
        Ok(()) => 0,
        Err(e) => {
            instance.leave_word(worker, &format!("{e:#}"));
            1
        }
    }
}

/// Workers that are threads of one process. The first one that fails ends them all.
fn together(instance: &Instance<'_>, first: usize, count: usize) -> i32 {
    std::thread::scope(|scope| {
        for worker in first..first + count {
            let body = move || {
                // A panic must not leave the others waiting for this one.
                let status = catch_unwind(AssertUnwindSafe(|| alone(instance, worker))).unwrap_or(101);
                if status != 0 {
                    exit_now(status);
                }
            };
            if let Err(e) = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body) {
                instance.leave_word(worker, &format!("Cannot start a thread: {e}"));
                exit_now(1);
            }
        }
    });
    0
}

fn work(instance: &Instance<'_>, process: usize) -> Result<()> {
    instance.waits.attach(process);
    let class = instance.class(process);
    match &class.kind {
        Kind::Foreground => foreground::run(instance, process),
        Kind::LogWriter { engine, .. } => log_writer::run(instance, engine),
        Kind::DatabaseWriter { engine, batch, sorted } => db_writer::run(instance, process, engine, *batch, *sorted),
        Kind::Checkpointer { percent } => checkpointer::run(instance, *percent),
        Kind::Scanner { engine, request, work, .. } => scanner::run(instance, process, engine, *request, *work),
        Kind::Archiver { request, bytes_per_second } => archiver::run(instance, *request, *bytes_per_second),
        other => bail!("dbsim has no process of kind `{}`", other.word()),
    }
}

/// The error that the end of `process`, or of the threads from that one on, is.
fn obituary(instance: &Instance<'_>, process: usize, exit: Exit) -> anyhow::Error {
    let class = instance.class(process);
    let workers = process..process + if class.threads { class.count } else { 1 };
    let failed = workers.clone().find(|w| instance.word_of(*w).is_some()).unwrap_or(process);
    let role = instance.name(failed);
    match (exit, instance.word_of(failed)) {
        (_, Some(word)) => anyhow::anyhow!("{role} failed: {word}"),
        (Exit::Status(n), None) => anyhow::anyhow!("{role} ended with status {n} before its time"),
        (Exit::Signal(n), None) => anyhow::anyhow!("{role} was ended by signal {n}"),
    }
}
