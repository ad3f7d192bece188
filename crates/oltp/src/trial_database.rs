//! Where the database of a trial lives: a private cluster, somebody's server, or a file.
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
use super::server::{Cluster, Listen, OwnFolder, Programs, RECIPE, Settings, Sizing, cluster, tpcc};
use super::{abilities, load, sql, trial};
use bigiron_archive::Store;
use bigiron_service::error::ServerError;
use bigiron_service::own_folder::short_path;
use bigiron_service::postgres::{self, SOCKET};
use bigiron_service::root;
use bigiron_workload::{Context, Progress};

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
pub struct TrialDatabase {
    kind: DatabaseKind,
    /// No row of runs before has a later date, nor had what a crash has undone.
    pub after: i64,
    /// What somebody's server does not have, and the run does without.
    pub unavailable: Vec<String>,
    /// Where the processes of a shared run meet.
    pub rendezvous: Option<Rendezvous>,
    /// Room for the recovery of a database whose disk has run full; gone when it is needed.
    ballast: PathBuf,
    /// A short way to the cluster's folder: a socket's path may have 107 bytes.
    _way: Option<OwnFolder>,
}

enum DatabaseKind {
    Own(Box<PrivateCluster>),
    Foreign(Url),
    Sqlite { path: PathBuf, journal: SqliteJournal },
}

/// A private cluster and how it was started, to be started so again.
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
    /// Gets a freshly loaded database ready: from the guest's images where there are any, else by loading it.
    ///
    /// # Errors
    /// A server that is not available, or cannot be started or reached; a load that fails; tables of somebody else in the database of a URL.
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
                        let server = Programs::in_tree(&RECIPE, tree, *version);
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
        let root = root::of(&Store::open()?, &RECIPE, version, cx.foundation.get(SERVER).map(String::as_str), &note)?;
        let server = Programs::of(&RECIPE, &root)?;
        let folder = cx.dir.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot make {}", folder.display()))?;
        let (way, short) = short_path(&folder, SOCKET)?;
        (cx.progress)(Progress { step: "initdb", done: 0, of: 0 });
        postgres::init(&server, &short, true)?;
        let listen = match transport {
            Transport::Unix => Listen::Socket,
            Transport::Tcp => Listen::Tcp,
        };
        let trial_database = Self::start(&server, &short, settings, listen, transport, way)?;
        if let DatabaseKind::Own(own) = &trial_database.kind {
            // The connection knows that it is gone; the server may know why.
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
        way: Option<OwnFolder>,
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

    /// What a server of our own says itself of why it is lost.
    pub fn complaint(&self) -> Option<ServerError> {
        let DatabaseKind::Own(own) = &self.kind else { return None };
        postgres::complaint(own.cluster.as_ref()?)
    }

    /// Brings a database of our own back after a crash: whatever is left of its server is killed, and it recovers in the same folder. `false` for
    /// what we cannot start again.
    ///
    /// # Errors
    /// It does not recover, in its own words.
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

    /// What the driver is to drive.
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
    /// There is none to be had.
    pub fn database(&self) -> Result<Box<dyn Database>> {
        trial::database(&self.target())
    }

    /// The postmaster of a server of our own.
    #[cfg(test)]
    pub fn postmaster(&self) -> Option<u32> {
        let DatabaseKind::Own(own) = &self.kind else { return None };
        own.cluster.as_ref().map(Cluster::pid)
    }

    /// Stops what was started, in good order.
    ///
    /// # Errors
    /// A server that does not stop as it should.
    pub fn close(self) -> Result<()> {
        match self.kind {
            DatabaseKind::Own(own) => Ok(own.cluster.map_or(Ok(()), |cluster| cluster.stop())?),
            DatabaseKind::Foreign(_) | DatabaseKind::Sqlite { .. } => Ok(()),
        }
    }
}

/// Lays a file beside `data`; where there is no room for it there is none.
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
    let url = url.ok_or_else(|| ServerError::Failed("The server does not listen there".to_owned()))?;
    Ok((cluster, url))
}

/// What becomes of the stored procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procedures {
    /// The run calls them.
    Needed,
    /// Installed where the server has their language.
    Wanted,
    Left,
}

const WITHOUT_PROCEDURES: &str = "without them the mode is `pipelined` or `round-trips`: `--set mode=pipelined`";

/// Loads the tables at `url`, in the place of those that an earlier run of ours has left. What the server does not have, and the load has done
/// without.
///
/// # Errors
/// Tables of these names that are not ours; whatever the load may fail with; procedures that are needed and missing.
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
        other => anyhow::bail!("The server does not say whether there is a table `item`: {other:?}"),
    };
    ensure!(
        !is_there || is_ours,
        "The database at {url} has a table `item` that bigiron did not load; name an empty database, since every trial loads its tables anew"
    );
    if procedures == Procedures::Needed {
        // Before hours of loading. A server that cannot answer this refuses the procedures themselves.
        let denied =
            "SELECT count(*) FROM pg_language WHERE lanname = 'plpgsql' AND NOT has_language_privilege(oid, 'USAGE')";
        ensure!(
            !database.rows(denied).is_ok_and(|rows| rows == [[SqlValue::Integer(1)]]),
            "The server does not let its user make procedures in PL/pgSQL; {WITHOUT_PROCEDURES}"
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
            .push(format!("COMMENT ON TABLE, so that the next run will not know these tables as bigiron's ({e})"));
    }
    Ok(unavailable)
}

/// A load's progress as a trial's steps.
fn steps<'a>(cx: &'a Context<'_>) -> impl Fn(&str, u64, u64) + 'a {
    move |step, done, of| (cx.progress)(Progress { step, done: done as u32, of: of as u32 })
}
