//! Where the database of a trial lives: a private cluster, somebody's server, or a file.
//!
//! Invariant: every trial begins with the rows of a fresh load, and what a trial started is gone when its house is.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::config::{Config, Engine, SqliteJournal, Transport};
use super::database::{Database, Value};
use super::driver::Target;
use super::job::Job;
use super::pg::{Connection, Url};
use super::scale::Scale;
use super::server::{Cluster, Listen, Place, Server, ServerError, Settings, Sizing, Stop, place, root, tpcc};
use super::{load, sql, trial};
use crate::kernel::Store;
use crate::workload::{Context, Progress};

/// The names under which a guest has its images.
pub const TREE: &str = "tree";
pub const DATA: &str = "data";
/// In a foundation, the hash of the server's programs.
pub const SERVER: &str = "server-tree";
/// The cluster's folder in a trial's own.
const FOLDER: &str = "cluster";
/// The file of SQLite on its image, and in a trial's folder.
pub const FILE: &str = "oltp.sqlite";

/// Bytes that are kept for a recovery and the checks after it: segments of the log, files for sorting.
const BALLAST: u64 = 96 << 20;

/// What marks tables as loaded by us: only such are replaced without asking.
const MARK: &str = "loaded by bigiron oltp";

/// A database that is ready for a run.
pub struct House {
    kind: Kind,
    /// No row of runs before has a later date, nor had what a crash has undone.
    pub after: i64,
    /// Room for the recovery of a database whose disk has run full; gone when it is needed.
    ballast: PathBuf,
    /// A short way to the cluster's folder: a socket's path may have 107 bytes.
    _way: Option<Place>,
}

enum Kind {
    Own(Box<Own>),
    Foreign(Url),
    Sqlite { path: PathBuf, journal: SqliteJournal },
}

/// A private cluster and how it was started, to be started so again.
struct Own {
    /// `None` if it could not be started again.
    cluster: Option<Cluster>,
    url: Url,
    server: Server,
    folder: PathBuf,
    settings: Settings,
    listen: Listen,
    transport: Transport,
}

impl House {
    /// Gets a freshly loaded database ready: from the guest's images where there are any, else by loading it.
    ///
    /// # Errors
    /// A server that cannot be had, started or reached; a load that fails; tables of somebody else in the database of a URL.
    pub fn open(cx: &Context<'_>, job: &Job, config: &Config) -> Result<Self> {
        match &job.engine {
            Engine::Postgres { version, transport, settings } => {
                let sizing = Sizing {
                    memory_bytes: cx.memory_bytes,
                    data_bytes: tpcc::data_bytes(job.scale),
                    connections: config.connections,
                };
                let settings = Settings::new(&sizing, settings)?;
                match (cx.images.get(TREE), cx.images.get(DATA)) {
                    (Some(tree), Some(data)) => {
                        let listen = match transport {
                            Transport::Unix => Listen::Socket,
                            Transport::Tcp => Listen::TcpAlone,
                        };
                        let server = Server::in_tree(tree, *version);
                        Self::start(&server, data, &settings, listen, *transport, None)
                    }
                    _ => Self::made(cx, config, *version, *transport, &settings),
                }
            }
            Engine::Url(text) => {
                let url = Url::parse(text)?;
                load_marked(&url, config.scale, &steps(cx))?;
                Ok(Self { kind: Kind::Foreign(url), after: i64::MIN, ballast: PathBuf::new(), _way: None })
            }
            Engine::Sqlite { journal } => {
                let path = match cx.images.get(DATA) {
                    Some(data) => data.join(FILE),
                    None => {
                        let path = cx.dir.join(FILE);
                        load::sqlite(&path, config.scale, true, &steps(cx))?;
                        path
                    }
                };
                let ballast = ballast(&path);
                Ok(Self { kind: Kind::Sqlite { path, journal: *journal }, after: i64::MIN, ballast, _way: None })
            }
        }
    }

    /// A cluster in the trial's own folder.
    fn made(
        cx: &Context<'_>,
        config: &Config,
        version: u32,
        transport: Transport,
        settings: &Settings,
    ) -> Result<Self> {
        let note = |text: &str| eprintln!("bigiron: {text}");
        let root = root::of(&Store::open()?, version, cx.foundation.get(SERVER).map(String::as_str), &note)?;
        let server = Server::of(&root)?;
        let folder = cx.dir.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot make {}", folder.display()))?;
        let (way, short) = place::short_way(&folder)?;
        (cx.progress)(Progress { step: "initdb", done: 0, of: 0 });
        Cluster::init(&server, &short, true)?;
        let listen = match transport {
            Transport::Unix => Listen::Socket,
            Transport::Tcp => Listen::Tcp,
        };
        let house = Self::start(&server, &short, settings, listen, transport, way)?;
        if let Kind::Own(own) = &house.kind {
            // The connection knows that it is gone; the server may know why.
            let told = |e: anyhow::Error| match own.cluster.as_ref().and_then(Cluster::complaint) {
                Some(complaint) => e.context(complaint),
                None => e,
            };
            load_marked(&own.url, config.scale, &steps(cx)).map_err(told)?;
        }
        Ok(house)
    }

