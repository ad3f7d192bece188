//! The tiers behind the driver: their common interface, and the database and Tomcat on this machine.
//!
//! Invariant: a server does not outlive its [`Tier`].

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use bigiron_model::workload::Program;
use bigiron_service::error::{ServerError, doing};
use bigiron_service::guest_tree::Tree;
use bigiron_service::instance::Instance;
use bigiron_service::java::{self, MethodList};
use bigiron_service::listen::{Listen, free_port_of};
use bigiron_service::programs::Programs;
use bigiron_service::tomcat::{self, Source, Tomcat};
use bigiron_service::{mariadb, postgres};
use bigiron_sql::database::Database;
use bigiron_sql::engine::{EngineKind, PrivateDatabase};
use bigiron_sql::maria::{self, Place};
use bigiron_sql::pg;
use bigiron_sql::pg::url::{Host, Password, Url};
use bigiron_sql::server::private::DATA;
use bigiron_workload::Context;

use crate::calls::SERVLETS;
use crate::database::load;
use crate::settings::ServerSettings;

/// The tree of Tomcat's programs; the database has its own.
pub const TOMCAT: Tree = Tree { image: "tomcat", hash: "tomcat-tree", version: "tomcat" };
/// The text before Tomcat's name and version in its log.
const ENGINE: &str = "Starting Servlet engine: ";
/// Tomcat's port in a guest, where nothing else uses it.
const GUEST_PORT: u16 = 8080;
/// Tomcat's folder in the folder of the trial or the worker.
const FOLDER: &str = "tomcat";

/// CPU time so far, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TierCpu {
    pub processes: u64,
    /// Of the kernel's threads on another machine; 0 on the machine of the trial.
    pub kernel: u64,
}

/// A running server.
pub trait Tier {
    /// CPU time so far.
    ///
    /// # Errors
    /// Its machine does not answer.
    fn cpu(&mut self) -> Result<TierCpu, ServerError>;
    /// How it ended, if it has ended; its clients may not have noticed.
    fn end(&mut self) -> Option<ServerError>;
    /// Why it cannot go on, if that is known yet; a caller asks repeatedly.
    fn complaint(&mut self) -> Option<ServerError>;
    /// Stops it cleanly. Tomcat on the machine of the trial returns the methods that its JVM compiled.
    ///
    /// # Errors
    /// It does not stop cleanly.
    fn stop(self: Box<Self>) -> Result<Vec<Program>, ServerError>;
    /// The process on this machine that ends the tier when it is killed: the server's first one, or the connection to another machine.
    fn pid(&self) -> u32;
    /// On another machine: becomes true when the connection is lost.
    fn lost(&self) -> Option<Arc<AtomicBool>> {
        None
    }
}

/// The address of a database, and how to connect to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatabaseAddress {
    kind: EngineKind,
    address: SocketAddrV4,
    /// `None` if the server requires none, as in a guest.
    password: Option<String>,
}

impl DatabaseAddress {
    fn of(database: &PrivateDatabase) -> Result<Self> {
        Ok(match database {
            PrivateDatabase::Postgres(server) => {
                let url = server.place();
                let Host::Tcp(host) = &url.host else { bail!("Servlets connect to a database over TCP only") };
                let address = SocketAddrV4::new(host.parse()?, url.port);
                let password = url.password.as_ref().map(|password| password.reveal().to_owned());
                Self { kind: EngineKind::Postgres, address, password }
            }
            PrivateDatabase::MariaDb(server) => match server.place() {
                Place::Tcp { address, password } => {
                    Self { kind: EngineKind::MariaDb, address: *address, password: Some(password.clone()) }
                }
                Place::Socket(_) => bail!("Servlets connect to a database over TCP only"),
            },
            PrivateDatabase::Sqlite { .. } => bail!("Servlets need a database server; SQLite has none"),
        })
    }

    /// Connects to the database, to check its data.
    ///
    /// # Errors
    /// The server does not answer, or refuses the connection.
    pub fn connect(&self) -> Result<Box<dyn Database>> {
        let Self { kind, address, password } = self;
        Ok(match kind {
            EngineKind::MariaDb => {
                let place = Place::Tcp { address: *address, password: password.clone().unwrap_or_default() };
                Box::new(maria::Connection::connect(&place)?)
            }
            _ => {
                let mut url =
                    Url::tcp(postgres::SUPERUSER, &address.ip().to_string(), address.port(), postgres::DATABASE);
                url.password = password.as_deref().map(Password::new);
                Box::new(pg::Connection::connect(&url)?)
            }
        })
    }

    /// How the servlets connect. A statement on another machine ends when that machine is lost.
    fn source(&self) -> Source {
        let Self { kind, address, password } = self;
        let limit = match (address.ip().is_loopback(), kind) {
            (true, _) => "",
            (false, EngineKind::MariaDb) => "?tcpKeepAlive=true&amp;socketTimeout=60000",
            (false, _) => "?tcpKeepAlive=true&amp;socketTimeout=60",
        };
        let (driver, scheme, name, user) = match kind {
            EngineKind::MariaDb => ("org.mariadb.jdbc.Driver", "mariadb", mariadb::DATABASE, mariadb::USER),
            _ => ("org.postgresql.Driver", "postgresql", postgres::DATABASE, postgres::SUPERUSER),
        };
        Source { driver, url: format!("jdbc:{scheme}://{address}/{name}{limit}"), user, password: password.clone() }
    }
}

/// The database on this machine.
pub struct DatabaseHere(PrivateDatabase);

