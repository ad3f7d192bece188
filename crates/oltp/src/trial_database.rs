//! The database of a trial: a private cluster, an existing server, or a file.
//!
//! Invariant: every trial begins with the rows of a fresh load, and nothing that a trial started outlives its database.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::config::{Config, Engine, Mode, SqliteJournal, Transport};
use super::database::{Database, SqlValue};
use super::driver::DriveTarget;
use super::job::Job;
use super::pg::{Connection, PgError, Url};
use super::rendezvous::Rendezvous;
use super::scale::Scale;
use super::server::{Cluster, Listen, OwnedFolder, Programs, RECIPE, Settings, Sizing, cluster, tpcc};
use super::{abilities, load, sql, trial};
use bigiron_archive::Store;
use bigiron_service::error::ServerError;
use bigiron_service::postgres::{self, SOCKET};
use bigiron_service::root;
use bigiron_service::server_folder::short_path;
use bigiron_workload::{Context, Progress};

/// The names of the images in a guest.
pub const TREE: &str = "tree";
pub const DATA: &str = "data";
/// In a foundation, the hash of the server's programs.
pub const SERVER: &str = "server-tree";
/// The cluster's folder in a trial's own.
const FOLDER: &str = "cluster";
/// The file of SQLite on its image, and in a trial's folder.
pub const FILE: &str = "oltp.sqlite";

/// Bytes reserved for a recovery and the checks after it: segments of the log, files for sorting.
const BALLAST: u64 = 96 << 20;

/// Marks tables as loaded by bigiron: only such tables are replaced.
const MARK: &str = "loaded by bigiron oltp";

/// A database ready for a run.
pub struct TrialDatabase {
    kind: DatabaseKind,
    /// No row of earlier runs has a later date, nor had any that a crash has undone.
    pub after: i64,
    /// Features that an existing server lacks, and the run does without.
    pub unavailable: Vec<String>,
    /// The meeting point of the processes of a shared run.
    pub rendezvous: Option<Rendezvous>,
    /// Reserved space for the recovery of a database whose disk is full; freed when needed.
    ballast: PathBuf,
    /// A short path to the cluster's folder: a socket's path is limited to 107 bytes.
    _way: Option<OwnedFolder>,
}

enum DatabaseKind {
    Own(Box<PrivateCluster>),
    Foreign(Url),
    Sqlite { path: PathBuf, journal: SqliteJournal },
}

/// A private cluster and its start parameters, for restarting it.
struct PrivateCluster {
    /// `None` if it could not be started again.
    cluster: Option<Cluster>,
    url: Url,
    server: Programs,
    folder: PathBuf,
    settings: Settings,
    listen: Listen,
    transport: Transport,
}

