//! The processes of a run, as the parent sees them: through their supervisors, which fork them and report their ends.
//!
//! Invariant: no process ever outlives the worker group: one that ends early is an error that names it, and dropping the worker
//! group kills and reaps the rest.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use bigiron_sys::cpu_clock::cpu_time;
use bigiron_sys::family::ProcessFamily;
use bigiron_sys::process::{Exit, exit_now};

use super::instance::{ChildStatus, Instance, Part, RECORD};
use super::job::ClassKind;
use super::link::Link;
use super::supervisor::{self, Unit};
use super::{
    archiver, backup, checkpointer, client, db_writer, foreground, idle, loader, log_writer, pace, page_tables,
    requests, scanner, sorter,
};
use bigiron_workload::limits;

/// Bytes of a thread's stack: enough for a transaction, with room to spare.
const STACK: usize = 256 << 10;

/// The processes that have not ended.
pub struct WorkerGroup<'a> {
    instance: &'a Instance<'a>,
    supervisors: Vec<ProcessFamily>,
    /// By worker: whether it is a process, or the first thread of one, whose end has not been reported.
    present: Vec<bool>,
    statuses: PipeReader,
    /// Records read but not yet processed, last first.
    unread: Vec<ChildStatus>,
}

impl<'a> WorkerGroup<'a> {
    /// Forks every process of the instance. `statuses` is the reading end of the instance's pipe.
    pub fn start(instance: &'a Instance<'a>, statuses: PipeReader) -> Result<Self> {
        let units = Unit::all(instance.job, &instance.roles);
        let supervisors = units.len().div_ceil(supervisor::PROCESSES);
        limits::check(instance.roles.len() + supervisors)?;
        let mut present = vec![false; instance.roles.len()];
        units.iter().flat_map(|u| u.processes()).for_each(|p| present[p] = true);
        let mut worker_group =
            Self { instance, supervisors: Vec::with_capacity(supervisors), present, statuses, unread: Vec::new() };
        for units in units.chunks(units.len().div_ceil(supervisors.max(1)).max(1)) {
            let family = ProcessFamily::fork_head(|children| supervisor::run(instance, units, children));
            worker_group.supervisors.push(family.context("Cannot start the processes")?);
        }
        Ok(worker_group)
    }

    /// Waits for the next milestone.
    pub fn wait_milestone(&mut self) -> Result<()> {
        self.wait(None).map(|_| ())
    }

    /// Waits for the next milestone, at most until the monotonic clock reaches `deadline`, in nanoseconds; returns whether it
    /// came. The end of a member meanwhile is an error.
    pub fn wait(&mut self, deadline: Option<u64>) -> Result<bool> {
        match self.next(deadline)? {
            Some(ChildStatus::Milestone) => Ok(true),
            Some(ChildStatus::End(process, exit)) => Err(self.untimely(process, exit)),
            None => Ok(false),
        }
    }

    /// Waits until the members whose class `leaves` have ended. The end of any other member is an error, and so is a failure.
    pub fn wait_gone(&mut self, leaves: impl Fn(&ClassKind) -> bool) -> Result<()> {
        let kind = |process: usize| &self.instance.class(process).kind;
        let mut left = (0..self.present.len()).filter(|p| self.present[*p] && leaves(kind(*p))).count();
        while left > 0 {
            if let Some(ChildStatus::End(process, exit)) = self.next(None)? {
                if exit != Exit::Status(0) || !leaves(&self.instance.class(process).kind) {
                    return Err(self.untimely(process, exit));
                }
                self.present[process] = false;
                left -= 1;
            }
        }
        if !self.present.contains(&true) {
            for family in self.supervisors.drain(..) {
                family.wait().and_then(|exit| exit.success("A supervisor")).context("Cannot end the processes")?;
            }
        }
        Ok(())
    }

    /// CPU time of all members so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.members().try_fold(Duration::ZERO, |sum, process| {
            let pid = self.instance.pid(process).context("A process has not registered its process id")?;
            let time = cpu_time(pid)
                .with_context(|| format!("Cannot read the CPU clock of {}", self.instance.name(process)))?;
            Ok(sum + time)
        })
    }

    /// Bytes of page tables of each member, with its number.
    pub fn page_table_bytes(&self) -> Result<Vec<(usize, u64)>> {
        let of = |process| {
            let pid = self.instance.pid(process).context("A process has not registered its process id")?;
            Ok((process, page_tables::of_process(pid.as_raw_nonzero())?))
        };
        self.members().map(of).collect()
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        (0..self.present.len()).filter(|p| self.present[*p])
    }

    /// The next report; `None` if the deadline has passed. The end of a supervisor before its processes is an error.
    fn next(&mut self, deadline: Option<u64>) -> Result<Option<ChildStatus>> {
        loop {
            if let Some(statuses) = self.unread.pop() {
                return Ok(Some(statuses));
            }
            let mut fds = vec![PollFd::from_borrowed_fd(self.statuses.as_fd(), PollFlags::IN)];
            fds.extend(self.supervisors.iter().map(|w| PollFd::from_borrowed_fd(w.as_fd(), PollFlags::IN)));
            let left = deadline.map(|d| Duration::from_nanos(d.saturating_sub(pace::now())));
            let left = left.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
            match rustix::event::poll(&mut fds, left.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e).context("Cannot wait for the processes"),
            }
            let ready = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
            if ready(&fds[0]) {
                self.hear()?;
                continue;
            }
            // If there are no more reports, a supervisor that has ended has either no processes left, or has died.
            let ended: Vec<_> = (0..self.supervisors.len()).rev().filter(|w| ready(&fds[w + 1])).collect();
            for w in ended {
                match self.supervisors.swap_remove(w).wait().context("Cannot wait for a supervisor")? {
                    Exit::Status(0) => {}
                    Exit::Status(n) => bail!("A supervisor of the processes ended with status {n}"),
                    Exit::Signal(n) => bail!("A supervisor of the processes was ended by signal {n}"),
                }
            }
        }
    }

    /// Reads what is in the pipe.
    fn hear(&mut self) -> Result<()> {
        let mut bytes = [0; 512 * RECORD];
        let n = self.statuses.read(&mut bytes).context("Cannot read the processes' reports")?;
        // Whole records are written, so whole records are read.
        self.unread.extend(bytes[..n].as_chunks::<RECORD>().0.iter().rev().map(|r| ChildStatus::decode(*r)));
        Ok(())
    }

    /// The error for the early end of a member.
    fn untimely(&mut self, process: usize, exit: Exit) -> anyhow::Error {
        self.present[process] = false;
        obituary(self.instance, process, exit)
    }
}

