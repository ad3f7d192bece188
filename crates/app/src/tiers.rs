//! The tiers of a trial: the database, and Tomcat in front of it.
//!
//! Invariant: neither outlives its [`Tiers`].

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context as _, Error, Result, bail};

use bigiron_model::workload::Program;
use bigiron_service::error::{ServerError, doing};
use bigiron_service::guest_tree::Tree;
use bigiron_service::instance::{Instance, patiently};
use bigiron_service::java::{self, MethodList};
use bigiron_service::listen::free_port;
use bigiron_service::programs::Programs;
use bigiron_service::tomcat::{self, Source, Tomcat};
use bigiron_service::{mariadb, postgres};
use bigiron_sql::database::Database;
use bigiron_sql::engine::PrivateDatabase;
use bigiron_sql::maria::Place;
use bigiron_sql::server::private::DATA;
use bigiron_workload::{Context, Progress};

use crate::calls::SERVLETS;
use crate::database::load;
use crate::settings::Settings;

/// Tomcat's tree beside the database's.
pub const TOMCAT: Tree = Tree { image: "tomcat", hash: "tomcat-tree", version: "tomcat" };
/// What its log says before its name and version.
const ENGINE: &str = "Starting Servlet engine: ";
/// The port in a guest, which nobody else uses.
const GUEST_PORT: u16 = 8080;
/// Tomcat's folder in a trial's own.
const FOLDER: &str = "tomcat";

/// The running servers.
pub struct Tiers {
    /// `None` once it has ended.
    tomcat: Option<Instance<Tomcat>>,
    database: PrivateDatabase,
    pub address: SocketAddrV4,
    /// Names and versions, for the record.
    pub version: String,
}

impl Tiers {
    /// Starts the database, with freshly loaded tables, and Tomcat.
    ///
    /// # Errors
    /// One of them is not available or does not start.
    pub fn open(cx: &Context<'_>, settings: &Settings) -> Result<Self> {
        let engine = settings.engine();
        let database = PrivateDatabase::open(cx, &engine, &settings.sizing(cx), "")?;
        if !cx.images.contains_key(DATA) {
            let loaded = load(&mut *database.connect()?, settings.dealers);
            // The connection only knows that it broke; the server may know why.
            loaded.map_err(|error| match database.complaint() {
                Some(complaint) => error.context(complaint),
                None => error,
            })?;
        }
        (cx.progress)(Progress { step: "tomcat", done: 0, of: 0 });
        let tomcat = tomcat(cx, settings, source(&database)?)?;
        let of_tomcat = fs::read_to_string(tomcat.log()).unwrap_or_default();
        let version = of_tomcat.lines().find_map(|line| line.split_once(ENGINE)).map_or("Tomcat", |(_, name)| name);
        let version = format!("{} with {}", version.trim_matches(['[', ']']), engine.in_words());
        Ok(Self { address: tomcat.server().address, version, tomcat: Some(tomcat), database })
    }

    /// A connection for checks.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn connect(&self) -> Result<Box<dyn Database>> {
        self.database.connect()
    }

    /// CPU time of Tomcat's and the database's processes so far, in nanoseconds.
    pub fn cpu_ns(&self) -> [u64; 2] {
        [self.tomcat.as_ref().map_or(0, Instance::cpu_ns), self.database.server_cpu_ns()]
    }

    /// Why a tier cannot go on, after its connections broke.
    pub fn complaint(&mut self) -> Option<ServerError> {
        let Self { tomcat, database, .. } = self;
        // Of a lost database, Tomcat complains too, and of its own end nobody else does.
        patiently(|| {
            let of_database = database.end().or_else(|| database.complaint());
            of_database.or_else(|| tomcat.as_mut()?.complaint(tomcat::RECIPE.title))
        })
    }

    /// How a tier ended, although its clients have not noticed.
    pub fn end(&mut self) -> Option<Error> {
        let of_tomcat = self.tomcat.as_mut().and_then(|tomcat| {
            tomcat.end().ok().flatten()?;
            tomcat.complaint(tomcat::RECIPE.title)
        });
        of_tomcat.or_else(|| self.database.end()).map(Error::from)
    }

    /// Stops Tomcat in good order. Returns the methods that its JVM had compiled.
    ///
    /// # Errors
    /// It does not stop as it should.
    pub fn stop_tomcat(&mut self) -> Result<Vec<Program>, ServerError> {
        let Some(tomcat) = self.tomcat.take() else { return Ok(Vec::new()) };
        let methods = MethodList::of(tomcat.pid());
        tomcat.stop()?;
        Ok(methods.map(MethodList::read).unwrap_or_default())
    }

    /// Stops what still runs in good order.
    ///
    /// # Errors
    /// It does not stop as it should.
    pub fn close(mut self) -> Result<(), ServerError> {
        self.stop_tomcat()?;
        self.database.close()
    }

    /// The numbers of Tomcat's process and the database's first one.
    #[cfg(test)]
    pub(crate) fn pids(&self) -> [u32; 2] {
        [self.tomcat.as_ref().map_or(0, Instance::pid), self.database.server().unwrap_or(0)]
    }
}

/// How servlets reach the database.
fn source(database: &PrivateDatabase) -> Result<Source> {
    let url = |kind: &str, port: u16, name: &str| format!("jdbc:{kind}://{}:{port}/{name}", Ipv4Addr::LOCALHOST);
    Ok(match database {
        PrivateDatabase::Postgres(server) => Source {
            driver: "org.postgresql.Driver",
            url: url("postgresql", server.place().port, postgres::DATABASE),
            user: postgres::SUPERUSER,
            password: server.place().password.as_ref().map(|password| password.reveal().to_owned()),
        },
        PrivateDatabase::MariaDb(server) => match server.place() {
            Place::Tcp { port, password } => Source {
                driver: "org.mariadb.jdbc.Driver",
                url: url("mariadb", *port, mariadb::DATABASE),
                user: mariadb::USER,
                password: Some(password.clone()),
            },
            Place::Socket(_) => bail!("A servlet reaches a database by TCP only"),
        },
        PrivateDatabase::Sqlite { .. } => bail!("A servlet reaches a server's database only"),
    })
}

fn tomcat(cx: &Context<'_>, settings: &Settings, source: Source) -> Result<Instance<Tomcat>> {
    let folder = cx.dir.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    let (programs, port) = match cx.images.get(TOMCAT.image) {
        Some(tree) => (Programs::in_tree(&tomcat::RECIPE, tree, tomcat::SERIES), GUEST_PORT),
        None => (TOMCAT.programs_here(cx, &tomcat::RECIPE, tomcat::SERIES)?, free_port(&folder)?),
    };
    let user = programs.user(&folder).map_err(doing("Cannot find the user of", &folder))?;
    tomcat::init(&programs, &folder)?;
    let server = Tomcat {
        address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
        threads: settings.threads,
        pool: settings.pool,
        source,
        session_bytes: settings.session_bytes,
        heap_bytes: settings.heap_bytes,
        quick_compiler: settings.quick_compiler,
        background: settings.background,
        servlets: &SERVLETS,
        jar: java::place(&programs, &folder, user)?,
        flags: tomcat::archived(&programs),
    };
    Ok(Instance::start(server, &programs, &folder)?)
}
