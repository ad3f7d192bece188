//! A tier on another machine: bigiron's worker there starts the server and answers questions about it.
//!
//! Invariant: the server ends when the worker ends.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Error, Result, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use bigiron_model::clock::Clock;
use bigiron_model::refusal::Refusal;
use bigiron_model::workload::Program;
use bigiron_service::error::ServerError;
use bigiron_service::guest_tree::programs_here;
use bigiron_service::listen::Listen;
use bigiron_service::other_machine::{self, OtherMachine};
use bigiron_service::worker_place::{Meeting, WorkerPlace};
use bigiron_service::{kernel_cpu_ns, mariadb, postgres, tomcat};
use bigiron_sql::engine::{self, EngineKind};
use bigiron_sql::server;
use bigiron_sys::this_machine;
use bigiron_workload::{Context, Progress};

use crate::settings::ServerSettings;
use crate::tier::{DatabaseAddress, DatabaseHere, TOMCAT, Tier, TierCpu, TomcatHere};

/// The worker's name, which follows `bigiron target` on the command line.
pub const WORKER: &str = "tier";

/// A trial's question or command to a worker.
#[derive(Serialize, Deserialize)]
enum Question {
    /// Fetches the programs of Tomcat or of the database.
    Fetch {
        settings: ServerSettings,
        foundation: BTreeMap<String, String>,
        tomcat: bool,
    },
    Database {
        settings: ServerSettings,
        foundation: BTreeMap<String, String>,
        clients: [Ipv4Addr; 2],
    },
    Tomcat {
        settings: ServerSettings,
        foundation: BTreeMap<String, String>,
        database: DatabaseAddress,
    },
    Cpu,
    End,
    Complaint,
    Stop,
}

/// A tier on another machine.
pub struct RemoteTier(OtherMachine);

/// The refusal for an error of the machine `name`, whose second line is a hint, and for the option that names the machine.
fn refusal(error: &ServerError, option: &str, name: &str) -> Refusal {
    let text = error.to_string();
    let usual = format!("`{option}` names `{name}`");
    let (message, hint) = text.split_once('\n').unwrap_or((&text, &usual));
    Refusal::new(message).hint(hint)
}

/// Reports progress, so that the trial does not count as hung while another machine works.
fn report_waiting(cx: &Context<'_>) {
    (cx.progress)(Progress { step: "another machine", done: 0, of: 0 });
}

impl RemoteTier {
    /// Starts a worker on the machine `name`.
    ///
    /// # Errors
    /// The machine cannot be reached, or the worker does not start.
    pub fn connect(name: &str, cx: &Context<'_>) -> Result<Self, ServerError> {
        Ok(Self(OtherMachine::start(name, WORKER, &|| report_waiting(cx))?))
    }

    /// Logs in to the machine `name`, which `option` names, before a study.
    ///
    /// # Errors
    /// The machine cannot be reached, or its administrator does not allow trials.
    pub fn meet(name: &str, option: &str) -> Result<Self, Refusal> {
        let machine = OtherMachine::start(name, WORKER, &|| ()).map_err(|error| refusal(&error, option, name))?;
        let seen = machine.meeting().client;
        match TcpListener::bind((seen, 0)) {
            Ok(_) => Ok(Self(machine)),
            Err(_) => {
                Err(Refusal::new(format!("`{name}` sees this machine at {seen}, which is not one of its addresses"))
                    .hint("Connect without a jump host or address translation (NAT)"))
            }
        }
    }

    /// Checks that the machine, which `option` names, can run Tomcat, or else the database, of this foundation, and fetches the programs there.
    ///
    /// # Errors
    /// It does not have these programs.
    pub fn fetch(
        mut self,
        option: &str,
        settings: &ServerSettings,
        foundation: &BTreeMap<String, String>,
        tomcat: bool,
    ) -> Result<(), Refusal> {
        let question = Question::Fetch { settings: settings.clone(), foundation: foundation.clone(), tomcat };
        let asked = self.0.ask(&question, &|| ());
        asked.map_err(|error| refusal(&error, option, self.0.name()))
    }

    /// How the two machines reach each other.
    pub fn meeting(&self) -> &Meeting {
        self.0.meeting()
    }

    /// Starts the database, with freshly loaded tables, for clients with these addresses.
    ///
    /// # Errors
    /// It is not available or does not start, or the load fails.
    pub fn database(
        mut self,
        cx: &Context<'_>,
        settings: &ServerSettings,
        clients: [Ipv4Addr; 2],
    ) -> Result<(Self, DatabaseAddress), ServerError> {
        let (settings, foundation) = (settings.clone(), cx.foundation.clone());
        let address = self.0.ask(&Question::Database { settings, foundation, clients }, &|| report_waiting(cx))?;
        Ok((self, address))
    }

    /// Starts Tomcat, whose servlets use `database`. Returns Tomcat's address, and its name and version.
    ///
    /// # Errors
    /// It is not available or does not start.
    pub fn tomcat(
        mut self,
        cx: &Context<'_>,
        settings: &ServerSettings,
        database: &DatabaseAddress,
    ) -> Result<(Self, SocketAddrV4, String), ServerError> {
        let (settings, foundation) = (settings.clone(), cx.foundation.clone());
        let question = Question::Tomcat { settings, foundation, database: database.clone() };
        let (address, version) = self.0.ask(&question, &|| report_waiting(cx))?;
        Ok((self, address, version))
    }

