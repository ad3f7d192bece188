//! The engines that a workload's statements can run on.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::catalogue::{self, Catalogue};
use crate::database::Database;
use crate::maria::Place;
use crate::pg::Url;
use crate::server::images::{self, Contents};
use crate::server::private::{PrivateServer, Start};
use crate::server::{ServerError, Settings, Sizing, Transport, cluster, mariadb};
use crate::sqlite::{self, SqliteJournal};
use bigiron_archive::Store;
use bigiron_service::mariadb::MariaDb;
use bigiron_service::postgres::Postgres;
use bigiron_workload::keys::form::words_of;
use bigiron_workload::{Context, ImageContext, Images};

/// The series of PostgreSQL in Debian 12.
const POSTGRES_VERSION: u32 = 15;

/// A kind of engine, as users name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    #[default]
    Postgres,
    MariaDb,
    Sqlite,
}

words_of!(EngineKind: "postgres" => Postgres, "mariadb" => MariaDb, "sqlite" => Sqlite);

/// The engine that runs the statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A private cluster that bigiron creates, starts and stops.
    Postgres {
        /// The major version, e.g. 15.
        version: u32,
        transport: Transport,
        /// Server settings in addition to bigiron's own, `NAME=VALUE`, in the order given.
        settings: Vec<(String, String)>,
    },
    /// A private MariaDB that bigiron creates, starts and stops.
    MariaDb {
        /// The series of its versions, e.g. `10.11`.
        version: String,
        transport: Transport,
        /// As above.
        settings: Vec<(String, String)>,
    },
    /// An existing server: `postgresql://…`.
    Url(String),
    /// In this process.
    Sqlite { journal: SqliteJournal },
}

impl Engine {
    /// The settings that it takes.
    pub fn settings(&self) -> Option<&'static Catalogue> {
        match self {
            Self::Postgres { .. } => Some(&catalogue::POSTGRES),
            Self::MariaDb { .. } => Some(&catalogue::MARIADB),
            // An existing server has its own; those of a job for it are refused by name.
            Self::Url(_) => Some(&catalogue::POSTGRES),
            Self::Sqlite { .. } => None,
        }
    }

    /// Settings that weaken durability, each with what it can lose.
    pub fn weakened(&self) -> Vec<String> {
        let (Self::Postgres { settings, .. } | Self::MariaDb { settings, .. }) = self else { return Vec::new() };
        let Some(catalogue) = self.settings() else { return Vec::new() };
        let weak = |(name, value): &(String, String)| {
            catalogue.weakens(name, value).map(|what| format!("{name}={value} ({what})"))
        };
        settings.iter().filter_map(weak).collect()
    }
}

/// The version of PostgreSQL that a user names; `None`: Debian 12's.
///
/// # Errors
/// What the version can be.
pub fn postgres_version(named: Option<&str>) -> Result<u32, &'static str> {
    match named.map(str::parse) {
        None => Ok(POSTGRES_VERSION),
        Some(Ok(version @ 9..=99)) => Ok(version),
        Some(_) => Err("PostgreSQL's major version, a number from 9 to 99"),
    }
}

/// The series of MariaDB that a user names; `None`: Debian 12's.
///
/// # Errors
/// What the series can be.
pub fn mariadb_series(named: Option<&str>) -> Result<String, &'static str> {
    match named {
        None => Ok(mariadb::SERIES.to_owned()),
        Some(series) if series.contains('.') => Ok(series.to_owned()),
        Some(_) => Err("MariaDB's series, such as 10.11 or 11.8"),
    }
}

/// A database that a trial has to itself.
pub enum PrivateDatabase {
    Postgres(Box<PrivateServer<Postgres, Url>>),
    MariaDb(Box<PrivateServer<MariaDb, Place>>),
    Sqlite { path: PathBuf, journal: SqliteJournal },
}

