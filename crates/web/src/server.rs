//! The server of a trial: a private one from the guest's images or this machine's cache, or the user's.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context as _, Error, Result, bail};

use bigiron_service::apache::{Mpm, shared};
use bigiron_service::error::{ServerError, doing};
use bigiron_service::guest_tree::{TREE, programs_here};
use bigiron_service::httpd::{self, Httpd, Kind};
use bigiron_service::instance::{DATA, Instance, patiently};
use bigiron_service::listen::free_port;
use bigiron_service::programs::Programs;
use bigiron_service::recipe::Recipe;
use bigiron_sys::network::{Side, Wiring};
use bigiron_workload::{Context, Progress, limits};

use crate::document::Documents;
use crate::driver::Tally;
use crate::encryption::{self, Encryptor, Terms, Trusted};
use crate::http::fetch;
use crate::page::gateway::{self, PageServer};
use crate::settings::{Job, Settings, WebServer};
use crate::url::Url;

/// The port in a guest, which nobody else uses.
const GUEST_PORT: u16 = 8080;
/// Bytes of a small and a large document.
const SMALL: usize = 1 << 10;
const LARGE: usize = 1 << 20;
/// The server's folder in a trial's own.
const FOLDER: &str = "server";

impl WebServer {
    /// The recipe of a private server.
    pub fn recipe(&self) -> Option<&'static Recipe> {
        match self {
            Self::Private { kind, .. } => Some(kind.recipe()),
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
            Self::CgiDb => gateway::documents(),
            Self::C10k | Self::Handshakes => Documents::random("/small", SMALL),
            Self::Bulk => Documents::random("/large", LARGE),
        }
    }
}

/// A server that answers. Dropping it kills a private one.
pub struct TrialServer {
    /// `None` for the user's, which bigiron neither starts nor sees.
    process: Option<Instance<Httpd>>,
    /// What is behind dynamic pages.
    pages: Option<PageServer>,
    pub address: SocketAddrV4,
    /// The network between it and the driver.
    pub wiring: Wiring,
    /// What begins its connections, if they are encrypted.
    pub encryptor: Option<Box<dyn Encryptor>>,
    /// Its name in requests.
    pub host: String,
    pub documents: Documents,
    /// The version of TLS, if its connections are encrypted.
    pub tls_version: Option<&'static str>,
    /// Name and version, for the record.
    pub version: String,
}

impl TrialServer {
    /// Starts a private server with the job's documents, or fetches the document of an existing one.
    ///
    /// # Errors
    /// A server that is not available or does not start; one that does not answer, or not always the same.
    pub fn open(cx: &Context<'_>, settings: &Settings) -> Result<Self> {
        let (kind, workers) = match &settings.server {
            WebServer::Private { kind, workers } => (*kind, *workers),
            WebServer::Url(url) => return Self::existing(url, settings),
        };
        let recipe = kind.recipe();
        // Without devices, the loopback of the guest or of this machine.
        let wiring = if settings.over_devices { Wiring::of(true, cx.network)? } else { Wiring::Own };
        // What is started from now on belongs to this network.
        wiring.enter_servers()?;
        let folder = cx.dir.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        let (programs, port) = match cx.images.get(TREE) {
            Some(tree) => (Programs::in_tree(recipe, tree, &settings.series), GUEST_PORT),
            None => (programs_here(cx, recipe, &settings.series)?, free_port(&folder)?),
        };
        let user = programs.user(&folder).map_err(doing("Cannot find the user of", &folder))?;
        httpd::init(&programs, &folder)?;
        (cx.progress)(Progress { step: "documents", done: 0, of: 0 });
        let documents = settings.job.documents(settings.directories);
        // Those of `cgi-db` are made from a database.
        if settings.job != Job::CgiDb {
            documents.write(&folder.join(DATA), user)?;
        }
        let gateway = settings.gateway();
        let pages =
            gateway.map(|gateway| PageServer::start(cx, &programs, &folder, (kind, gateway), user)).transpose()?;
        let Settings { connections, sendfile, access_log, .. } = *settings;
        // The server's processes inherit the limit.
        limits::allow_files(settings.files())?;
        let host = wiring.pair().map_or(Ipv4Addr::LOCALHOST, |_| Side::Servers.address());
        let address = SocketAddrV4::new(host, port);
        let version = settings.tls_version.unwrap_or_default();
        let secret = settings.is_encrypted().then(|| encryption::of_server(version, &host.to_string()));
        let tls = secret.transpose().map_err(Error::msg)?;
        let encryptor = tls.as_ref().map(|tls| {
            let trusted = Trusted::Own(tls.certificate.clone());
            encryption::encryptor(Terms { version: Some(version), trusted, host: host.to_string() })
        });
        let encryptor = encryptor.transpose().map_err(Error::msg)?;
        // A process of Apache closes idle connections when all of its threads are busy, and one may be for a while after its response has arrived.
        let (threads, least) =
            (settings.process_threads(), if settings.job == Job::C10k { 8 * settings.busy } else { 1 });
        let workers = workers.unwrap_or_else(|| match kind {
            Kind::Nginx { .. } => cx.cpus,
            Kind::Apache { mpm } => mpm.workers_for(connections).max(least),
        });
        let workers = match kind {
            Kind::Apache { mpm: Mpm::Event | Mpm::Worker } => {
                let (processes, threads) = shared(workers, threads);
                processes * threads
            }
            _ => workers,
        };
        let httpd = Httpd { kind, address, workers, threads, connections, sendfile, access_log, tls, gateway };
        let process = Some(Instance::start(httpd, &programs, &folder)?);
        let (host, tls_version) = (format!("{host}:{port}"), encryptor.is_some().then(|| version.name()));
        let version = programs.version()?;
        Ok(Self { process, pages, address, wiring, encryptor, host, documents, tls_version, version })
    }