    fn ask_why(&mut self, question: &Question) -> Option<ServerError> {
        match self.0.ask::<Option<String>>(question, &|| ()) {
            Ok(said) => said.map(|why| ServerError::Failed(format!("On `{}`: {why}", self.0.name()))),
            Err(lost) => Some(lost),
        }
    }
}

impl Tier for RemoteTier {
    fn cpu(&mut self) -> Result<TierCpu, ServerError> {
        self.0.ask(&Question::Cpu, &|| ())
    }

    fn end(&mut self) -> Option<ServerError> {
        self.ask_why(&Question::End)
    }

    fn complaint(&mut self) -> Option<ServerError> {
        self.ask_why(&Question::Complaint)
    }

    fn stop(mut self: Box<Self>) -> Result<Vec<Program>, ServerError> {
        self.0.ask(&Question::Stop, &|| ()).map(|()| Vec::new())
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn lost(&self) -> Option<Arc<AtomicBool>> {
        Some(self.0.lost())
    }
}

/// Runs `bigiron target tier`: starts a tier for a trial on another machine, if `permit` allows it, and answers questions about the tier. Returns the
/// process's exit status.
pub fn worker(permit: &dyn Fn() -> Result<(), String>) -> i32 {
    let mut tier = None;
    match other_machine::answer_all(permit, &mut |question, place| answer(&mut tier, question, place)) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("Cannot work for the trial: {e:#}");
            1
        }
    }
}

/// Answers a question about the worker's tier, which it may start or stop.
fn answer(running: &mut Option<Box<dyn Tier>>, question: Question, place: &WorkerPlace) -> Result<Value> {
    Ok(match question {
        Question::Fetch { settings, foundation, tomcat } => {
            with_context(place, &foundation, |cx| match (tomcat, settings.database) {
                (true, _) => TOMCAT.programs_here(cx, &tomcat::RECIPE, tomcat::SERIES),
                (false, EngineKind::MariaDb) => programs_here(cx, &mariadb::RECIPE, server::mariadb::SERIES),
                (false, _) => programs_here(cx, &postgres::RECIPE, &engine::POSTGRES_VERSION.to_string()),
            })
            .map_err(other_version)?;
            Value::Null
        }
        Question::Database { settings, foundation, clients } => {
            let listen = Listen::Network { address: place.meeting.here, clients };
            let open = |cx: &Context<'_>| DatabaseHere::open(cx, &settings, Some(listen));
            let (tier, address) = with_context(place, &foundation, open)?;
            *running = Some(Box::new(tier));
            serde_json::to_value(address)?
        }
        Question::Tomcat { settings, foundation, database } => {
            let network = Some((place.meeting.here, place.meeting.client));
            let open = |cx: &Context<'_>| TomcatHere::open(cx, &settings, &database, network);
            let tier = with_context(place, &foundation, open)?;
            let answer = serde_json::to_value((tier.address(), tier.version()))?;
            *running = Some(Box::new(tier));
            answer
        }
        Question::Cpu => {
            let mut cpu = tier(running)?.cpu()?;
            cpu.kernel = kernel_cpu_ns();
            serde_json::to_value(cpu)?
        }
        Question::End => serde_json::to_value(tier(running)?.end().map(|e| e.to_string()))?,
        Question::Complaint => serde_json::to_value(tier(running)?.complaint().map(|e| e.to_string()))?,
        Question::Stop => {
            running.take().context("No server is running")?.stop()?;
            Value::Null
        }
    })
}

fn tier(running: &mut Option<Box<dyn Tier>>) -> Result<&mut Box<dyn Tier>> {
    running.as_mut().context("No server is running")
}

/// Calls `open` with the context of a trial on this machine.
fn with_context<T>(
    place: &WorkerPlace,
    foundation: &BTreeMap<String, String>,
    open: impl FnOnce(&Context<'_>) -> Result<T>,
) -> Result<T> {
    let dir = place.folder.path.join("server");
    fs::create_dir_all(&dir).with_context(|| format!("Cannot create `{}`", dir.display()))?;
    open(&Context {
        seed: 0,
        clock: Clock::Wall,
        dir,
        images: &BTreeMap::new(),
        devices: &[],
        foundation,
        cpus: this_machine::cpus(),
        memory_bytes: this_machine::memory_bytes(),
        executable: PathBuf::from("/proc/self/exe"),
        network: None,
        ack_sink: None,
        progress: &|_| (),
    })
}

/// The refusal of another version in words for this machine, on which no study was begun.
fn other_version(error: Error) -> Error {
    match error.downcast_ref::<ServerError>() {
        Some(ServerError::Replaced { title, now, .. }) => anyhow!(
            "this machine has {title} {now}, and the machine of the trial has another version\nUse machines with the same Debian release and package \
             sources; if they are, try again tomorrow, when their caches look for updates"
        ),
        _ => error,
    }
}
