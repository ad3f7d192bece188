//! The processes of a run, as the parent sees them.
//!
//! Invariant: whatever happens, no process outlives the crew: one that ends before its time is an error that names it, and
//! dropping the crew kills and reaps the rest.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::PidfdFlags;

use crate::sys::cpu_clock::cpu_time;
use crate::sys::process::{Child, Exit, fork_child};

use super::instance::Instance;
use super::job::{Kind, Share};
use super::page_tables;
use super::{checkpointer, db_writer, foreground, log_writer, scanner};

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
        for process in 0..instance.roles.len() {
            let child = fork_child(|| match work(instance, process) {
                Ok(()) => 0,
                Err(e) => {
                    instance.leave_word(process, &format!("{e:#}"));
                    1
                }
            })
            .with_context(|| format!("Cannot start process {process} of {}", instance.roles.len()))?;
            let end =
                rustix::process::pidfd_open(child.pid(), PidfdFlags::empty()).context("Cannot watch a process")?;
            crew.members.push(Member { process, child, end });
        }
        Ok(crew)
    }

    /// Waits for the next milestone.
    pub fn wait_milestone(&mut self) -> Result<()> {
        loop {
            let (reached, ended) = self.poll(true)?;
            if let Some(member) = ended.first() {
                return Err(self.bury(*member)?);
            }
            if reached {
                self.milestones.read_exact(&mut [0]).context("Cannot hear of a milestone")?;
                return Ok(());
            }
        }
    }

    /// Waits until the members whose class `leaves` have gone home. Anybody else's end is an error, and so is a bad end.
    pub fn wait_gone(&mut self, leaves: impl Fn(&Kind) -> bool) -> Result<()> {
        while self.members.iter().any(|m| leaves(self.kind(m.process))) {
            let (_, ended) = self.poll(false)?;
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

    /// Which members have ended, and whether a milestone has been reached (if that is waited for as well). Sleeps until either.
    fn poll(&self, milestones: bool) -> Result<(bool, Vec<usize>)> {
        let mut fds: Vec<_> = self.members.iter().map(|m| PollFd::new(&m.end, PollFlags::IN)).collect();
        if milestones {
            fds.push(PollFd::from_borrowed_fd(self.milestones.as_fd(), PollFlags::IN));
        }
        loop {
            match rustix::event::poll(&mut fds, None) {
                Ok(_) => break,
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

fn work(instance: &Instance<'_>, process: usize) -> Result<()> {
    let class = instance.class(process);
    match &class.kind {
        Kind::Foreground => foreground::run(instance, process),
        Kind::LogWriter { engine, .. } => log_writer::run(instance, engine),
        Kind::DatabaseWriter { engine, batch, sorted } => db_writer::run(instance, process, engine, *batch, *sorted),
        Kind::Checkpointer { percent } => checkpointer::run(instance, *percent),
        Kind::Scanner { engine, request, work: Share::PerTransactions(every), .. } => {
            scanner::run(instance, process, engine, *request, *every)
        }
        other => bail!("dbsim has no process of kind `{}`", other.word()),
    }
}

fn obituary(instance: &Instance<'_>, process: usize, exit: Exit) -> anyhow::Error {
    let role = instance.name(process);
    match (exit, instance.word_of(process)) {
        (_, Some(word)) => anyhow::anyhow!("{role} failed: {word}"),
        (Exit::Status(n), None) => anyhow::anyhow!("{role} ended with status {n} before its time"),
        (Exit::Signal(n), None) => anyhow::anyhow!("{role} was ended by signal {n}"),
    }
}