    fn start(
        server: &Server,
        folder: &Path,
        settings: &Settings,
        listen: Listen,
        transport: Transport,
        way: Option<Place>,
    ) -> Result<Self> {
        let (cluster, url) = started(server, folder, settings, listen, transport)?;
        let ballast = ballast(&folder.join("data"));
        let (server, folder, settings) = (server.clone(), folder.to_owned(), settings.clone());
        let own = Own { cluster: Some(cluster), url, server, folder, settings, listen, transport };
        Ok(Self { kind: Kind::Own(Box::new(own)), after: i64::MIN, ballast, _way: way })
    }

    /// What a server of our own says itself of why it is lost.
    pub fn complaint(&self) -> Option<ServerError> {
        let Kind::Own(own) = &self.kind else { return None };
        own.cluster.as_ref()?.complaint()
    }

    /// Brings a database of our own back after a crash: whatever is left of its server is killed, and it recovers in the same folder. `false` for
    /// what we cannot start again.
    ///
    /// # Errors
    /// It does not recover, in its own words.
    pub fn recover(&mut self) -> Result<bool, ServerError> {
        let _ = fs::remove_file(&self.ballast);
        let own = match &mut self.kind {
            Kind::Own(own) => own,
            Kind::Foreign(_) => return Ok(false),
            // It recovers when it is opened next.
            Kind::Sqlite { .. } => return Ok(true),
        };
        if let Some(cluster) = own.cluster.take() {
            cluster.kill();
        }
        let (cluster, url) = started(&own.server, &own.folder, &own.settings, own.listen, own.transport)?;
        (own.cluster, own.url) = (Some(cluster), url);
        Ok(true)
    }

    /// What the driver is to drive.
    pub fn target(&self) -> Target<'_> {
        match &self.kind {
            Kind::Own(own) => Target::Postgres(&own.url),
            Kind::Foreign(url) => Target::Postgres(url),
            Kind::Sqlite { path, journal } => Target::Sqlite { path, journal: *journal },
        }
    }

    /// A connection for checks.
    ///
    /// # Errors
    /// There is none to be had.
    pub fn database(&self) -> Result<Box<dyn Database>> {
        trial::database(&self.target())
    }

    /// The postmaster of a server of our own.
    #[cfg(test)]
    pub fn postmaster(&self) -> Option<u32> {
        let Kind::Own(own) = &self.kind else { return None };
        own.cluster.as_ref().map(Cluster::postmaster)
    }

    /// Stops what was started, in good order.
    ///
    /// # Errors
    /// A server that does not stop as it should.
    pub fn close(self) -> Result<()> {
        match self.kind {
            Kind::Own(own) => Ok(own.cluster.map_or(Ok(()), |cluster| cluster.stop(Stop::Fast))?),
            Kind::Foreign(_) | Kind::Sqlite { .. } => Ok(()),
        }
    }
}

/// Lays a file beside `data`; where there is no room for it there is none.
fn ballast(data: &Path) -> PathBuf {
    let path = data.with_file_name("ballast");
    let laid = File::options().create(true).append(true).open(&path).and_then(|file| {
        Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BALLAST)?)
    });
    if laid.is_err() {
        let _ = fs::remove_file(&path);
    }
    path
}

fn started(
    server: &Server,
    folder: &Path,
    settings: &Settings,
    listen: Listen,
    transport: Transport,
) -> Result<(Cluster, Url), ServerError> {
    let cluster = Cluster::start(server, folder, settings, listen)?;
    let url = cluster.url(transport);
    let url = url.ok_or_else(|| ServerError::Cluster("The server does not listen there".to_owned()))?;
    Ok((cluster, url))
}

/// Loads the tables at `url`, in the place of those that an earlier run of ours has left.
///
/// # Errors
/// Tables of these names that are not ours; whatever the load may fail with.
pub fn load_marked(url: &Url, scale: Scale, progress: load::Progress<'_>) -> Result<()> {
    let mut database = Connection::connect(url)?;
    let there =
        database.rows("SELECT to_regclass('item') IS NOT NULL, coalesce(obj_description(to_regclass('item')), '')")?;
    let text = |n: usize| match there.first().and_then(|row| row.get(n)) {
        Some(Value::Text(text)) => text.as_str(),
        _ => "",
    };
    let (is_there, is_ours) = (text(0) == "t", text(1) == MARK);
    ensure!(
        !is_there || is_ours,
        "The database at {url} has a table `item` that bigiron did not load; name an empty database, since every trial loads its tables anew"
    );
    let jobs = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    load::postgres(url, scale, jobs, is_ours, progress)?;
    furnish(&mut database)
}

/// What a loaded database needs besides its rows: the procedures, and the mark that it is ours.
///
/// # Errors
/// What the server refused.
pub fn furnish(database: &mut dyn Database) -> Result<()> {
    sql::install_procedures(database)?;
    database.execute(&format!("COMMENT ON TABLE item IS '{MARK}'"))
}

/// A load's progress as a trial's steps.
fn steps<'a>(cx: &'a Context<'_>) -> impl Fn(&str, u64, u64) + 'a {
    move |step, done, of| (cx.progress)(Progress { step, done: done as u32, of: of as u32 })
}
