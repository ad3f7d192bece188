//! `files`: clients of a file server, each replaying a loadfile through the server's own protocol: NFS or SMB.
//!
//! Invariant: the requests of a client are those of `fs-clients` with the same loadfile and length. After the clients have ended and the server has
//! stopped, its files are compared with the loadfile, byte by byte.

mod metrics;
mod nfs;
mod options;
mod samba;
mod session;
mod trial;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::nfs::NfsMount;
use self::options::{NAME, OPTIONS, Server, Settings};
use self::samba::{Samba, SambaServer};
use self::trial::{Running as RunningServer, Trial};
use crate::fs_clients;
use crate::loadfile;
use crate::loadfile::settings::LOADFILE;
use bigiron_archive::Store;
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_service::guest_tree;
use bigiron_service::samba::RECIPE;
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, NightlyRow, OptionDef, Running, RunsOn, Workload, limits,
};

/// What the server needs besides the files' own space: its pages, and those of the protocol.
const SERVER_MEMORY: u64 = 96 << 20;
/// Samba's process of a client, and the space of its databases.
const OF_SESSION: u64 = 16 << 20;
const DATABASES: u64 = 32 << 20;
/// Processes of Samba without clients: its first, that of notifications, and the one that cleans up.
const OF_SAMBA: usize = 3;
/// The served directory, and the clients' view of it, in a trial's own.
const SHARE: &str = "share";
const MOUNT: &str = "mount";

/// The workload `files`.
pub struct FileService;

impl Workload for FileService {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "A file server with its clients, each of which replays a loadfile over NFS or SMB"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn embed(&self, name: &str, value: &str, _: RunsOn) -> Result<String, String> {
        if name == LOADFILE.name { loadfile::embed(value) } else { Ok(value.to_owned()) }
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const QUICK: &[(&str, &str)] = &[("clients", "2"), ("requests", "400"), ("length", "1")];
        const NFS: NightlyRow = NightlyRow { label: "nfs", quick: QUICK, ..NightlyRow::PLAIN };
        const ROWS: &[NightlyRow] = &[NFS, NightlyRow { label: "samba", options: &[("server", "samba")], ..NFS }];
        ROWS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Settings::parse(options)?))
    }
}

impl Configured for Settings {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        match (&self.server, on) {
            (Server::Nfs(_), RunsOn::Here | RunsOn::Elsewhere) => Err(
                "the NFS server is part of the kernel, and bigiron starts it only in guests; use `files.server=samba`, or omit `--on`"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    fn needs(&self) -> Needs {
        let of_clients = fs_clients::needs(self.last());
        let memory_bytes = of_clients.memory_bytes + SERVER_MEMORY;
        match &self.server {
            Server::Nfs(nfs) => Needs { memory_bytes, modules: nfs.modules(), ..of_clients },
            Server::Samba(_) => Needs {
                storage_bytes: of_clients.storage_bytes.map(|bytes| bytes + DATABASES),
                memory_bytes: memory_bytes + self.last().clients as u64 * OF_SESSION,
                ..of_clients
            },
        }
    }

    fn images(&self, cx: &ImageContext<'_>) -> Result<Images> {
        match &self.server {
            Server::Nfs(_) => Ok(Images::default()),
            Server::Samba(samba) => {
                let (store, mut images) = (Store::open()?, Images::default());
                let root = guest_tree::find(&store, &RECIPE, &samba.series, cx, &mut images)?;
                if cx.filesystem.is_some() {
                    images.images.push(guest_tree::image(&store, &RECIPE, &root, cx)?);
                }
                Ok(images)
            }
        }
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(self)
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn silence(&self) -> Duration {
        self.last().silence()
    }

    fn guest_silence(&self) -> Duration {
        self.last().guest_silence()
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let create = |dir: &std::path::Path| {
            fs::create_dir_all(dir).with_context(|| format!("Cannot create `{}`", dir.display()))
        };
        let (server, share) = match &self.server {
            Server::Nfs(nfs) => {
                let (share, at) = (cx.dir.join(SHARE), cx.dir.join(MOUNT));
                create(&share.join(loadfile::ROOT))?;
                create(&at)?;
                (RunningServer::Nfs(NfsMount::start(*nfs, &share, &at)?), share)
            }
            Server::Samba(samba) => {
                limits::check(processes(samba, self.last().clients))?;
                let server = SambaServer::start(samba, cx)?;
                let share = server.share();
                (RunningServer::Samba(server), share)
            }
        };
        Ok(Box::new(Trial { settings: self, share, server: Some(server) }))
    }
}

/// Processes and threads of a trial with Samba: each client, Samba's process for it, and the thread of that which reads and writes. A further channel of a
/// session has a process until that has handed it to the session's.
fn processes(samba: &Samba, clients: usize) -> usize {
    clients * (2 + usize::from(samba.asynchronous) + usize::from(samba.channels > 1)) + OF_SAMBA
}

#[cfg(test)]
mod tests;
