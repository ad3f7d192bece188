//! The processes of a run, as the parent sees them: through their wardens, which fork them and tell of their ends.
//!
//! Invariant: whatever happens, no process outlives the crew: one that ends before its time is an error that names it, and
//! dropping the crew kills and reaps the rest.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::sys::cpu_clock::cpu_time;
use crate::sys::family::Family;
use crate::sys::process::Exit;

use super::instance::{Instance, Part, RECORD, Tidings};
use super::job::{Kind, Share};
use super::link::Link;
use super::warden::{self, Unit};
use super::{checkpointer, client, db_writer, foreground, idle, limits, log_writer, page_tables, scanner};

/// The processes that have not been seen to end.
pub struct Crew<'a> {
    instance: &'a Instance<'a>,
    wardens: Vec<Family>,
    /// By process: whether it has not been heard to have ended.
    present: Vec<bool>,
    tidings: PipeReader,
    /// Records that have been read, last first.
    heard: Vec<Tidings>,
}

impl<'a> Crew<'a> {
    /// Forks every process of the instance. `tidings` is the reading end of the instance's pipe.
    pub fn start(instance: &'a Instance<'a>, tidings: PipeReader) -> Result<Self> {
        let units = Unit::all(&instance.roles);
        let wardens = units.len().div_ceil(warden::PROCESSES);
        limits::check(instance.roles.len() + wardens)?;
        let present = vec![true; instance.roles.len()];
        let mut crew = Self { instance, wardens: Vec::with_capacity(wardens), present, tidings, heard: Vec::new() };
        for units in units.chunks(units.len().div_ceil(wardens.max(1)).max(1)) {
            let family = Family::found(|children| warden::run(instance, units, children));
            crew.wardens.push(family.context("Cannot start the processes")?);
        }
        Ok(crew)
    }

    /// Waits for the next milestone.
    pub fn wait_milestone(&mut self) -> Result<()> {
        match self.next(None)? {
            Some(Tidings::End(process, exit)) => Err(self.untimely(process, exit)),
            Some(Tidings::Milestone) | None => Ok(()),
        }
    }

    /// Lets so much time pass.
    pub fn wait_time(&mut self, time: Duration) -> Result<()> {
        let deadline = Instant::now() + time;
        loop {
            match self.next(Some(deadline))? {
                Some(Tidings::End(process, exit)) => return Err(self.untimely(process, exit)),
                Some(Tidings::Milestone) => {}
                None => return Ok(()),
            }
        }
    }

    /// Waits until the members whose class `leaves` have gone home. Anybody else's end is an error, and so is a bad end.
    pub fn wait_gone(&mut self, leaves: impl Fn(&Kind) -> bool) -> Result<()> {
        let kind = |process: usize| &self.instance.class(process).kind;
        let mut left = (0..self.present.len()).filter(|p| self.present[*p] && leaves(kind(*p))).count();
        while left > 0 {
            if let Some(Tidings::End(process, exit)) = self.next(None)? {
                if exit != Exit::Status(0) || !leaves(&self.instance.class(process).kind) {
                    return Err(self.untimely(process, exit));
                }
                self.present[process] = false;
                left -= 1;
            }
        }
        if !self.present.contains(&true) {
            for family in self.wardens.drain(..) {
                family.wait().and_then(|exit| exit.success("A warden")).context("Cannot end the processes")?;
            }
        }
        Ok(())
    }

    /// CPU time of all members so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.members().try_fold(Duration::ZERO, |sum, process| {
            let pid = self.instance.pid(process).context("A process has not said its number")?;
            let time = cpu_time(pid)
                .with_context(|| format!("Cannot read the CPU clock of {}", self.instance.name(process)))?;
            Ok(sum + time)
        })
    }

    /// Bytes of page tables of each member: its number and how many.
    pub fn page_table_bytes(&self) -> Result<Vec<(usize, u64)>> {
        let of = |process| {
            let pid = self.instance.pid(process).context("A process has not said its number")?;
            Ok((process, page_tables::of_process(pid.as_raw_nonzero())?))
        };
        self.members().map(of).collect()
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        (0..self.present.len()).filter(|p| self.present[*p])
    }

    /// The next that is to be heard; `None` if the deadline has passed. An end of a warden before its processes' is an error.
    fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Tidings>> {
        loop {
            if let Some(tidings) = self.heard.pop() {
                return Ok(Some(tidings));
            }
            let mut fds = vec![PollFd::from_borrowed_fd(self.tidings.as_fd(), PollFlags::IN)];
            fds.extend(self.wardens.iter().map(|w| PollFd::from_borrowed_fd(w.as_fd(), PollFlags::IN)));
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let left = left.map(Timespec::try_from).transpose().ok().context("Cannot wait so long")?;
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
            // With nothing left to be heard, a warden that has gone has left nobody behind, or died.
            let ended: Vec<_> = (0..self.wardens.len()).rev().filter(|w| ready(&fds[w + 1])).collect();
            for w in ended {
                match self.wardens.swap_remove(w).wait().context("Cannot wait for a warden")? {
                    Exit::Status(0) => {}
                    Exit::Status(n) => bail!("A warden of the processes ended with status {n}"),
                    Exit::Signal(n) => bail!("A warden of the processes was ended by signal {n}"),
                }
            }
        }
    }

    /// Reads what is in the pipe.
    fn hear(&mut self) -> Result<()> {
        let mut bytes = [0; 512 * RECORD];
        let n = self.tidings.read(&mut bytes).context("Cannot hear of the processes")?;
        // Whole records are written, so whole ones are read.
        self.heard.extend(bytes[..n].as_chunks::<RECORD>().0.iter().rev().map(|r| Tidings::decode(*r)));
        Ok(())
    }

    /// The error that the untimely end of a member is.
    fn untimely(&mut self, process: usize, exit: Exit) -> anyhow::Error {
        self.present[process] = false;
        obituary(self.instance, process, exit)
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        // All first: each then needs no more than to be reaped.
        self.wardens.iter().for_each(Family::kill);
    }
}

/// What `process` does, with the connection that it has if it is a client or a server.
pub fn work(instance: &Instance<'_>, process: usize, link: Option<Link<'_>>) -> Result<()> {
    let class = instance.class(process);
    match (&class.kind, link) {
        (Kind::Foreground, _) => foreground::run(instance, process),
        (Kind::LogWriter { engine, .. }, _) => log_writer::run(instance, engine),
        (Kind::DatabaseWriter { engine, batch, sorted }, _) => {
            db_writer::run(instance, process, engine, *batch, *sorted)
        }
        (Kind::Checkpointer { percent }, _) => checkpointer::run(instance, *percent),
        (Kind::Scanner { engine, request, work: Share::PerTransactions(every), .. }, _) => {
            scanner::run(instance, process, engine, *request, *every)
        }
        (Kind::Idle { touch, every }, _) => idle::run(instance, process, *touch, *every),
        (Kind::Client { request, reply, .. }, Some(link)) => match instance.roles[process].part {
            Part::Client => client::run(instance, process, link, *request, *reply),
            _ => client::serve(instance, process, link, *request, *reply),
        },
        (other, _) => bail!("dbsim has no process of kind `{}`", other.word()),
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
