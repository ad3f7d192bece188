//! The tiers of a trial: the database, and Tomcat in front of it, each on this machine or another.
//!
//! Invariant: neither server outlives its [`Tiers`].

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::Result;

use bigiron_model::workload::Program;
use bigiron_service::error::ServerError;
use bigiron_service::instance::patiently;
use bigiron_service::kernel_cpu_ns;
use bigiron_service::listen::Listen;
use bigiron_sql::database::Database;
use bigiron_sys::this_machine::boot_id;
use bigiron_workload::shortage::Shortage;
use bigiron_workload::{Context, Progress};

use crate::loss_guard::LossGuard;
use crate::remote_tier::RemoteTier;
use crate::settings::{ServerSettings, Settings, TierHost};
use crate::tier::{DatabaseAddress, DatabaseHere, Tier, TierCpu, TomcatHere};

/// The running servers.
pub struct Tiers {
    /// `None` after it has been stopped.
    tomcat: Option<Box<dyn Tier>>,
    database: Box<dyn Tier>,
    database_address: DatabaseAddress,
    /// Whether the kernel threads of Tomcat's and of the database's machine count: those of each machine once.
    counts: [bool; 2],
    /// Where Tomcat listens.
    pub address: SocketAddrV4,
    /// The names and versions of the servers, for the record.
    pub version: String,
}

impl Tiers {
    /// Starts the database, with freshly loaded tables, and Tomcat.
    ///
    /// # Errors
    /// Another machine cannot be reached, a server is not available or does not start, or the load fails.
    pub fn open(cx: &Context<'_>, settings: &Settings) -> Result<Self> {
        let Settings { servers, tomcat_on, database_on, .. } = settings;
        let missing = |error: ServerError| Shortage::Machine(error.to_string());
        let connect =
            |host: &TierHost| host.machine().map(|name| RemoteTier::connect(name, cx).map_err(missing)).transpose();
        let (for_tomcat, for_database) = (connect(tomcat_on)?, connect(database_on)?);
        let [tomcat_met, database_met] =
            [&for_tomcat, &for_database].map(|machine| machine.as_ref().map(|machine| machine.meeting().clone()));
        // Not in guests, which have only themselves.
        let own = if tomcat_met.is_some() || database_met.is_some() { boot_id() } else { String::new() };
        let machines = [&tomcat_met, &database_met].map(|met| met.as_ref().map_or(&own, |met| &met.boot_id).clone());
        // This machine's address, as the other machines see it. This machine is a client of the database too: it checks the data.
        let here = database_met.as_ref().or(tomcat_met.as_ref()).map_or(Ipv4Addr::LOCALHOST, |met| met.client);
        // Tomcat's heap takes memory from the database only on the same machine.
        let heap_bytes = if machines[0] == machines[1] { servers.heap_bytes } else { 0 };
        let of_database = ServerSettings { heap_bytes, ..servers.clone() };
        let clients = [here, tomcat_met.as_ref().map_or(here, |met| met.here)];
        let (database, database_address): (Box<dyn Tier>, _) = match for_database {
            Some(machine) => {
                let (tier, address) = machine.database(cx, &of_database, clients).map_err(missing)?;
                (Box::new(tier), address)
            }
            None => {
                let listen = tomcat_met.map(|_| Listen::Network { address: here, clients });
                let (tier, address) = DatabaseHere::open(cx, &of_database, listen)?;
                (Box::new(tier), address)
            }
        };
        (cx.progress)(Progress { step: "tomcat", done: 0, of: 0 });
        let (tomcat, address, version): (Box<dyn Tier>, _, _) = match for_tomcat {
            Some(machine) => {
                let (tier, address, version) = machine.tomcat(cx, servers, &database_address)?;
                (Box::new(tier), address, version)
            }
            None => {
                let tier = TomcatHere::open(cx, servers, &database_address, None)?;
                let (address, version) = (tier.address(), tier.version());
                (Box::new(tier), address, version)
            }
        };
        let version = format!("{version} with {}", servers.engine().in_words());
        let [tomcats, databases] = &machines;
        let counts = [*tomcats != own, *databases != own && databases != tomcats];
        Ok(Self { tomcat: Some(tomcat), database, database_address, counts, address, version })
    }

    /// A connection to the database for checks.
    ///
    /// # Errors
    /// The server does not answer, or refuses the connection.
    pub fn connect(&self) -> Result<Box<dyn Database>> {
        self.database_address.connect()
    }

    /// CPU time so far, in nanoseconds: of Tomcat, of the database, and of the kernel threads of all machines.
    ///
    /// # Errors
    /// Another machine does not answer.
    pub fn cpu_ns(&mut self) -> Result<[u64; 3], ServerError> {
        let tomcat = self.tomcat.as_mut().map_or(Ok(TierCpu::default()), |tomcat| tomcat.cpu())?;
        let database = self.database.cpu()?;
        let elsewhere = [tomcat.kernel, database.kernel].into_iter().zip(self.counts).filter(|(_, counts)| *counts);
        let kernels = kernel_cpu_ns() + elsewhere.map(|(ns, _)| ns).sum::<u64>();
        Ok([tomcat.processes, database.processes, kernels])
    }

    /// Ends Tomcat when the database's machine is lost, as long as the guard lives; `None` if the database is on this machine.
    pub fn guard(&self) -> Option<LossGuard> {
        Some(LossGuard::start(self.database.lost()?, self.tomcat.as_ref()?.pid()))
    }

    /// Why a tier cannot go on; for use after a connection has broken.
    pub fn complaint(&mut self) -> Option<ServerError> {
        let Self { tomcat, database, .. } = self;
        // Of a lost database, Tomcat complains too, without the cause; of its own end nobody else does.
        patiently(|| database.complaint().or_else(|| tomcat.as_mut()?.complaint()))
    }

    /// How a tier ended, if one has ended; its clients may not have noticed.
    pub fn end(&mut self) -> Option<ServerError> {
        self.tomcat.as_mut().and_then(|tomcat| tomcat.end()).or_else(|| self.database.end())
    }

    /// Stops Tomcat cleanly. Returns the methods that its JVM compiled; none if it ran on another machine.
    ///
    /// # Errors
    /// It does not stop cleanly.
    pub fn stop_tomcat(&mut self) -> Result<Vec<Program>, ServerError> {
        self.tomcat.take().map_or(Ok(Vec::new()), |tomcat| tomcat.stop())
    }

    /// Stops cleanly the servers that still run.
    ///
    /// # Errors
    /// One of them does not stop cleanly.
    pub fn close(mut self) -> Result<(), ServerError> {
        self.stop_tomcat()?;
        self.database.stop().map(drop)
    }

    /// The PIDs of Tomcat and of the database's first process.
    #[cfg(test)]
    pub(crate) fn pids(&self) -> [u32; 2] {
        [self.tomcat.as_ref().map_or(0, |tomcat| tomcat.pid()), self.database.pid()]
    }
}
