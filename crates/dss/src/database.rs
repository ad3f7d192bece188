//! The loaded database of a trial, and connections to it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::answer::{self, Answer};
use crate::datafusion::{self, DataFusion, Limits};
use crate::settings::{DssEngine, Settings};
use crate::{images, load};
use bigiron_service::error::ServerError;
use bigiron_service::postgres::Postgres;
use bigiron_sql::database::{Database, SqlValue};
use bigiron_sql::engine::Engine;
use bigiron_sql::pg::{Connection, Url};
use bigiron_sql::server::private::{DATA, PrivateServer, Start};
use bigiron_sql::server::{self, Sizing, cluster};
use bigiron_sql::sqlite::{self, SqliteJournal};
use bigiron_workload::{Context, Progress};

/// SQLite's database file.
pub const FILE: &str = "dss.sqlite";
/// SQLite's own page cache; the kernel's page cache holds the other pages.
const SQLITE_CACHE: u64 = 64 << 20;
/// The folder of temporary files in a trial's folder.
const TEMPORARY: &str = "temporary";

/// A database with the eight tables.
pub enum TrialDatabase {
    DataFusion { program: PathBuf, data: PathBuf, limits: Limits },
    Postgres(Box<PrivateServer<Postgres, Url>>),
    Url(Box<Url>),
    Sqlite(PathBuf),
}

