//! The database engines that can run a workload's statements.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::catalogue::{self, Catalogue};
use crate::database::Database;
use crate::maria::Place;
use crate::pg::Url;
use crate::server::images::{self, Contents};
use crate::server::private::{PrivateServer, Start};
use crate::server::{Listen, ServerError, Settings, Sizing, Transport, cluster, mariadb};
use crate::sqlite::{self, SqliteJournal};
use bigiron_archive::Store;
use bigiron_service::mariadb::MariaDb;
use bigiron_service::postgres::Postgres;
use bigiron_workload::keys::form::words_of;
use bigiron_workload::{Context, ImageContext, Images};

/// The series of PostgreSQL in Debian 12.
pub const POSTGRES_VERSION: u32 = 15;

/// A kind of engine, as named in options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// A private PostgreSQL cluster that bigiron creates, starts and stops.
    Postgres {
        /// The major version, e.g. 15.
        version: u32,
        transport: Transport,
        /// Server settings in addition to bigiron's own, `NAME=VALUE`, in the order given.
        settings: Vec<(String, String)>,
    },
    /// A private MariaDB server that bigiron creates, starts and stops.
    MariaDb {
        /// The release series, e.g. `10.11`.
        version: String,
        transport: Transport,
        /// Server settings, as for PostgreSQL.
        settings: Vec<(String, String)>,
    },
    /// An existing server: `postgresql://…`.
    Url(String),
    /// SQLite, embedded in this process.
    Sqlite { journal: SqliteJournal },
}

impl Engine {
    /// The catalogue of its server's settings; `None` if the engine has no server.
    pub fn settings(&self) -> Option<&'static Catalogue> {
        match self {
            Self::Postgres { .. } => Some(&catalogue::POSTGRES),
            Self::MariaDb { .. } => Some(&catalogue::MARIADB),
            // An existing server keeps its own settings; a job that sets any for it is refused by name.
            Self::Url(_) => Some(&catalogue::POSTGRES),
            Self::Sqlite { .. } => None,
        }
    }

    /// What it is, for a record's facts.
    pub fn in_words(&self) -> String {
        match self {
            Self::Postgres { version, .. } => format!("a private PostgreSQL {version}"),
            Self::MariaDb { version, .. } => format!("a private MariaDB {version}"),
            Self::Url(_) => "an existing server".to_owned(),
            Self::Sqlite { journal: SqliteJournal::Wal } => {
                "SQLite in the driver, write-ahead log, one writer at a time".to_owned()
            }
            Self::Sqlite { journal: SqliteJournal::Rollback } => {
                "SQLite in the driver, rollback journal, one writer at a time".to_owned()
            }
        }
    }

    /// The chosen settings that weaken durability, each with what can be lost.
    pub fn weakened(&self) -> Vec<String> {
        let (Self::Postgres { settings, .. } | Self::MariaDb { settings, .. }) = self else { return Vec::new() };
        let Some(catalogue) = self.settings() else { return Vec::new() };
        let weak = |(name, value): &(String, String)| {
            catalogue.weakens(name, value).map(|what| format!("{name}={value} ({what})"))
        };
        settings.iter().filter_map(weak).collect()
    }
}

/// The major version of PostgreSQL from the user's text; without one, Debian 12's.
///
/// # Errors
/// Describes the valid versions.
pub fn postgres_version(named: Option<&str>) -> Result<u32, &'static str> {
    match named.map(str::parse) {
        None => Ok(POSTGRES_VERSION),
        Some(Ok(version @ 9..=99)) => Ok(version),
        Some(_) => Err("PostgreSQL's major version, a number from 9 to 99"),
    }
}

/// The series of MariaDB from the user's text; without one, Debian 12's.
///
/// # Errors
/// Describes the valid series.
pub fn mariadb_series(named: Option<&str>) -> Result<String, &'static str> {
    match named {
        None => Ok(mariadb::SERIES.to_owned()),
        Some(series) if is_series(series) => Ok(series.to_owned()),
        Some(_) => Err("MariaDB's series, such as 10.11 or 11.8"),
    }
}

