//! `fs-clients`: a file server's work on its file system for many clients.
//!
//! Invariant: the requests of a client depend only on the loadfile, its number and the length; the seed changes the data written,
//! not their amount or place.

mod answer;
mod content;
mod names;
mod server;
mod verify;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

pub(crate) use self::answer::{Expectation, Refused};
pub(crate) use self::content::{Pattern, Writer};
pub(crate) use self::names::of_client;
use self::server::FileServer;
pub(crate) use self::server::Syncing;
pub(crate) use self::verify::{save, verify};
use super::loadfile::replay::{Service, replay};
use super::loadfile::settings::{CLIENTS_OPTION, LENGTH, LOADFILE, REQUESTS_OPTION, SEED, WARM_UP, WORK};
use super::loadfile::{DEFAULT, FileOperation, Loadfile, Settings, metrics};
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_sys::load::files::file_system;
use bigiron_workload::{
    ByClock, Configured, Context, Needs, NightlyRow, OptionDef, OptionReader, Progress, Running, RunsOn, Workload,
    WorkloadResult,
};

/// The workload `fs-clients`.
pub struct FsClients;

const NAME: &str = "fs-clients";

const SYNC: OptionDef = OptionDef {
    name: "sync",
    default: "off",
    allowed: &["off", "on"],
    summary: "Whether every write is synchronous (O_SYNC)",
};
const SYNC_DIR: OptionDef = OptionDef {
    name: "sync-dir",
    default: "off",
    allowed: &["off", "on"],
    summary: "Whether a directory is synced after every change of it",
};
const OPTIONS: &[OptionDef] = &[CLIENTS_OPTION, LOADFILE, REQUESTS_OPTION, SEED, WORK, WARM_UP, LENGTH, SYNC, SYNC_DIR];

impl Workload for FsClients {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "A file server's clients on the file system: each replays a loadfile in its own directory tree"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn embed(&self, name: &str, value: &str, _: RunsOn) -> Result<String, String> {
        if name == LOADFILE.name { super::loadfile::embed(value) } else { Ok(value.to_owned()) }
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const ROWS: &[NightlyRow] = &[NightlyRow::on("ext4"), NightlyRow::on("xfs")];
        ROWS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        let syncing = syncing(options);
        let replays = Settings::parse(&OptionReader { workload: NAME, definitions: OPTIONS, options })?;
        let of = |settings| Replay { settings, syncing };
        Ok(Box::new(ByClock { wall: of(replays.wall), other: of(replays.other) }))
    }
}

/// A replay with its syncing.
struct Replay {
    settings: Settings,
    syncing: Syncing,
}

impl Configured for Replay {
    fn needs(&self) -> Needs {
        needs(&self.settings)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(&self.settings)
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn silence(&self) -> Duration {
        self.settings.silence()
    }

    fn guest_silence(&self) -> Duration {
        self.settings.guest_silence()
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let root = cx.dir.join(super::loadfile::ROOT);
        std::fs::create_dir(&root).with_context(|| format!("Cannot create `{}`", root.display()))?;
        Ok(Box::new(self))
    }
}

impl Running for &Replay {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let settings = &self.settings;
        let of = 2;
        (cx.progress)(Progress { step: "warm-up", done: 0, of });
        let service = Files {
            dir: &cx.dir,
            settings,
            pattern: &Pattern::new(cx.seed, settings.file.longest()),
            syncing: self.syncing,
            // If the first pass is measured, there is no time to check it.
            checked: !settings.warm_up.is_nothing(),
        };
        let replayed = replay(settings, &service, || (cx.progress)(Progress { step: "window", done: 1, of }))?;
        save(&cx.dir, &replayed.progress)?;
        let mut outcome = metrics::outcome(settings, &replayed)?;
        let fact = |name: &str, value: String| (name.to_owned(), value);
        outcome.facts.extend([
            fact("file-system", file_system(&cx.dir)),
            fact("page-cache", "used".to_owned()),
            fact("durability", durability(self.syncing).to_owned()),
            fact("data-bytes", (largest(&settings.file) * settings.clients as u64).to_string()),
        ]);
        Ok(outcome)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> Result<()> {
        verify(&cx.dir, &self.settings, cx.seed)
    }
}

/// What a replay needs whose files are on the trial's file system.
pub(crate) fn needs(settings: &Settings) -> Needs {
    let clients = settings.clients as u64;
    let each = largest(&settings.file);
    Needs {
        // A quarter for the file system's data per file, and 32 MiB for the file system itself.
        storage_bytes: Some(clients * (each + each / 4 + (1 << 20)) + (32 << 20)),
        // One loadfile for all, and each client's own pages.
        memory_bytes: (64 << 20) + settings.file.requests.len() as u64 * 64 + clients * (1 << 20),
        modules: Vec::new(),
    }
}

fn syncing(options: &Options) -> Syncing {
    let on = |def: &OptionDef| options.get(def.name).is_some_and(|v| v == "on");
    Syncing { writes: on(&SYNC), directories: on(&SYNC_DIR) }
}

fn durability(syncing: Syncing) -> &'static str {
    match (syncing.writes, syncing.directories) {
        (false, false) => "fsync where the loadfile says Flush; no other sync",
        (true, false) => "every write with O_SYNC, and fsync where the loadfile says Flush",
        (false, true) => "fsync of a directory after every change, and where the loadfile says Flush",
        (true, true) => {
            "every write with O_SYNC, fsync of a directory after every change, and where the loadfile says Flush"
        }
    }
}

/// Bytes of all files that a client creates, without removals.
pub(crate) fn largest(file: &Loadfile) -> u64 {
    let mut ends = vec![0; file.paths.len()];
    let mut open = std::collections::HashMap::new();
    for r in &file.requests {
        match r.action {
            FileOperation::Create { path, handle, .. } => drop(open.insert(handle, path)),
            FileOperation::Write { handle, offset, size } => {
                if let Some(path) = open.get(&handle) {
                    let end: &mut u64 = &mut ends[*path as usize];
                    *end = (*end).max(offset + u64::from(size));
                }
            }
            _ => {}
        }
    }
    ends.iter().sum()
}

/// File servers for all clients.
pub(crate) struct Files<'a> {
    pub dir: &'a Path,
    pub settings: &'a Settings,
    pub pattern: &'a Pattern,
    pub syncing: Syncing,
    /// Whether every byte that is read in the first pass is checked.
    pub checked: bool,
}

impl<'a> Service for Files<'a> {
    type Server = FileServer<'a>;

    fn open(&self, client: usize) -> Result<FileServer<'a>> {
        let exact = self.settings.name == DEFAULT;
        FileServer::new(self.dir, &self.settings.file, self.pattern, client, self.syncing, (exact, self.checked))
    }
}

#[cfg(test)]
pub(crate) mod tests;