impl Drop for WorkerGroup<'_> {
    fn drop(&mut self) {
        // All first: then each needs only to be reaped.
        self.supervisors.iter().for_each(ProcessFamily::kill);
    }
}

/// The work of `process`, alone or as threads, from its start to its exit status; with its connection if it is a client or a
/// server.
pub fn run_process(instance: &Instance<'_>, process: usize, link: Option<Link<'_>>) -> i32 {
    instance.enrol(process);
    let class = instance.class(process);
    let workers = if class.threads { class.count } else { 1 };
    if workers > 1 { together(instance, process, workers) } else { alone(instance, process, link) }
}

/// A worker that is a process.
fn alone(instance: &Instance<'_>, worker: usize, link: Option<Link<'_>>) -> i32 {
    match work(instance, worker, link) {
        Ok(()) => 0,
        Err(e) => {
            instance.leave_word(worker, &format!("{e:#}"));
            1
        }
    }
}

/// Workers that are threads of one process. The first failure ends them all.
fn together(instance: &Instance<'_>, first: usize, count: usize) -> i32 {
    std::thread::scope(|scope| {
        for worker in first..first + count {
            let body = move || {
                // After a panic the others must not wait for this one.
                let status = catch_unwind(AssertUnwindSafe(|| alone(instance, worker, None))).unwrap_or(101);
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

fn work(instance: &Instance<'_>, process: usize, link: Option<Link<'_>>) -> Result<()> {
    instance.waits.attach(process);
    let class = instance.class(process);
    match (&class.kind, link) {
        (ClassKind::Foreground, _) => foreground::run(instance, process),
        (ClassKind::LogWriter { engine, .. }, _) => log_writer::run(instance, engine),
        (ClassKind::DatabaseWriter { engine, batch, sorted }, _) => {
            db_writer::run(instance, process, engine, *batch, *sorted)
        }
        (ClassKind::Checkpointer { percent }, _) => checkpointer::run(instance, *percent),
        (ClassKind::Scanner { engine, request, direct, work }, _) => {
            scanner::run(instance, process, engine, *request, *direct, *work)
        }
        (ClassKind::Archiver { request, bytes_per_second }, _) => archiver::run(instance, *request, *bytes_per_second),
        (ClassKind::Requests(spec), _) => requests::run(instance, process, spec),
        (ClassKind::Idle { touch, every }, _) => idle::run(instance, process, *touch, *every),
        (ClassKind::Client { request, reply, .. }, Some(link)) => match instance.roles[process].part {
            Part::Client => client::run(instance, process, link, *request, *reply),
            _ => client::serve(instance, process, link, *request, *reply),
        },
        (ClassKind::Sorter { bytes, memory, request }, _) => sorter::run(instance, process, *bytes, *memory, *request),
        (ClassKind::Loader { engine, request, bytes }, _) => loader::run(instance, process, engine, *request, *bytes),
        (ClassKind::Backup { request, bytes_per_second }, _) => {
            backup::run(instance, process, *request, *bytes_per_second)
        }
        (other, _) => bail!("dbsim has no process of kind `{}`", other.word()),
    }
}

/// The error for the end of `process`, or of the threads from that one on.
fn obituary(instance: &Instance<'_>, process: usize, exit: Exit) -> anyhow::Error {
    let class = instance.class(process);
    let mut workers = process..process + if class.threads { class.count } else { 1 };
    let failed = workers.find(|w| instance.word_of(*w).is_some()).unwrap_or(process);
    let role = instance.name(failed);
    match (exit, instance.word_of(failed)) {
        (_, Some(word)) => anyhow::anyhow!("{role} failed: {word}"),
        (Exit::Status(n), None) => anyhow::anyhow!("{role} ended early with status {n}"),
        (Exit::Signal(n), None) => anyhow::anyhow!("{role} was ended by signal {n}"),
    }
}
