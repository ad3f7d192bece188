//! The database of a trial: a private cluster, an existing server, or a file.
//!
//! Invariant: every trial begins with the rows of a fresh load, and nothing that a trial started outlives its database.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::config::{Config, Engine, Mode};
use super::driver::DriveTarget;
use super::job::Job;
use super::rendezvous::Rendezvous;
use super::scale::Scale;
use super::{abilities, load, sql, tpcc, trial};
use bigiron_service::error::ServerError;
use bigiron_sql::database::{Database, SqlValue};
use bigiron_sql::engine::PrivateDatabase;
use bigiron_sql::pg::{Connection, PgError, Url};
use bigiron_sql::server::private::{PrivateServer, Start};
use bigiron_sql::server::{Settings, Sizing, mariadb};
use bigiron_sys::this_machine;
use bigiron_workload::{Context, Progress};

pub use bigiron_service::guest_tree::{SERVER, TREE};
pub use bigiron_sql::server::private::DATA;

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
}

enum DatabaseKind {
    Private(PrivateDatabase),
    Foreign(Url),
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
                let settings = Settings::new(&sizing(cx, job, config), settings)?;
                let series = version.to_string();
                let how = Start { series: &series, transport: *transport, listen: None, settings: &settings };
                let load = |at: &_| (tpcc::POSTGRES.load)(at, config.scale, &steps(cx));
                let server = PrivateServer::open(cx, tpcc::POSTGRES.kind, how, &load)?;
                let ballast = ballast(&server.folder().join("data"));
                Ok(Self::private(PrivateDatabase::Postgres(Box::new(server)), ballast))
            }
            Engine::MariaDb { version, transport, settings } => {
                let settings = mariadb::settings(&sizing(cx, job, config), settings)?;
                let how = Start { series: version, transport: *transport, listen: None, settings: &settings };
                let load = |at: &_| (tpcc::MARIADB.load)(at, config.scale, &steps(cx));
                let server = PrivateServer::open(cx, tpcc::MARIADB.kind, how, &load)?;
                let ballast = ballast(&server.folder().join("data"));
                Ok(Self::private(PrivateDatabase::MariaDb(Box::new(server)), ballast))
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
                let of_url = Self::of(DatabaseKind::Foreign(url), PathBuf::new());
                Ok(Self { unavailable, rendezvous, ..of_url })
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
                Ok(Self::private(PrivateDatabase::Sqlite { path, journal: *journal }, ballast))
            }
        }
    }

    fn private(database: PrivateDatabase, ballast: PathBuf) -> Self {
        Self::of(DatabaseKind::Private(database), ballast)
    }

    fn of(kind: DatabaseKind, ballast: PathBuf) -> Self {
        Self { kind, after: i64::MIN, unavailable: Vec::new(), rendezvous: None, ballast }
    }

    /// The private server's own explanation of its loss.
    pub fn complaint(&self) -> Option<ServerError> {
        match &self.kind {
            DatabaseKind::Private(database) => database.complaint(),
            DatabaseKind::Foreign(_) => None,
        }
    }

    /// Recovers a private database after a crash: kills the rest of its server, and starts it again in the same folder. Returns
    /// `false` for a server that bigiron cannot start.
    ///
    /// # Errors
    /// The server's own message if it does not recover.
    pub fn recover(&mut self) -> Result<bool, ServerError> {
        let _ = fs::remove_file(&self.ballast);
        match &mut self.kind {
            DatabaseKind::Private(database) => database.recover().map(|()| true),
            DatabaseKind::Foreign(_) => Ok(false),
        }
    }

    /// The target for the driver.
    pub fn target(&self) -> DriveTarget<'_> {
        match &self.kind {
            DatabaseKind::Private(PrivateDatabase::Postgres(server)) => DriveTarget::Postgres(server.place()),
            DatabaseKind::Private(PrivateDatabase::MariaDb(server)) => {
                DriveTarget::MariaDb { place: server.place(), server: server.pid() }
            }
            DatabaseKind::Private(PrivateDatabase::Sqlite { path, journal }) => {
                DriveTarget::Sqlite { path, journal: *journal }
            }
            DatabaseKind::Foreign(url) => DriveTarget::Postgres(url),
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
        let DatabaseKind::Private(database) = &self.kind else { return None };
        database.server()
    }

    /// Stops everything that was started, in an orderly way.
    ///
    /// # Errors
    /// If a server does not stop properly.
    pub fn close(self) -> Result<()> {
        match self.kind {
            DatabaseKind::Private(database) => Ok(database.close()?),
            DatabaseKind::Foreign(_) => Ok(()),
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

fn sizing(cx: &Context<'_>, job: &Job, config: &Config) -> Sizing {
    Sizing { memory_bytes: cx.memory_bytes, data_bytes: tpcc::data_bytes(job.scale), connections: config.connections }
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
    let jobs = this_machine::cpus();
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