impl PrivateDatabase {
    /// A database without tables. `file` is SQLite's, below the trial's folder.
    ///
    /// # Errors
    /// If a server is not available, or cannot be started; a URL, which names a database that is not private.
    pub fn open(cx: &Context<'_>, engine: &Engine, sizing: &Sizing, file: &str) -> Result<Self> {
        Ok(match engine {
            Engine::Postgres { version, transport, settings } => {
                let settings = Settings::new(sizing, settings)?;
                let series = version.to_string();
                let how = Start { series: &series, transport: *transport, settings: &settings };
                Self::Postgres(Box::new(PrivateServer::open(cx, &cluster::KIND, how, &|_| Ok(()))?))
            }
            Engine::MariaDb { version, transport, settings } => {
                let settings = mariadb::settings(sizing, settings)?;
                let how = Start { series: version, transport: *transport, settings: &settings };
                Self::MariaDb(Box::new(PrivateServer::open(cx, &mariadb::KIND, how, &|_| Ok(()))?))
            }
            Engine::Url(_) => bail!("This workload has a database of its own"),
            Engine::Sqlite { journal } => Self::Sqlite { path: cx.dir.join(file), journal: *journal },
        })
    }

    /// The images from which [`PrivateDatabase::open`] starts in a guest.
    ///
    /// # Errors
    /// As [`images::of`].
    pub fn images(engine: &Engine, cx: &ImageContext<'_>, room: u64) -> Result<Images> {
        let contents = Contents { what: "no tables", name: "an empty database", data_bytes: 64 << 20, room };
        let store = || Store::open();
        match engine {
            Engine::Postgres { version, .. } => {
                images::of(&cluster::KIND, &version.to_string(), &store()?, cx, contents, &mut |_| Ok(Vec::new()))
            }
            Engine::MariaDb { version, .. } => {
                images::of(&mariadb::KIND, version, &store()?, cx, contents, &mut |_| Ok(Vec::new()))
            }
            Engine::Url(_) | Engine::Sqlite { .. } => Ok(Images::default()),
        }
    }

    /// A connection.
    ///
    /// # Errors
    /// If none can be established.
    pub fn connect(&self) -> Result<Box<dyn Database>> {
        Ok(match self {
            Self::Postgres(server) => Box::new(crate::pg::Connection::connect(server.place())?),
            Self::MariaDb(server) => Box::new(crate::maria::Connection::connect(server.place())?),
            Self::Sqlite { path, journal } => Box::new(sqlite::Engine::open(path, *journal)?),
        })
    }

    /// The number of the server's process; `None` if the engine is in this one.
    pub fn server(&self) -> Option<u32> {
        match self {
            Self::Postgres(server) => Some(server.pid()),
            Self::MariaDb(server) => Some(server.pid()),
            Self::Sqlite { .. } => None,
        }
    }

    /// CPU time of the server's processes so far, in nanoseconds; 0 if the engine is in this one.
    pub fn server_cpu_ns(&self) -> u64 {
        match self {
            Self::Postgres(server) => server.cpu_ns(),
            Self::MariaDb(server) => server.cpu_ns(),
            Self::Sqlite { .. } => 0,
        }
    }

    /// The server's own explanation of its loss.
    pub fn complaint(&self) -> Option<ServerError> {
        match self {
            Self::Postgres(server) => server.complaint(),
            Self::MariaDb(server) => server.complaint(),
            Self::Sqlite { .. } => None,
        }
    }

    /// Recovers after a crash: kills the rest of the server, and starts it again in the same folder.
    ///
    /// # Errors
    /// The server's own message if it does not recover.
    pub fn recover(&mut self) -> Result<(), ServerError> {
        match self {
            Self::Postgres(server) => server.recover(),
            Self::MariaDb(server) => server.recover(),
            // It recovers when it is opened next.
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Stops what was started, in good order.
    ///
    /// # Errors
    /// If a server does not stop properly.
    pub fn close(self) -> Result<(), ServerError> {
        match self {
            Self::Postgres(server) => server.stop(),
            Self::MariaDb(server) => server.stop(),
            Self::Sqlite { .. } => Ok(()),
        }
    }
}