impl TrialDatabase {
    /// Prepares a freshly loaded database: from the guest's images if there are any, else by loading it.
    ///
    /// # Errors
    /// If a server is not available, or cannot be started or reached; if a load fails; if the database of a URL has foreign
    /// tables.
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
                        let server = Programs::in_tree(&RECIPE, tree, &version.to_string());
                        Self::start(&server, data, &settings, listen, *transport, None)
                    }
                    _ => Self::made(cx, config, *version, *transport, &settings),
                }
            }
            Engine::Url(text) => {
                let url = Url::parse(text)?;
                let procedures = match config.mode {
                    Mode::Procedures => Procedures::Needed,
                    Mode::Pipelined | Mode::RoundTrips => Procedures::Left,
                };
                let rendezvous =
                    (config.part.1 > 1).then(|| Rendezvous::open(&url, config.part, cx.seed)).transpose()?;
                let mut unavailable = match &rendezvous {
                    Some(rendezvous) if config.part.0 > 1 => {
                        (cx.progress)(Progress { step: "wait for part 1", done: 0, of: 0 });
                        rendezvous.await_load().map(|()| Vec::new())
                    }
                    _ => load_marked(&url, config.scale, procedures, &steps(cx)),
                }?;
                unavailable.extend(abilities::missing(&mut Connection::connect(&url)?));
                let kind = DatabaseKind::Foreign(url);
                Ok(Self { kind, after: i64::MIN, unavailable, rendezvous, ballast: PathBuf::new(), _way: None })
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
                Ok(Self {
                    kind: DatabaseKind::Sqlite { path, journal: *journal },
                    after: i64::MIN,
                    unavailable: Vec::new(),
                    rendezvous: None,
                    ballast,
                    _way: None,
                })
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
        let planned = cx.foundation.get(SERVER).map(String::as_str);
        let root = root::of(&Store::open()?, &RECIPE, &version.to_string(), planned, &note)?;
        let server = Programs::of(&RECIPE, &root)?;
        let folder = cx.dir.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        let (way, short) = short_path(&folder, SOCKET)?;
        (cx.progress)(Progress { step: "initdb", done: 0, of: 0 });
        postgres::init(&server, &short, true)?;
        let listen = match transport {
            Transport::Unix => Listen::Socket,
            Transport::Tcp => Listen::Tcp,
        };
        let trial_database = Self::start(&server, &short, settings, listen, transport, way)?;
        if let DatabaseKind::Own(own) = &trial_database.kind {
            // The connection only knows that it broke; the server may know why.
            let told = |e: anyhow::Error| match own.cluster.as_ref().and_then(postgres::complaint) {
                Some(complaint) => e.context(complaint),
                None => e,
            };
            load_marked(&own.url, config.scale, Procedures::Needed, &steps(cx)).map_err(told)?;
        }
        Ok(trial_database)
    }

    fn start(
        server: &Programs,
        folder: &Path,
        settings: &Settings,
        listen: Listen,
        transport: Transport,
        way: Option<OwnedFolder>,
    ) -> Result<Self> {
        let (cluster, url) = started(server, folder, settings, listen, transport)?;
        let ballast = ballast(&folder.join("data"));
        let (server, folder, settings) = (server.clone(), folder.to_owned(), settings.clone());
        let own = PrivateCluster { cluster: Some(cluster), url, server, folder, settings, listen, transport };
        Ok(Self {
            kind: DatabaseKind::Own(Box::new(own)),
            after: i64::MIN,
            unavailable: Vec::new(),
            rendezvous: None,
            ballast,
            _way: way,
        })
    }

    /// The private server's own explanation of its loss.
    pub fn complaint(&self) -> Option<ServerError> {
        let DatabaseKind::Own(own) = &self.kind else { return None };
        postgres::complaint(own.cluster.as_ref()?)
    }

    /// Recovers a private database after a crash: kills the rest of its server, and starts it again in the same folder. Returns
    /// `false` for a server that bigiron cannot start.
    ///
    /// # Errors
    /// The server's own message if it does not recover.
    pub fn recover(&mut self) -> Result<bool, ServerError> {
        let _ = fs::remove_file(&self.ballast);
        let own = match &mut self.kind {
            DatabaseKind::Own(own) => own,
            DatabaseKind::Foreign(_) => return Ok(false),
            // It recovers when it is opened next.
            DatabaseKind::Sqlite { .. } => return Ok(true),
        };
        if let Some(cluster) = own.cluster.take() {
            cluster.kill();
        }
        let (cluster, url) = started(&own.server, &own.folder, &own.settings, own.listen, own.transport)?;
        (own.cluster, own.url) = (Some(cluster), url);
        Ok(true)
    }

    /// The target for the driver.
    pub fn target(&self) -> DriveTarget<'_> {
        match &self.kind {
            DatabaseKind::Own(own) => DriveTarget::Postgres(&own.url),
            DatabaseKind::Foreign(url) => DriveTarget::Postgres(url),
            DatabaseKind::Sqlite { path, journal } => DriveTarget::Sqlite { path, journal: *journal },
        }
    }

    /// A connection for checks.
    ///
    /// # Errors
    /// If none can be established.
    pub fn database(&self) -> Result<Box<dyn Database>> {
        trial::database(&self.target())
    }

    /// The postmaster of a private server.
    #[cfg(test)]
    pub fn postmaster(&self) -> Option<u32> {
        let DatabaseKind::Own(own) = &self.kind else { return None };
        own.cluster.as_ref().map(Cluster::pid)
    }

    /// Stops everything that was started, in an orderly way.
    ///
    /// # Errors
    /// If a server does not stop properly.
    pub fn close(self) -> Result<()> {
        match self.kind {
            DatabaseKind::Own(own) => Ok(own.cluster.map_or(Ok(()), |cluster| cluster.stop())?),
            DatabaseKind::Foreign(_) | DatabaseKind::Sqlite { .. } => Ok(()),
        }
    }
}