    /// The user's server, with the document that it sends.
    ///
    /// # Errors
    /// It does not answer, or not always with the same document.
    pub fn existing(url: &Url, settings: &Settings) -> Result<Self> {
        let (address, host) = (url.address()?, format!("{}:{}", url.host, url.port));
        let encryptor = url.is_secure.then(|| {
            let trusted = settings.authorities.clone().map_or(Trusted::System, Trusted::File);
            encryption::encryptor(Terms { version: settings.tls_version, trusted, host: url.host.clone() })
        });
        let encryptor = encryptor.transpose().map_err(Error::msg)?;
        let fetch = || {
            let session = encryptor.as_deref().map(Encryptor::begin).transpose().map_err(Error::msg)?;
            fetch::document(address, session, &host, &url.path)
        };
        let fetched = fetch().with_context(|| format!("Cannot fetch {url}"))?;
        let again = fetch().with_context(|| format!("Cannot fetch {url}"))?;
        if fetched.body != again.body {
            bail!("{url} does not always send the same bytes, so that its responses cannot be checked");
        }
        let documents = Documents::single(&url.path, fetched.body);
        Ok(Self {
            process: None,
            pages: None,
            address,
            wiring: Wiring::Own,
            encryptor,
            host,
            documents,
            // Servers behind one address may use different versions.
            tls_version: fetched.tls_version.filter(|version| again.tls_version == Some(version)),
            version: url.to_string(),
        })
    }

    /// CPU time of a private server's processes so far, in nanoseconds.
    pub fn cpu_ns(&self) -> Option<u64> {
        let pages = self.pages.as_ref().map_or(0, PageServer::cpu_ns);
        self.process.as_ref().map(|instance| instance.cpu_ns() + pages)
    }

    /// Memory of a private server's processes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.process.as_ref().map_or(0, |instance| instance.usage().memory_bytes)
    }

    /// Workers of a private server.
    pub fn workers(&self) -> u32 {
        self.process.as_ref().map_or(0, |instance| instance.server().workers)
    }

    /// Why a private server cannot go on: how it ended, or what its log says. If `broke`, its connections broke, and it may not have told yet.
    pub fn complaint(&mut self, broke: bool) -> Option<ServerError> {
        let instance = self.process.as_mut()?;
        let title = instance.server().kind.recipe().title;
        let mut ask = || {
            let of_pages = self.pages.as_mut().and_then(PageServer::complaint).map(ServerError::Failed);
            of_pages.or_else(|| instance.complaint(title))
        };
        if broke { patiently(ask) } else { ask() }
    }

    /// Checks what dynamic pages have left behind after clients have received those of `tally`.
    ///
    /// # Errors
    /// As [`PageServer::check`].
    pub fn check(&self, tally: &Tally) -> Result<()> {
        self.pages.as_ref().map_or(Ok(()), |pages| pages.check(tally))
    }

    /// Stops a private server in good order.
    ///
    /// # Errors
    /// It had ended before, or it does not stop as it should.
    pub fn close(self) -> Result<(), ServerError> {
        self.process.map_or(Ok(()), Instance::stop)
    }

    /// The number of a private server's first process.
    #[cfg(test)]
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Instance::pid)
    }
}
