//! A warden: forks some of the run's processes, waits for their ends and tells the parent of each.
//!
//! Invariant: the parent hears of every end exactly once, in a record of eight bytes in the pipe that it reads milestones from;
//! pipes keep records so short whole. So a run of ten thousand processes costs the parent one file descriptor for each warden.

use std::io;

use anyhow::{Context as _, Result};

use crate::sys::family::Children;
use crate::sys::net;
use crate::sys::process::Exit;

use super::instance::{Instance, Part, Role};
use super::job::{Kind, Transport};
use super::link::{Ends, Link};
use super::{crew, limits};

/// Processes of one warden at most. Wardens fork side by side, each from a small address space of its own.
pub const PROCESSES: usize = 256;
/// Files that a process may have open besides the data files and journals: streams, pipe, engine, socket, temporary files.
const OTHER_FILES: u64 = 64;

/// What is forked together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    One(usize),
    /// The workers of a class that are threads of one process.
    Threads {
        first: usize,
        count: usize,
    },
    /// A server and its client: connected before they are forked.
    Pair {
        server: usize,
        client: usize,
    },
}

impl Unit {
    /// All processes of a run in the order in which they are forked.
    pub fn all(instance: &Instance<'_>) -> Vec<Self> {
        Self::of(&instance.roles, |role| {
            let class = &instance.job.classes[role.class];
            class.threads.then_some(class.count)
        })
    }

    /// The same; `threads` says of how many threads a role is one.
    fn of(roles: &[Role], threads: impl Fn(&Role) -> Option<usize>) -> Vec<Self> {
        let mut clients = vec![None; roles.len()];
        let mut at = std::collections::BTreeMap::new();
        for (process, role) in roles.iter().enumerate() {
            match role.part {
                Part::Server => {
                    at.insert((role.class, role.number), process);
                }
                Part::Client => {
                    if let Some(server) = at.get(&(role.class, role.number)) {
                        clients[*server] = Some(process);
                    }
                }
                Part::Whole => {}
            }
        }
        let unit = |(process, role): (usize, &Role)| match (role.part, clients[process]) {
            (Part::Server, Some(client)) => Some(Unit::Pair { server: process, client }),
            (Part::Client, _) => None,
            (Part::Whole, _) if threads(role).is_some() => {
                let first = role.number == 0;
                first.then(|| Unit::Threads { first: process, count: threads(role).unwrap_or(1) })
            }
            _ => Some(Unit::One(process)),
        };
        roles.iter().enumerate().filter_map(unit).collect()
    }

    /// The first of its processes.
    pub fn first(self) -> usize {
        match self {
            Unit::One(process) | Unit::Pair { server: process, .. } | Unit::Threads { first: process, .. } => process,
        }
    }

    /// Workers that are threads of the first one's process.
    pub fn other_threads(self) -> std::ops::Range<usize> {
        match self {
            Unit::Threads { first, count } => first + 1..first + count,
            _ => 0..0,
        }
    }
}

/// Runs a warden until all its processes have ended. Returns its exit status.
pub fn run(instance: &Instance<'_>, units: &[Unit], children: &mut Children) -> i32 {
    let mut watch = || -> Result<()> {
        let first = units.first().context("A warden without processes")?.first();
        if let Err(e) = settle(instance, units) {
            return failed(instance, first, &e);
        }
        for unit in units {
            if let Err(e) = fork(instance, *unit, children) {
                return failed(instance, unit.first(), &e);
            }
        }
        while let Some((process, exit)) = children.next_end()? {
            instance.tell_end(process, exit)?;
        }
        Ok(())
    };
    if watch().is_ok() { 0 } else { 1 }
}

/// A process that could not be forked counts as one that has ended.
fn failed(instance: &Instance<'_>, process: usize, error: &anyhow::Error) -> Result<()> {
    instance.leave_word(process, &format!("{error:#}"));
    instance.tell_end(process, Exit::Status(1))
}

/// What all processes of the warden inherit.
fn settle(instance: &Instance<'_>, units: &[Unit]) -> Result<()> {
    let job = instance.job;
    limits::allow_files((job.data.files + job.journal.files) as u64 + OTHER_FILES)?;
    let tcp = |u: &Unit| matches!(instance.class(u.first()).kind, Kind::Client { transport: Transport::Tcp, .. });
    if units.iter().any(tcp) {
        network().context("No loopback network for TCP clients (the transport `socket` does without)")?;
    }
    Ok(())
}

/// A guest has nobody else on its loopback; elsewhere nothing must listen where others could reach it.
fn network() -> io::Result<()> {
    let in_guest = rustix::process::getppid().is_some_and(rustix::process::Pid::is_init);
    if in_guest { net::interface_up("lo") } else { net::own_loopback() }
}

fn fork(instance: &Instance<'_>, unit: Unit, children: &mut Children) -> Result<()> {
    let cannot = |process| format!("Cannot start process {process} of {}", instance.roles.len());
    match unit {
        Unit::One(process) => children.fork(process, || child(instance, process, None)).context(cannot(process)),
        Unit::Threads { first, count } => {
            let body = || {
                instance.enrol(first);
                crew::work_together(instance, first, count);
                0
            };
            children.fork(first, body).context(cannot(first))
        }
        Unit::Pair { server, client } => {
            let Kind::Client { transport, .. } = instance.class(server).kind else {
                anyhow::bail!("Process {server} is no client's server");
            };
            let mailboxes = instance.mailboxes.get(&server);
            let mut ends = Some(Ends::connect(transport, mailboxes).context("Cannot connect a client")?);
            children
                .fork(server, || child(instance, server, ends.take().map(Ends::into_server)))
                .context(cannot(server))?;
            children
                .fork(client, || child(instance, client, ends.take().map(Ends::into_client)))
                .context(cannot(client))
        }
    }
}

/// What a process does from its first moment to its exit status.
fn child(instance: &Instance<'_>, process: usize, link: Option<Link<'_>>) -> i32 {
    instance.enrol(process);
    match crew::work(instance, process, link) {
        Ok(()) => 0,
        Err(e) => {
            instance.leave_word(process, &format!("{e:#}"));
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_forked_with_its_server() {
        let role = |class, number, part| Role { class, number, part };
        let roles = [
            role(0, 0, Part::Whole),
            role(2, 0, Part::Server),
            role(2, 1, Part::Server),
            role(1, 0, Part::Whole),
            role(2, 0, Part::Client),
            role(2, 1, Part::Client),
            role(3, 0, Part::Whole),
            role(3, 1, Part::Whole),
        ];
        assert_eq!(
            Unit::of(&roles, |role| (role.class == 3).then_some(2)),
            [
                Unit::One(0),
                Unit::Pair { server: 1, client: 4 },
                Unit::Pair { server: 2, client: 5 },
                Unit::One(3),
                Unit::Threads { first: 6, count: 2 },
            ]
        );
    }
}
