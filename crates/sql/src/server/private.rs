//! A private server of a trial: from the guest's images, or made and loaded now; and started again after a crash.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::settings::{Settings, Sizing};
use super::{Listen, OwnedFolder, Programs, Transport};
use crate::database::Database;
use bigiron_service::error::ServerError;
use bigiron_service::guest_tree::{self, TREE};
use bigiron_service::instance::{Instance, Server};
use bigiron_service::recipe::Recipe;
use bigiron_service::server_folder::short_path;
use bigiron_workload::{Context, Progress};

/// The name of the image with the loaded database in a guest.
pub const DATA: &str = "data";
/// The server's folder in a trial's own.
const FOLDER: &str = "cluster";

/// Starts a server in its folder.
type StartServer<S> = fn(&Programs, &Path, &Settings, Listen) -> Result<Instance<S>, ServerError>;

/// A kind of server that keeps the tables. `P` says how to connect.
pub struct Kind<S: Server, P> {
    pub recipe: &'static Recipe,
    /// The longest path of its socket, relative to its folder.
    pub socket: &'static str,
    /// Creates its data in an empty folder; the last word tells whether they must survive a crash of the machine.
    pub init: fn(&Programs, &Path, bool) -> Result<(), ServerError>,
    pub start: StartServer<S>,
    /// How to connect; `None` if it does not listen on that transport.
    pub place: fn(&Instance<S>, Transport) -> Result<Option<P>, ServerError>,
    /// A connection for checks.
    pub database: fn(&P) -> Result<Box<dyn Database>>,
    /// The settings for a load that is discarded after any error, and synced as a whole at the end.
    pub loading: fn(&Sizing) -> Settings,
    /// SQL: what a loaded server does before it stops, so that no trial begins with it; and the bytes of the database.
    pub settle: &'static str,
    pub size: &'static str,
    /// The server's own explanation of its end.
    pub complaint: fn(&Instance<S>) -> Option<ServerError>,
}

/// How a trial's server is started.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The series of its versions.
    pub series: &'a str,
    pub transport: Transport,
    /// Where it listens, if not where its transport says.
    pub listen: Option<Listen>,
    pub settings: &'a Settings,
}

/// A running server and its start parameters, for starting it again.
pub struct PrivateServer<S: Server + 'static, P: 'static> {
    kind: &'static Kind<S, P>,
    /// `None` if it could not be started again.
    instance: Option<Instance<S>>,
    place: P,
    programs: Programs,
    folder: PathBuf,
    settings: Settings,
    listen: Listen,
    transport: Transport,
    /// A short path to the server's folder: a socket's path is limited to 107 bytes.
    _way: Option<OwnedFolder>,
}

impl<S: Server, P> PrivateServer<S, P> {
    /// The server of a trial, with freshly loaded tables: those of the guest's images, or those that `load` makes now.
    ///
    /// # Errors
    /// If it is not available, or cannot be started; if the load fails.
    pub fn open(
        cx: &Context<'_>,
        kind: &'static Kind<S, P>,
        how: Start<'_>,
        load: &dyn Fn(&P) -> Result<()>,
    ) -> Result<Self> {
        if let (Some(tree), Some(data)) = (cx.images.get(TREE), cx.images.get(DATA)) {
            let listen = match how.transport {
                Transport::Unix => Listen::Socket,
                Transport::Tcp => Listen::TcpAlone,
            };
            let programs = Programs::in_tree(kind.recipe, tree, how.series);
            return Self::start(kind, programs, data.clone(), how, listen, None);
        }
        let programs = guest_tree::programs_here(cx, kind.recipe, how.series)?;
        let folder = cx.dir.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        let (way, short) = short_path(&folder, kind.socket)?;
        (cx.progress)(Progress { step: "initdb", done: 0, of: 0 });
        (kind.init)(&programs, &short, true)?;
        let listen = how.listen.unwrap_or(match how.transport {
            Transport::Unix => Listen::Socket,
            Transport::Tcp => Listen::Tcp,
        });
        let server = Self::start(kind, programs, short, how, listen, way)?;
        // The connection only knows that it broke; the server may know why.
        load(&server.place).map_err(|e| match server.complaint() {
            Some(complaint) => e.context(complaint),
            None => e,
        })?;
        Ok(server)
    }

    fn start(
        kind: &'static Kind<S, P>,
        programs: Programs,
        folder: PathBuf,
        how: Start<'_>,
        listen: Listen,
        way: Option<OwnedFolder>,
    ) -> Result<Self> {
        let (instance, place) = started(kind, &programs, &folder, how.settings, listen, how.transport)?;
        let (settings, transport) = (how.settings.clone(), how.transport);
        Ok(Self { kind, instance: Some(instance), place, programs, folder, settings, listen, transport, _way: way })
    }

    /// How to connect.
    pub fn place(&self) -> &P {
        &self.place
    }

    /// The server's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The number of its process; 0 if it does not run.
    pub fn pid(&self) -> u32 {
        self.instance.as_ref().map_or(0, Instance::pid)
    }

    /// CPU time of all its processes so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.instance.as_ref().map_or(0, Instance::cpu_ns)
    }

    /// How the server, named `title`, ended, if it did.
    pub fn end(&mut self, title: &str) -> Option<ServerError> {
        let status = self.instance.as_mut()?.end().ok()??;
        Some(ServerError::Failed(format!("{title} ended in the run ({status})")))
    }

    /// The server's own explanation of its loss.
    pub fn complaint(&self) -> Option<ServerError> {
        (self.kind.complaint)(self.instance.as_ref()?)
    }

    /// Kills what is left of the server, and starts it again in the same folder.
    ///
    /// # Errors
    /// The server's own message if it does not recover.
    pub fn recover(&mut self) -> Result<(), ServerError> {
        if let Some(instance) = self.instance.take() {
            instance.kill();
        }
        let (instance, place) =
            started(self.kind, &self.programs, &self.folder, &self.settings, self.listen, self.transport)?;
        (self.instance, self.place) = (Some(instance), place);
        Ok(())
    }

    /// Stops the server in good order.
    ///
    /// # Errors
    /// It does not stop properly.
    pub fn stop(self) -> Result<(), ServerError> {
        self.instance.map_or(Ok(()), Instance::stop)
    }
}

fn started<S: Server, P>(
    kind: &Kind<S, P>,
    programs: &Programs,
    folder: &Path,
    settings: &Settings,
    listen: Listen,
    transport: Transport,
) -> Result<(Instance<S>, P), ServerError> {
    let instance = (kind.start)(programs, folder, settings, listen)?;
    let place = (kind.place)(&instance, transport)?;
    let place = place.ok_or_else(|| ServerError::Failed("The server does not listen on that transport".to_owned()))?;
    Ok((instance, place))
}