impl TrialDatabase {
    /// Opens the tables in the guest's images, or those made for trials on this machine.
    ///
    /// # Errors
    /// If a server or program is not available or does not start; if a load or a copy fails.
    pub fn open(cx: &Context<'_>, settings: &Settings) -> Result<Self> {
        match &settings.engine {
            DssEngine::DataFusion { .. } => {
                let (program, data) = match (cx.images.get(images::PROGRAM_IMAGE), cx.images.get(DATA)) {
                    (Some(image), Some(data)) => (image.join(datafusion::PROGRAM), data.clone()),
                    _ => (datafusion::program()?, copied(cx, settings)?),
                };
                let limits = Limits {
                    memory: settings.memory,
                    threads: settings.threads.unwrap_or(cx.cpus).div_ceil(settings.streams),
                    temporary: cx.dir.join(TEMPORARY),
                };
                Ok(Self::DataFusion { program, data, limits })
            }
            DssEngine::Sql(Engine::Sqlite { .. }) => {
                let data = match cx.images.get(DATA) {
                    Some(data) => data.clone(),
                    None => copied(cx, settings)?,
                };
                Ok(Self::Sqlite(data.join(FILE)))
            }
            DssEngine::Sql(Engine::Postgres { version, transport, settings: users }) => {
                let all = server_settings(cx.cpus, settings, users);
                let server_settings = server::Settings::new(&sizing(cx, settings), &all)?;
                let series = version.to_string();
                let how = Start { series: &series, transport: *transport, listen: None, settings: &server_settings };
                let load = |url: &Url| load_postgres(cx, settings, url);
                Ok(Self::Postgres(Box::new(PrivateServer::open(cx, &cluster::KIND, how, &load)?)))
            }
            DssEngine::Sql(Engine::Url(text)) => Ok(Self::Url(Box::new(Url::parse(text)?))),
            DssEngine::Sql(Engine::MariaDb { .. }) => anyhow::bail!("`dss` does not support MariaDB"),
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If it cannot be established; if DataFusion does not start.
    pub fn connect(&self) -> Result<Client> {
        Ok(match self {
            Self::DataFusion { program, data, limits } => {
                Client::DataFusion(Box::new(DataFusion::start(program, data, limits)?))
            }
            Self::Postgres(server) => Client::Sql(Box::new(Connection::connect(server.place())?)),
            Self::Url(url) => Client::Sql(Box::new(Connection::connect(url)?)),
            Self::Sqlite(path) => {
                let options = sqlite::Options { cache_bytes: SQLITE_CACHE, ..sqlite::Options::new(SqliteJournal::Wal) };
                Client::Sql(Box::new(sqlite::Engine::open_with(path, &options)?))
            }
        })
    }

    /// CPU time of a private server's processes so far, in nanoseconds; 0 for other databases.
    pub fn server_cpu_ns(&self) -> u64 {
        match self {
            Self::Postgres(server) => server.cpu_ns(),
            _ => 0,
        }
    }

    /// The private server's own report of why it ended.
    pub fn complaint(&self) -> Option<ServerError> {
        match self {
            Self::Postgres(server) => server.complaint(),
            _ => None,
        }
    }

    /// Name and version of the engine, for the record.
    ///
    /// # Errors
    /// If the engine does not report it.
    pub fn version(&self) -> Result<String> {
        match self.connect()? {
            Client::DataFusion(process) => Ok(process.version.clone()),
            Client::Sql(mut connection) => {
                let (sql, title) = match self {
                    Self::Sqlite(_) => ("SELECT sqlite_version()", "SQLite"),
                    _ => ("SHOW server_version", "PostgreSQL"),
                };
                match connection.rows(sql)?.first().and_then(|row| row.first()) {
                    Some(SqlValue::Text(version)) => Ok(format!("{title} {version}")),
                    other => anyhow::bail!("{title} reports no version: {other:?}"),
                }
            }
        }
    }

    /// Writes the data to disk and drops them from the page cache, so that every run starts cold. An existing server keeps its cache.
    ///
    /// # Errors
    /// If a file cannot be written or dropped.
    pub fn make_cold(&self) -> Result<()> {
        match self {
            Self::DataFusion { data, .. } => drop_files(data),
            Self::Sqlite(path) => drop_files(path.parent().context("A file is in a folder")?),
            Self::Postgres(server) => drop_files(&server.folder().join("data/base")),
            Self::Url(_) => Ok(()),
        }
    }

    /// Stops a private server cleanly.
    ///
    /// # Errors
    /// If it does not stop cleanly.
    pub fn close(self) -> Result<(), ServerError> {
        match self {
            Self::Postgres(server) => server.stop(),
            _ => Ok(()),
        }
    }
}

/// A connection of one stream.
pub enum Client {
    DataFusion(Box<DataFusion>),
    Sql(Box<dyn Database>),
}

impl Client {
    /// Runs a query.
    ///
    /// # Errors
    /// The engine's message.
    pub fn query(&mut self, sql: &str) -> Result<Answer> {
        match self {
            Self::DataFusion(process) => process.query(sql),
            Self::Sql(connection) => answer::run(&mut **connection, sql),
        }
    }

    /// Runs a statement that changes data.
    ///
    /// # Errors
    /// The engine's message.
    pub fn execute(&mut self, sql: &str) -> Result<()> {
        match self {
            Self::DataFusion(_) => anyhow::bail!("Parquet files cannot be changed"),
            Self::Sql(connection) => connection.execute(sql),
        }
    }

    /// CPU time of the engine's own process, if each connection has one.
    pub fn process_cpu_ns(&self) -> u64 {
        match self {
            Self::DataFusion(process) => process.cpu_ns(),
            Self::Sql(_) => 0,
        }
    }

    /// Bytes written to temporary files so far: by this connection with DataFusion, by the whole database with PostgreSQL.
    ///
    /// # Errors
    /// If the server does not report it.
    pub fn temporary_bytes(&mut self) -> Result<u64> {
        let connection = match self {
            Self::DataFusion(process) => return Ok(process.spilled),
            Self::Sql(connection) => connection,
        };
        // A session sends its statistics when a transaction ends; the next transaction sees them.
        connection.execute("SELECT pg_stat_force_next_flush()").or_else(|_| connection.execute("SELECT 1"))?;
        let sql = "SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()";
        match connection.rows(sql)?.first().and_then(|row| row.first()) {
            Some(SqlValue::Integer(bytes)) => Ok(bytes.unsigned_abs()),
            other => anyhow::bail!("The server reports no temporary bytes: {other:?}"),
        }
    }
}

/// The settings of a private server: bigiron's for these queries, overridden by the user's.
fn server_settings(cpus: u32, settings: &Settings, users: &[(String, String)]) -> Vec<(String, String)> {
    let threads = settings.threads.unwrap_or(cpus);
    // With one thread, the leader does all the work.
    let workers = if threads == 1 { 0 } else { threads };
    let all = (workers * settings.streams).max(8);
    let own = [
        ("work_mem", format!("{}kB", settings.memory >> 10)),
        // By default, a hash table gets twice the memory of a sort.
        ("hash_mem_multiplier", "1".to_owned()),
        ("max_parallel_workers_per_gather", workers.to_string()),
        ("max_parallel_workers", all.to_string()),
        ("max_worker_processes", all.to_string()),
    ];
    own.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(users.iter().cloned()).collect()
}

fn sizing(cx: &Context<'_>, settings: &Settings) -> Sizing {
    Sizing {
        memory_bytes: cx.memory_bytes,
        data_bytes: settings.data_bytes(),
        // The streams, the refresh client, and one to read statistics.
        connections: settings.streams + 2,
    }
}

/// Loads the tables into the server of a trial on this machine.
fn load_postgres(cx: &Context<'_>, settings: &Settings, url: &Url) -> Result<()> {
    let progress = |step: &str, done: u64, of: u64| {
        (cx.progress)(Progress { step, done: (done >> 10) as u32, of: (of >> 10) as u32 });
    };
    load::postgres(url, settings.scale, cx.cpus, &progress).map(drop)
}

/// Copies the files made for trials on this machine to the file system under test.
fn copied(cx: &Context<'_>, settings: &Settings) -> Result<PathBuf> {
    let kept = images::files(settings, &|text| eprintln!("bigiron: {text}"))?;
    let to = cx.dir.join("data");
    fs::create_dir_all(&to).with_context(|| format!("Cannot create {}", to.display()))?;
    for entry in fs::read_dir(&kept.folder).with_context(|| format!("Cannot read {}", kept.folder.display()))? {
        let from = entry?.path();
        let name = from.file_name().context("A file has a name")?;
        (cx.progress)(Progress { step: "copy", done: 0, of: 0 });
        fs::copy(&from, to.join(name)).with_context(|| format!("Cannot copy {}", from.display()))?;
    }
    Ok(to)
}

/// Writes all files below `folder` to disk and drops them from the page cache.
fn drop_files(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("Cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            drop_files(&path)?;
            continue;
        }
        // A running server may have removed the file.
        let Ok(file) = File::open(&path) else { continue };
        file.sync_data().with_context(|| format!("Cannot write {}", path.display()))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
            .with_context(|| format!("Cannot drop {} from the page cache", path.display()))?;
    }
    Ok(())
}
