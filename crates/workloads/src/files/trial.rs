//! A trial: the clients' passes at each number of clients, and the check of what they left with the server.
//!
//! Invariant: the files are checked after the server has stopped, from its own file system.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::metrics::{self, Metered, Point, Seen};
use super::nfs::NfsMount;
use super::options::Settings;
use super::samba::SambaServer;
use super::session::Sessions;
use crate::fs_clients::{self, Files, Pattern, Syncing};
use crate::loadfile::replay::replay;
use crate::loadfile::{Replayed, Settings as Replay};
use bigiron_probe::symbols;
use bigiron_service::error::ServerError;
use bigiron_sys::load::files::file_system;
use bigiron_workload::{Context, Progress, WorkloadResult};

/// A server that runs. Dropping it ends it.
pub enum Running {
    Nfs(NfsMount),
    Samba(SambaServer),
}

impl Running {
    fn facts(&self) -> Result<Vec<(&'static str, String)>> {
        match self {
            Self::Nfs(nfs) => nfs.facts(),
            Self::Samba(samba) => Ok(samba.facts()),
        }
    }

    /// Replays the loadfile with the clients of one point.
    fn replay(&self, settings: &Replay, seed: u64, between: impl FnOnce()) -> Result<Point> {
        let pattern = &Pattern::new(seed, settings.file.longest());
        // If the first pass is measured, there is no time to check it.
        let checked = !settings.warm_up.is_nothing();
        let seen = &Seen::default();
        let replayed = match self {
            Self::Nfs(nfs) => {
                let syncing = Syncing { writes: false, directories: false };
                let service = Files { dir: nfs.mounted_at(), settings, pattern, syncing, checked };
                replay(settings, &Metered { service, processes: &|| 0, seen }, between)
            }
            Self::Samba(server) => {
                let (samba, address, password) = (&server.samba, server.address, &*server.password);
                let service = Sessions { settings, samba, address, password, pattern, checked };
                replay(settings, &Metered { service, processes: &|| server.cpu_ns(), seen }, between)
            }
        };
        Point::new(replayed?, seen)
    }

    /// Why the server cannot go on.
    fn complaint(&mut self) -> Option<ServerError> {
        match self {
            Self::Nfs(_) => None,
            Self::Samba(samba) => samba.complaint(),
        }
    }

    fn stop(self) -> Result<()> {
        match self {
            Self::Nfs(nfs) => nfs.stop(),
            Self::Samba(samba) => Ok(samba.stop()?),
        }
    }
}

/// A trial with its server, which ends with it.
pub struct Trial<'a> {
    pub settings: &'a Settings,
    /// The served directory.
    pub share: PathBuf,
    /// `None` once it has stopped.
    pub server: Option<Running>,
}

impl Trial<'_> {
    fn points(&mut self, cx: &Context<'_>) -> Result<Vec<Point>> {
        let of = 2 * self.settings.points.len() as u32;
        let server = self.server.as_mut().context("The server has stopped")?;
        let mut points = Vec::new();
        for (n, settings) in (0..).step_by(2).zip(&self.settings.points) {
            (cx.progress)(Progress { step: "warm-up", done: n, of });
            let between = || (cx.progress)(Progress { step: "window", done: n + 1, of });
            let point = server.replay(settings, cx.seed, between);
            // A client sees only that its session broke; the server may say why.
            points.push(point.map_err(|error| match server.complaint() {
                Some(complaint) => error.context(complaint),
                None => error,
            })?);
        }
        Ok(points)
    }
}

impl bigiron_workload::Running for Trial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let mut facts = self.server.as_ref().context("The server has stopped")?.facts()?;
        let points = self.points(cx)?;
        // While the server is still visible.
        let programs = symbols::running();
        self.server.take().context("The server has stopped")?.stop()?;
        let last: &Replayed = &points.last().context("Nothing was measured")?.replayed;
        fs_clients::save(&self.share, &last.progress)?;
        let mut outcome = metrics::outcome(self.settings, &points)?;
        facts.push(("file-system", file_system(&self.share)));
        facts.push(("errors", "0".to_owned()));
        outcome.facts.extend(facts.into_iter().map(|(name, value)| (name.to_owned(), value)));
        outcome.programs = programs;
        Ok(outcome)
    }

    fn verify(self: Box<Self>, cx: &Context<'_>) -> Result<()> {
        fs_clients::verify(&self.share, self.settings.last(), cx.seed)
    }
}