/// Creates the reserve file beside `data`; without room there is none.
fn ballast(data: &Path) -> PathBuf {
    let path = data.with_file_name("ballast");
    let laid = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|file| Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BALLAST)?));
    if laid.is_err() {
        let _ = fs::remove_file(&path);
    }
    path
}

fn started(
    server: &Programs,
    folder: &Path,
    settings: &Settings,
    listen: Listen,
    transport: Transport,
) -> Result<(Cluster, Url), ServerError> {
    let cluster = cluster::start(server, folder, settings, listen)?;
    let url = cluster::url(&cluster, transport);
    let url = url.ok_or_else(|| ServerError::Failed("The server does not listen on that transport".to_owned()))?;
    Ok((cluster, url))
}

/// The use of the stored procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procedures {
    /// The run calls them.
    Needed,
    /// Installed if the server has their language.
    Wanted,
    Left,
}

const WITHOUT_PROCEDURES: &str = "without them use the mode `pipelined` or `round-trips`: `--set mode=pipelined`";

/// Loads the tables at `url`, replacing those of an earlier bigiron run. Returns the features that the server lacks and the load
/// did without.
///
/// # Errors
/// If foreign tables have these names; if the load fails; if required procedures are missing.
pub fn load_marked(
    url: &Url,
    scale: Scale,
    procedures: Procedures,
    progress: load::Progress<'_>,
) -> Result<Vec<String>> {
    let mut database = Connection::connect(url)?;
    let there = database.rows(
        "SELECT count(*), coalesce(max(obj_description(c.oid, 'pg_class')), '') FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'item' AND n.nspname = current_schema()",
    )?;
    let (is_there, is_ours) = match there.first().map(Vec::as_slice) {
        Some([SqlValue::Integer(count), SqlValue::Text(mark)]) => (*count > 0, mark == MARK),
        other => anyhow::bail!("The server does not report whether there is a table `item`: {other:?}"),
    };
    ensure!(
        !is_there || is_ours,
        "The database at {url} has a table `item` that bigiron did not load; name an empty database, because every trial loads its tables again"
    );
    if procedures == Procedures::Needed {
        // Checked before hours of loading. A server that cannot answer this refuses the procedures themselves.
        let denied =
            "SELECT count(*) FROM pg_language WHERE lanname = 'plpgsql' AND NOT has_language_privilege(oid, 'USAGE')";
        ensure!(
            !database.rows(denied).is_ok_and(|rows| rows == [[SqlValue::Integer(1)]]),
            "The server does not allow its user to create procedures in PL/pgSQL; {WITHOUT_PROCEDURES}"
        );
    }
    let jobs = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let mut unavailable = load::postgres(url, scale, jobs, is_ours, progress)?.unavailable;
    let installed = if procedures == Procedures::Left { Ok(()) } else { sql::install_procedures(&mut database) };
    match installed {
        Err(e)
            if procedures == Procedures::Wanted
                && e.downcast_ref::<PgError>().is_some_and(|e| !e.is_disconnected()) =>
        {
            unavailable.push(format!("stored procedures in PL/pgSQL ({})", e.root_cause()));
        }
        Err(e) => {
            return Err(e.context(format!("No stored procedures; {WITHOUT_PROCEDURES}")));
        }
        Ok(()) => {}
    }
    if let Err(e) = database.run(&format!("COMMENT ON TABLE item IS '{MARK}'")) {
        if e.is_disconnected() {
            return Err(e.into());
        }
        unavailable
            .push(format!("COMMENT ON TABLE, so the next run will not recognize these tables as bigiron's ({e})"));
    }
    Ok(unavailable)
}

/// Reports a load's progress as a trial's steps.
fn steps<'a>(cx: &'a Context<'_>) -> impl Fn(&str, u64, u64) + 'a {
    move |step, done, of| (cx.progress)(Progress { step, done: done as u32, of: of as u32 })
}