impl DatabaseHere {
    /// Starts the database with freshly loaded tables. Without `listen`, it listens on 127.0.0.1.
    ///
    /// # Errors
    /// It is not available or does not start, or the load fails.
    pub fn open(
        cx: &Context<'_>,
        settings: &ServerSettings,
        listen: Option<Listen>,
    ) -> Result<(Self, DatabaseAddress)> {
        let database = PrivateDatabase::open_at(cx, &settings.engine(), &settings.sizing(cx), "", listen)?;
        if !cx.images.contains_key(DATA) {
            let loaded = load(&mut *database.connect()?, settings.dealers);
            // The connection reports only that it broke; the server may know why.
            loaded.map_err(|error| match database.complaint() {
                Some(complaint) => error.context(complaint),
                None => error,
            })?;
        }
        let address = DatabaseAddress::of(&database)?;
        Ok((Self(database), address))
    }
}

impl Tier for DatabaseHere {
    fn cpu(&mut self) -> Result<TierCpu, ServerError> {
        Ok(TierCpu { processes: self.0.server_cpu_ns(), kernel: 0 })
    }

    fn end(&mut self) -> Option<ServerError> {
        self.0.end()
    }

    fn complaint(&mut self) -> Option<ServerError> {
        self.0.end().or_else(|| self.0.complaint())
    }

    fn stop(self: Box<Self>) -> Result<Vec<Program>, ServerError> {
        self.0.close().map(|()| Vec::new())
    }

    fn pid(&self) -> u32 {
        self.0.server().unwrap_or(0)
    }
}

/// Tomcat on this machine.
pub struct TomcatHere(Instance<Tomcat>);

impl TomcatHere {
    /// Starts Tomcat, whose servlets use `database`. With `network`, Tomcat listens on the first address and accepts requests only from the second,
    /// that of the trial's machine; without it, Tomcat listens on 127.0.0.1.
    ///
    /// # Errors
    /// It is not available or does not start.
    pub fn open(
        cx: &Context<'_>,
        settings: &ServerSettings,
        database: &DatabaseAddress,
        network: Option<(Ipv4Addr, Ipv4Addr)>,
    ) -> Result<Self> {
        let folder = cx.dir.join(FOLDER);
        fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        let address = network.map_or(Ipv4Addr::LOCALHOST, |(address, _)| address);
        let (programs, port) = match cx.images.get(TOMCAT.image) {
            Some(tree) => (Programs::in_tree(&tomcat::RECIPE, tree, tomcat::SERIES), GUEST_PORT),
            None => (TOMCAT.programs_here(cx, &tomcat::RECIPE, tomcat::SERIES)?, free_port_of(&folder, address)?),
        };
        let user = programs.user(&folder).map_err(doing("Cannot find the user of", &folder))?;
        tomcat::init(&programs, &folder)?;
        let server = Tomcat {
            address: SocketAddrV4::new(address, port),
            client: network.map(|(_, client)| client),
            threads: settings.threads,
            pool: settings.pool,
            source: database.source(),
            session_bytes: settings.session_bytes,
            heap_bytes: settings.heap_bytes,
            quick_compiler: settings.quick_compiler,
            background: settings.background,
            servlets: &SERVLETS,
            jar: java::place(&programs, &folder, user)?,
            flags: tomcat::archived(&programs),
        };
        Ok(Self(Instance::start(server, &programs, &folder)?))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddrV4 {
        self.0.server().address
    }

    /// Its name and version.
    pub fn version(&self) -> String {
        let log = fs::read_to_string(self.0.log()).unwrap_or_default();
        let version = log.lines().find_map(|line| line.split_once(ENGINE)).map_or("Tomcat", |(_, name)| name);
        version.trim_matches(['[', ']']).to_owned()
    }
}

impl Tier for TomcatHere {
    fn cpu(&mut self) -> Result<TierCpu, ServerError> {
        Ok(TierCpu { processes: self.0.cpu_ns(), kernel: 0 })
    }

    fn end(&mut self) -> Option<ServerError> {
        self.0.end().ok().flatten()?;
        self.0.complaint(tomcat::RECIPE.title)
    }

    fn complaint(&mut self) -> Option<ServerError> {
        self.0.complaint(tomcat::RECIPE.title)
    }

    fn stop(self: Box<Self>) -> Result<Vec<Program>, ServerError> {
        let methods = MethodList::of(self.0.pid());
        self.0.stop()?;
        Ok(methods.map(MethodList::read).unwrap_or_default())
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use bigiron_workload::testing;
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

    use super::*;
    use crate::App;
    use crate::settings::Settings;

    /// The status line that `server` sends to a client with the address `from`.
    fn answer(server: SocketAddrV4, from: Ipv4Addr) -> String {
        let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&client, &SocketAddrV4::new(from, 0)).unwrap();
        connect(&client, &server).unwrap();
        let mut stream = TcpStream::from(client);
        stream.write_all(b"GET /none HTTP/1.1\r\nHost: business\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.lines().next().unwrap_or_default().trim().to_owned()
    }

    #[test]
    fn only_the_trials_machine_reaches_tomcat_on_the_network() {
        bigiron_service::java::testing::install();
        let dir = tempfile::tempdir().unwrap();
        let cx = testing::context(dir.path());
        let small = [("threads", "2"), ("dealers", "10"), ("session", "1K")];
        let settings = Settings::parse(&testing::options(&App, small).unwrap()).unwrap().wall;
        let (_database, address) = DatabaseHere::open(&cx, &settings.servers, None).unwrap();
        let [here, client, other] = [2, 3, 4].map(|last| Ipv4Addr::new(127, 0, 0, last));
        let tomcat = TomcatHere::open(&cx, &settings.servers, &address, Some((here, client))).unwrap();
        assert_eq!(*tomcat.address().ip(), here);
        assert_eq!(answer(tomcat.address(), client), "HTTP/1.1 404");
        assert_eq!(answer(tomcat.address(), other), "HTTP/1.1 403");
    }
}
