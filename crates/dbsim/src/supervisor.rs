//! A supervisor: forks some of the run's processes, reaps them and reports each end to the parent.
//!
//! Invariant: the parent learns of every end exactly once, by a record of eight bytes in the pipe that also carries milestones;
//! pipes do not split such short records. So a run of ten thousand processes costs the parent one file descriptor per supervisor.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use bigiron_sys::family::Children;
use bigiron_sys::process::Exit;

use super::instance::{Instance, Part, Role};
use super::job::{ClassKind, Job, Transport};
use super::link::Ends;
use super::worker_group;
use bigiron_workload::limits;

/// Maximum processes of one supervisor. Supervisors fork in parallel, each from its own small address space.
pub const PROCESSES: usize = 256;
/// Files that a process may have open besides the data files and journals: streams, pipe, engine, socket, temporary files.
const OTHER_FILES: u64 = 64;

/// Processes that are forked together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    One(usize),
    /// A server and its client: connected before they are forked.
    Pair {
        server: usize,
        client: usize,
    },
}

impl Unit {
    /// All processes of a run in the order in which they are forked.
    pub fn all(job: &Job, roles: &[Role]) -> Vec<Self> {
        let client = |(process, role): (usize, &Role)| {
            (role.part == Part::Client).then_some(((role.class, role.number), process))
        };
        let clients: BTreeMap<_, _> = roles.iter().enumerate().filter_map(client).collect();
        let unit = |(process, role): (usize, &Role)| match role.part {
            Part::Server => {
                clients.get(&(role.class, role.number)).map(|client| Unit::Pair { server: process, client: *client })
            }
            // Forked with its server.
            Part::Client => None,
            // All threads are in the first one's process.
            Part::Whole => (role.number == 0 || !job.classes[role.class].threads).then_some(Unit::One(process)),
        };
        roles.iter().enumerate().filter_map(unit).collect()
    }

    /// Its processes.
    pub fn processes(self) -> impl Iterator<Item = usize> {
        let second = match self {
            Unit::One(_) => None,
            Unit::Pair { client, .. } => Some(client),
        };
        std::iter::once(self.first()).chain(second)
    }

    /// The first of its processes.
    pub fn first(self) -> usize {
        match self {
            Unit::One(process) | Unit::Pair { server: process, .. } => process,
        }
    }
}

/// Runs a supervisor until all its processes have ended. Returns its exit status.
pub fn run(instance: &Instance<'_>, units: &[Unit], children: &mut Children) -> i32 {
    let mut watch = || -> Result<()> {
        let first = units.first().context("A supervisor without processes")?.first();
        if let Err(e) = prepare_head(instance, units) {
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

/// A process that could not be forked counts as ended.
fn failed(instance: &Instance<'_>, process: usize, error: &anyhow::Error) -> Result<()> {
    instance.leave_word(process, &format!("{error:#}"));
    instance.tell_end(process, Exit::Status(1))
}

/// Sets up everything that all processes of the supervisor inherit.
fn prepare_head(instance: &Instance<'_>, units: &[Unit]) -> Result<()> {
    let job = instance.job;
    limits::allow_files((job.data.files + job.journal.files) as u64 + OTHER_FILES)?;
    let tcp = |u: &Unit| matches!(instance.class(u.first()).kind, ClassKind::Client { transport: Transport::Tcp, .. });
    if units.iter().any(tcp) {
        instance.wire.enter_servers().context("The transport `socket` does without a network")?;
    }
    Ok(())
}

fn fork(instance: &Instance<'_>, unit: Unit, children: &mut Children) -> Result<()> {
    let cannot = |process| format!("Cannot start process {process} of {}", instance.roles.len());
    match unit {
        Unit::One(process) => {
            children.fork(process, || worker_group::run_process(instance, process, None)).context(cannot(process))
        }
        Unit::Pair { server, client } => {
            let ClassKind::Client { transport, .. } = instance.class(server).kind else {
                anyhow::bail!("Process {server} is no client's server");
            };
            let mailboxes = instance.mailboxes.get(&server);
            let mut ends =
                Some(Ends::connect(transport, mailboxes, instance.wire.pair()).context("Cannot connect a client")?);
            children
                .fork(server, || worker_group::run_process(instance, server, ends.take().map(Ends::into_server)))
                .context(cannot(server))?;
            let follow = || if transport == Transport::Tcp { instance.wire.enter_clients() } else { Ok(()) };
            let live = || match follow() {
                Ok(()) => worker_group::run_process(instance, client, ends.take().map(Ends::into_client)),
                Err(e) => {
                    instance.leave_word(client, &format!("{e:#}"));
                    1
                }
            };
            children.fork(client, live).context(cannot(client))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_forked_with_its_server_and_threads_with_the_first() {
        let mut job = Job::parse(&bigiron_workload::testing::options(&crate::Dbsim, []).unwrap()).unwrap();
        job.classes[3].threads = true;
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
            Unit::all(&job, &roles),
            [
                Unit::One(0),
                Unit::Pair { server: 1, client: 4 },
                Unit::Pair { server: 2, client: 5 },
                Unit::One(3),
                Unit::One(6)
            ]
        );
    }
}