/// Two numbers with a dot between them.
fn is_series(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// A database that belongs to one trial.
pub enum PrivateDatabase {
    Postgres(Box<PrivateServer<Postgres, Url>>),
    MariaDb(Box<PrivateServer<MariaDb, Place>>),
    Sqlite { path: PathBuf, journal: SqliteJournal },
}

impl PrivateDatabase {
    /// Opens a database without tables. `file` is the name of SQLite's file in the trial's folder.
    ///
    /// # Errors
    /// If a server is not available or does not start, or if `engine` is [`Engine::Url`], which is not private.
    pub fn open(cx: &Context<'_>, engine: &Engine, sizing: &Sizing, file: &str) -> Result<Self> {
        Self::open_at(cx, engine, sizing, file, None)
    }

    /// As [`PrivateDatabase::open`]; a server listens there, if not where its transport says.
    ///
    /// # Errors
    /// As [`PrivateDatabase::open`].
    pub fn open_at(
        cx: &Context<'_>,
        engine: &Engine,
        sizing: &Sizing,
        file: &str,
        listen: Option<Listen>,
    ) -> Result<Self> {
        Ok(match engine {
            Engine::Postgres { version, transport, settings } => {
                let settings = Settings::new(sizing, settings)?;
                let series = version.to_string();
                let how = Start { series: &series, transport: *transport, listen, settings: &settings };
                Self::Postgres(Box::new(PrivateServer::open(cx, &cluster::KIND, how, &|_| Ok(()))?))
            }
            Engine::MariaDb { version, transport, settings } => {
                let settings = mariadb::settings(sizing, settings)?;
                let how = Start { series: version, transport: *transport, listen, settings: &settings };
                Self::MariaDb(Box::new(PrivateServer::open(cx, &mariadb::KIND, how, &|_| Ok(()))?))
            }
            Engine::Url(_) => bail!("This workload cannot use an existing server"),
            Engine::Sqlite { journal } => Self::Sqlite { path: cx.dir.join(file), journal: *journal },
        })
    }

    /// The images from which [`PrivateDatabase::open`] starts the server in a guest; `room` is the free space in them for growth, in bytes.
    ///
    /// # Errors
    /// As [`images::of`].
    pub fn images(engine: &Engine, cx: &ImageContext<'_>, room: u64) -> Result<Images> {
        let contents =
            Contents { what: "no tables", name: "an empty database", data_bytes: 64 << 20, room, needed_here: false };
        Self::images_with(engine, cx, contents, &mut |_| Ok(Vec::new()))
    }

    /// As [`PrivateDatabase::images`], with these contents, which `load` puts into an empty database. It returns the names of the checks that held.
    ///
    /// # Errors
    /// As [`images::of`].
    pub fn images_with(
        engine: &Engine,
        cx: &ImageContext<'_>,
        contents: Contents<'_>,
        load: &mut dyn FnMut(&mut dyn Database) -> Result<Vec<String>>,
    ) -> Result<Images> {
        let (images, _) = match engine {
            Engine::Postgres { version, .. } => {
                let kind = &cluster::KIND;
                let mut fill = |at: &Url| load(&mut *(kind.database)(at)?);
                images::of(kind, &version.to_string(), &Store::open()?, cx, contents, &mut fill)?
            }
            Engine::MariaDb { version, .. } => {
                let kind = &mariadb::KIND;
                let mut fill = |at: &Place| load(&mut *(kind.database)(at)?);
                images::of(kind, version, &Store::open()?, cx, contents, &mut fill)?
            }
            Engine::Url(_) | Engine::Sqlite { .. } => return Ok(Images::default()),
        };
        Ok(images)
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If the connection cannot be established.
    pub fn connect(&self) -> Result<Box<dyn Database>> {
        Ok(match self {
            Self::Postgres(server) => Box::new(crate::pg::Connection::connect(server.place())?),
            Self::MariaDb(server) => Box::new(crate::maria::Connection::connect(server.place())?),
            Self::Sqlite { path, journal } => Box::new(sqlite::Engine::open(path, *journal)?),
        })
    }

    /// The server's process ID; `None` if the engine runs in this process.
    pub fn server(&self) -> Option<u32> {
        match self {
            Self::Postgres(server) => Some(server.pid()),
            Self::MariaDb(server) => Some(server.pid()),
            Self::Sqlite { .. } => None,
        }
    }

    /// CPU time of the server's processes so far, in nanoseconds; 0 if the engine runs in this process.
    pub fn server_cpu_ns(&self) -> u64 {
        match self {
            Self::Postgres(server) => server.cpu_ns(),
            Self::MariaDb(server) => server.cpu_ns(),
            Self::Sqlite { .. } => 0,
        }
    }

    /// The server's name for people; `None` if the engine runs in this process.
    pub fn title(&self) -> Option<&'static str> {
        match self {
            Self::Postgres(_) => Some(cluster::KIND.recipe.title),
            Self::MariaDb(_) => Some(mariadb::KIND.recipe.title),
            Self::Sqlite { .. } => None,
        }
    }

    /// How the server ended, if it did.
    pub fn end(&mut self) -> Option<ServerError> {
        let title = self.title()?;
        match self {
            Self::Postgres(server) => server.end(title),
            Self::MariaDb(server) => server.end(title),
            Self::Sqlite { .. } => None,
        }
    }

    /// Why the server failed, in its own words; `None` if it reports nothing.
    pub fn complaint(&self) -> Option<ServerError> {
        match self {
            Self::Postgres(server) => server.complaint(),
            Self::MariaDb(server) => server.complaint(),
            Self::Sqlite { .. } => None,
        }
    }

    /// Recovers from a crash: kills the server's remaining processes and restarts it in the same folder.
    ///
    /// # Errors
    /// The server's own message if it does not recover.
    pub fn recover(&mut self) -> Result<(), ServerError> {
        match self {
            Self::Postgres(server) => server.recover(),
            Self::MariaDb(server) => server.recover(),
            // SQLite recovers when the database is next opened.
            Self::Sqlite { .. } => Ok(()),
        }
    }

    /// Shuts the server down cleanly.
    ///
    /// # Errors
    /// If the server does not shut down cleanly.
    pub fn close(self) -> Result<(), ServerError> {
        match self {
            Self::Postgres(server) => server.stop(),
            Self::MariaDb(server) => server.stop(),
            Self::Sqlite { .. } => Ok(()),
        }
    }
}
