//! The tiers of a trial: the database, and Tomcat in front of it.
//!
//! Invariant: neither outlives its [`Tiers`].

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context as _, Error, Result};

use bigiron_service::error::{ServerError, doing};
use bigiron_service::guest_tree::Tree;
use bigiron_service::instance::{Instance, patiently};
use bigiron_service::java;
use bigiron_service::listen::free_port;
use bigiron_service::postgres::{DATABASE, Postgres, SUPERUSER};
use bigiron_service::programs::Programs;
use bigiron_service::tomcat::{self, Source, Tomcat};
use bigiron_sql::database::Database;
use bigiron_sql::pg::Url;
use bigiron_sql::server::cluster::KIND;
use bigiron_sql::server::private::{PrivateServer, Start};
use bigiron_sql::server::{Settings as ServerSettings, Sizing, Transport};
use bigiron_workload::{Context, Progress};

use crate::calls::SERVLETS;
use crate::database::{SERIES, bytes, load};
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
    tomcat: Instance<Tomcat>,
    database: PrivateServer<Postgres, Url>,
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
        let sizing = Sizing {
            memory_bytes: cx.memory_bytes.saturating_sub(settings.heap_bytes),
            data_bytes: bytes(settings.dealers),
            connections: settings.pool,
        };
        let server = ServerSettings::new(&sizing, &[])?;
        let how = Start { series: SERIES, transport: Transport::Tcp, settings: &server };
        let database = PrivateServer::open(cx, &KIND, how, &|at| load(at, settings.dealers))?;
        (cx.progress)(Progress { step: "tomcat", done: 0, of: 0 });
        let tomcat = tomcat(cx, settings, database.place())?;
        let of_tomcat = fs::read_to_string(tomcat.log()).unwrap_or_default();
        let version = of_tomcat.lines().find_map(|line| line.split_once(ENGINE)).map_or("Tomcat", |(_, name)| name);
        let version = format!("{} with {} {SERIES}", version.trim_matches(['[', ']']), KIND.recipe.title);
        Ok(Self { address: tomcat.server().address, version, tomcat, database })
    }

    /// A connection for checks.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn connect(&self) -> Result<Box<dyn Database>> {
        (KIND.database)(self.database.place())
    }

    /// CPU time of Tomcat's and the database's processes so far, in nanoseconds.
    pub fn cpu_ns(&self) -> [u64; 2] {
        [self.tomcat.cpu_ns(), self.database.cpu_ns()]
    }

    /// Why a tier cannot go on, after its connections broke.
    pub fn complaint(&mut self) -> Option<ServerError> {
        let Self { tomcat, database, .. } = self;
        // Of a lost database, Tomcat complains too, and of its own end nobody else does.
        patiently(|| {
            let of_database = database.end(KIND.recipe.title).or_else(|| database.complaint());
            of_database.or_else(|| tomcat.complaint(tomcat::RECIPE.title))
        })
    }

    /// How a tier ended, although its clients have not noticed.
    pub fn end(&mut self) -> Option<Error> {
        let of_tomcat = self.tomcat.end().ok().flatten().and_then(|_| self.tomcat.complaint(tomcat::RECIPE.title));
        of_tomcat.or_else(|| self.database.end(KIND.recipe.title)).map(Error::from)
    }

    /// Stops both in good order.
    ///
    /// # Errors
    /// One does not stop as it should.
    pub fn close(self) -> Result<(), ServerError> {
        self.tomcat.stop()?;
        self.database.stop()
    }

    /// The numbers of Tomcat's process and the database's first one.
    #[cfg(test)]
    pub(crate) fn pids(&self) -> [u32; 2] {
        [self.tomcat.pid(), self.database.pid()]
    }
}

fn tomcat(cx: &Context<'_>, settings: &Settings, at: &Url) -> Result<Instance<Tomcat>> {
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
        source: Source {
            driver: "org.postgresql.Driver",
            url: format!("jdbc:postgresql://{}:{}/{DATABASE}", Ipv4Addr::LOCALHOST, at.port),
            user: SUPERUSER,
            password: at.password.as_ref().map(|password| password.reveal().to_owned()),
        },
        session_bytes: settings.session_bytes,
        heap_bytes: settings.heap_bytes,
        background: settings.background,
        servlets: &SERVLETS,
        jar: java::place(&programs, &folder, user)?,
    };
    Ok(Instance::start(server, &programs, &folder)?)
}
