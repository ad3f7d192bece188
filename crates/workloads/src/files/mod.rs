//! `files`: clients of a file server, each replaying a loadfile through the server's own protocol.
//!
//! Invariant: the requests of a client are those of `fs-clients` with the same loadfile and length. After the clients have ended and the server has
//! stopped, its files are compared with the loadfile, byte by byte.

mod metrics;
mod nfs;
mod options;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use self::metrics::{Metered, Point, Seen};
use self::nfs::NfsMount;
use self::options::{NAME, OPTIONS, Server, Settings};
use crate::fs_clients::{self, Files, Pattern, Syncing};
use crate::loadfile;
use crate::loadfile::replay::replay;
use crate::loadfile::settings::LOADFILE;
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_sys::load::files::file_system;
use bigiron_workload::length::Length;
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, NightlyRow, OptionDef, Progress, Running, Workload,
    WorkloadResult,
};

/// What the server needs besides the files' own space: its pages, and those of the protocol.
const SERVER_MEMORY: u64 = 96 << 20;
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
        "A file server's clients with the server: each replays a loadfile through NFS"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn embed(&self, name: &str, value: &str) -> Result<String, String> {
        if name == LOADFILE.name { loadfile::embed(value) } else { Ok(value.to_owned()) }
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const QUICK: &[(&str, &str)] = &[("requests", "1000"), ("length", "1")];
        const ROWS: &[NightlyRow] = &[NightlyRow { label: "nfs", quick: QUICK, ..NightlyRow::PLAIN }];
        ROWS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Settings::parse(options)?))
    }
}

impl Configured for Settings {
    fn needs(&self) -> Needs {
        let of_clients = fs_clients::needs(self.last());
        let modules = match &self.server {
            Server::Nfs(nfs) => nfs.modules(),
        };
        Needs { memory_bytes: of_clients.memory_bytes + SERVER_MEMORY, modules, ..of_clients }
    }

    fn images(&self, cx: &ImageContext<'_>) -> Result<Images> {
        match &self.server {
            Server::Nfs(_) if cx.filesystem.is_none() => bail!(
                "The NFS server is part of the kernel, and bigiron does not start one on this machine: run `files` in guests, without `--on local`"
            ),
            Server::Nfs(_) => Ok(Images::default()),
        }
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(self)
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let share = cx.dir.join(SHARE);
        let root = share.join(loadfile::ROOT);
        fs::create_dir_all(&root).with_context(|| format!("Cannot create `{}`", root.display()))?;
        let service = match &self.server {
            Server::Nfs(nfs) => {
                let at = cx.dir.join(MOUNT);
                fs::create_dir(&at).with_context(|| format!("Cannot create `{}`", at.display()))?;
                NfsMount::start(*nfs, &share, &at)?
            }
        };
        Ok(Box::new(Trial { settings: self, share, service: Some(service) }))
    }
}

/// A trial with its server, which ends with it.
struct Trial<'a> {
    settings: &'a Settings,
    share: PathBuf,
    /// `None` once it has stopped.
    service: Option<NfsMount>,
}

impl Running for Trial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let of = 2 * self.settings.points.len() as u32;
        let service = self.service.as_ref().context("The server has stopped")?;
        let mut facts = service.facts()?;
        let mut points = Vec::new();
        for (n, settings) in (0..).map(|n| 2 * n).zip(&self.settings.points) {
            (cx.progress)(Progress { step: "warm-up", done: n, of });
            let seen = Seen::default();
            let service = Metered {
                service: Files {
                    dir: &cx.dir.join(MOUNT),
                    settings,
                    pattern: &Pattern::new(cx.seed, settings.file.longest()),
                    syncing: Syncing { writes: false, directories: false },
                    // If the first pass is measured, there is no time to check it.
                    checked: matches!(settings.warm_up, Length::Passes(1..)),
                },
                processes: &|| 0,
                seen: &seen,
            };
            let replayed = replay(settings, &service, || (cx.progress)(Progress { step: "window", done: n + 1, of }))?;
            points.push(Point::new(replayed, &seen)?);
        }
        self.service.take().context("The server has stopped")?.stop()?;
        let last = &points.last().context("Nothing was measured")?.replayed;
        fs_clients::save(&self.share, &last.progress)?;
        let mut outcome = metrics::outcome(self.settings, &points)?;
        facts.push(("file-system", file_system(&self.share)));
        facts.push(("errors", "0".to_owned()));
        outcome.facts.extend(facts.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(outcome)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> Result<()> {
        fs_clients::verify(&self.share, self.settings.last(), cx.seed)
    }
}
