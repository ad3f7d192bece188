//! The server of a trial: a private one from the guest's images or this machine's cache, or the user's.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use bigiron_service::apache::{self, Apache};
use bigiron_service::error::{ServerError, doing};
use bigiron_service::guest_tree::{TREE, programs_here};
use bigiron_service::instance::{DATA, Instance, Server};
use bigiron_service::listen::free_port;
use bigiron_service::nginx::{self, Nginx};
use bigiron_service::programs::Programs;
use bigiron_service::recipe::Recipe;
use bigiron_workload::{Context, Progress, limits};

use crate::document::Documents;
use crate::http::fetch;
use crate::settings::{Job, Settings, WebServer};

/// The port in a guest, which nobody else uses.
const GUEST_PORT: u16 = 8080;
/// Files that a server's process opens besides.
const FILES: u64 = 256;
/// How often a server that broke its connections is asked why.
const PATIENCE: u32 = 40;
/// The server's folder in a trial's own.
const FOLDER: &str = "server";

impl WebServer {
    /// The recipe of a private server.
    pub fn recipe(&self) -> Option<&'static Recipe> {
        match self {
            Self::Nginx { .. } => Some(&nginx::RECIPE),
            Self::Apache { .. } => Some(&apache::RECIPE),
            Self::Url(_) => None,
        }
    }
}

impl Job {
    /// What a private server serves.
    pub fn documents(self, directories: usize) -> Documents {
        match self {
            Self::StaticPage => Documents::static_page(),
            Self::Web99 => Documents::web99(directories),
        }
    }
}

enum Process {
    Nginx(Instance<Nginx>),
    Apache(Instance<Apache>),
    /// The user's, which bigiron neither starts nor sees.
    Existing,
}

/// A server that answers. Dropping it kills a private one.
pub struct TrialServer {
    process: Process,
    pub address: SocketAddrV4,
    /// Its name in requests.
    pub host: String,
    pub documents: Documents,
    /// Name and version, for the record.
    pub version: String,
}

impl TrialServer {
    /// Starts a private server with the job's documents, or fetches the document of an existing one.
    ///
    /// # Errors
    /// A server that is not available or does not start; one that does not answer, or not always the same.
    pub fn open(cx: &Context<'_>, settings: &Settings) -> Result<Self> {
        if let WebServer::Url(url) = &settings.server {
            let (address, host) = (url.address()?, format!("{}:{}", url.host, url.port));
            let body = fetch::body(address, &host, &url.path).with_context(|| format!("Cannot fetch {url}"))?;
            let again = fetch::body(address, &host, &url.path).with_context(|| format!("Cannot fetch {url}"))?;
            if body != again {
                bail!("{url} does not always send the same bytes, so that its responses cannot be checked");
            }
            let documents = Documents::single(&url.path, body);
            return Ok(Self { process: Process::Existing, address, host, documents, version: url.to_string() });
        }
        let recipe = settings.server.recipe().context("A private server has a recipe")?;
        let folder = cx.dir.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        let (programs, port) = match cx.images.get(TREE) {
            Some(tree) => (Programs::in_tree(recipe, tree, &settings.series), GUEST_PORT),
            None => (programs_here(cx, recipe, &settings.series)?, free_port(&folder)?),
        };
        let user = programs.user(&folder).map_err(doing("Cannot find the user of", &folder))?;
        // Both servers have the same folders.
        nginx::init(&programs, &folder)?;
        (cx.progress)(Progress { step: "documents", done: 0, of: 0 });
        let documents = settings.job.documents(settings.directories);
        documents.write(&folder.join(DATA), user)?;
        let Settings { connections, sendfile, access_log, .. } = *settings;
        // Each of the server's processes, which inherit the limit, may have all connections, and documents open for some of them.
        limits::allow_files(u64::from(connections) * 3 / 2 + FILES)?;
        let process = match settings.server {
            WebServer::Apache { mpm, workers } => {
                let workers = workers.unwrap_or_else(|| mpm.workers_for(connections));
                let apache = Apache { port, mpm, workers, connections, sendfile, access_log };
                Process::Apache(Instance::start(apache, &programs, &folder)?)
            }
            WebServer::Nginx { reuseport, workers } => {
                let workers = workers.unwrap_or(cx.cpus);
                let nginx = Nginx { port, workers, connections, sendfile, access_log, reuseport };
                Process::Nginx(Instance::start(nginx, &programs, &folder)?)
            }
            WebServer::Url(_) => Process::Existing,
        };
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let version = programs.version()?;
        Ok(Self { process, address, host: format!("127.0.0.1:{port}"), documents, version })
    }

    /// CPU time of a private server's processes so far, in nanoseconds.
    pub fn cpu_ns(&self) -> Option<u64> {
        match &self.process {
            Process::Nginx(instance) => Some(instance.cpu_ns()),
            Process::Apache(instance) => Some(instance.cpu_ns()),
            Process::Existing => None,
        }
    }

    /// Why a private server cannot go on: how it ended, or what its log says. If `broke`, its connections broke, and it may not have told yet.
    pub fn complaint(&mut self, broke: bool) -> Option<ServerError> {
        let mut tries = if broke { PATIENCE } else { 1 };
        loop {
            let found = match &mut self.process {
                Process::Nginx(instance) => complaint(instance, "nginx"),
                Process::Apache(instance) => complaint(instance, "Apache"),
                Process::Existing => None,
            };
            tries -= 1;
            if found.is_some() || tries == 0 {
                return found;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops a private server in good order.
    ///
    /// # Errors
    /// It had ended before, or it does not stop as it should.
    pub fn close(self) -> Result<(), ServerError> {
        match self.process {
            Process::Nginx(instance) => instance.stop(),
            Process::Apache(instance) => instance.stop(),
            Process::Existing => Ok(()),
        }
    }

    /// The number of a private server's first process.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.process {
            Process::Nginx(instance) => Some(instance.pid()),
            Process::Apache(instance) => Some(instance.pid()),
            Process::Existing => None,
        }
    }
}

fn complaint<S: Server>(instance: &mut Instance<S>, title: &str) -> Option<ServerError> {
    if let Ok(Some(status)) = instance.end() {
        return Some(ServerError::Failed(format!("{title} ended in the run ({status})")));
    }
    let log = fs::read(instance.log()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let fatal = |line: &&str| instance.server().fatal_words().iter().any(|word| line.contains(word));
    let line = log.lines().rfind(fatal)?;
    Some(ServerError::Failed(format!("{title} reported: {}", line.trim())))
}
