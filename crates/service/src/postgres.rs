//! PostgreSQL: its recipe, and how a private cluster runs.
//!
//! ```text
//! FOLDER/data       made by initdb
//! FOLDER/run        the socket
//! FOLDER/log        the server's output
//! FOLDER/password   the superuser's, for TCP (the socket needs none: nobody else can enter the folder)
//! ```

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use bigiron_archive::SeriesPackage;
use rustix::process::Signal;

use super::error::{ServerError, doing};
use super::instance::{self, DATA, Instance, Server};
use super::listen::{Listen, PASSWORD, Tcp, new_password};
use super::programs::Programs;
use super::recipe::Recipe;
use super::server_folder::check_socket;

/// PostgreSQL in Debian's archive.
pub const RECIPE: Recipe = Recipe {
    name: "postgres",
    title: "PostgreSQL",
    instead: "set the workload's `engine` to `sqlite`, or `oltp.url=postgresql://…` to a server of your own",
    package: SeriesPackage::InName("postgresql"),
    // `initdb` runs the server through `/bin/sh`, and Debian's server reads the system's time zones.
    version_of: None,
    beside: &["dash", "tzdata"],
    // The JIT compiler is larger than everything else together.
    without: &["libllvm"],
    programs: |series| format!("usr/lib/postgresql/{series}/bin"),
    plugins: &[|series| format!("usr/lib/postgresql/{series}/lib")],
    loaded: &[],
    required: &["postgres", "initdb", "pg_controldata", "pg_waldump"],
    version_argument: "--version",
    keeps: |path, series| match path {
        ["usr", "lib", "postgresql", v, "bin", name] => *v == series && PROGRAMS.contains(name),
        ["usr", "lib", "postgresql", v, "lib", name] => *v == series && name.ends_with(".so"),
        ["usr", "share", "postgresql", v, rest @ ..] => *v == series && rest.first() != Some(&"man"),
        _ => false,
    },
    own: None,
    finish: None,
    sees_sys: false,
    revision: 1,
    user: SUPERUSER,
};

const PROGRAMS: [&str; 6] = ["initdb", "pg_checksums", "pg_controldata", "pg_ctl", "pg_waldump", "postgres"];
/// The superuser and the database.
pub const SUPERUSER: &str = "postgres";
pub const DATABASE: &str = "postgres";
/// Determines the socket's name, and the TCP port if no other process can have it.
const PORT: u16 = 5432;
/// Bytes of a segment of PostgreSQL's log, allocated before its first use.
const WAL_SEGMENT: u64 = 16 << 20;
/// A file in a cluster's data: the number of the server's process, and its state.
const PID_FILE: &str = "postmaster.pid";
/// Faulty settings are reported in lines that are only logged as information.
const FATAL: [&str; 6] = ["FATAL:", "PANIC:", "HINT:", "ERROR:", "error:", " parameter \""];
/// The longest name of the socket, relative to the cluster's folder.
pub const SOCKET: &str = "run/.s.PGSQL.65535";

/// The settings with which a cluster starts.
#[derive(Debug)]
pub struct Postgres {
    /// Lines of `postgresql.conf`, except those for listening.
    settings: String,
    /// The port, which is also in the socket's name, who may connect, and the password.
    tcp: Option<Tcp>,
}

/// Creates a cluster in `folder`, which exists and is empty except for files of the caller: locale C, UTF-8. `sync` tells whether it must survive a
/// crash of the machine.
///
/// # Errors
/// initdb fails (with its output).
pub fn init(programs: &Programs, folder: &Path, sync: bool) -> Result<(), ServerError> {
    let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
    for name in [DATA, "run"] {
        instance::make_folder(&folder.join(name), user)?;
    }
    new_password(folder, user)?;
    let inside = programs.inside(folder);
    let mut arguments: Vec<OsString> =
        ["--username", SUPERUSER, "--locale=C", "--encoding=UTF8", "--auth-local=trust"].map(OsString::from).into();
    arguments.extend(["--auth-host=scram-sha-256".into(), "--pwfile".into(), inside.join(PASSWORD).into()]);
    arguments.extend((!sync).then(|| "--no-sync".into()));
    arguments.extend(["-D".into(), inside.join(DATA).into()]);
    instance::run(programs, folder, "initdb", &arguments, None, &FATAL)
}

/// Starts the cluster in `folder` with these lines of `postgresql.conf`, and waits until it accepts connections.
///
/// # Errors
/// As [`Instance::start`].
pub fn start(
    programs: &Programs,
    folder: &Path,
    settings: String,
    listen: Listen,
) -> Result<Instance<Postgres>, ServerError> {
    Instance::start(Postgres { settings, tcp: listen.tcp(folder, PORT)? }, programs, folder)
}

impl Postgres {
    /// The port in the socket's name.
    pub fn port(&self) -> u16 {
        self.tcp.as_ref().map_or(PORT, |tcp| tcp.port)
    }

    /// The port and its password, if it listens on one.
    pub fn tcp(&self) -> Option<&Tcp> {
        self.tcp.as_ref()
    }
}

/// The server's last fatal complaint, or that its file system has no space for another segment of its log.
pub fn complaint(cluster: &Instance<Postgres>) -> Option<ServerError> {
    if cluster.is_full(WAL_SEGMENT) {
        return Some(ServerError::Space { dir: cluster.folder().to_owned() });
    }
    let log = fs::read(cluster.log()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let line = log.lines().rfind(|line| line.contains("PANIC:"))?;
    Some(ServerError::Failed(format!("The server stopped itself: {line}")))
}

impl Server for Postgres {
    /// The complete configuration, without initdb's findings about the machine.
    fn configure(&self, programs: &Programs, folder: &Path) -> Result<(), ServerError> {
        check_socket(&folder.join(SOCKET))?;
        let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
        let addresses = self.tcp().map_or_else(String::new, |tcp| tcp.address.to_string());
        let run = quoted(&programs.inside(folder).join("run").display().to_string());
        let text = format!(
            "# Written by bigiron at every start.\n{}listen_addresses = '{addresses}'\nport = {}\nunix_socket_directories = {run}\n\
             unix_socket_permissions = 0700\nlogging_collector = off\npassword_encryption = 'scram-sha-256'\n",
            self.settings,
            self.port()
        );
        let method = if self.tcp().is_some_and(|tcp| tcp.password.is_none()) { "trust" } else { "scram-sha-256" };
        let mut clients = self.tcp().map_or_else(Vec::new, |tcp| tcp.clients.clone());
        if clients.is_empty() {
            clients.push(Ipv4Addr::LOCALHOST);
        }
        let mut access = "local all all trust\n".to_owned();
        clients.iter().for_each(|client| access += &format!("host all all {client}/32 {method}\n"));
        let data = folder.join(DATA);
        instance::write(&data.join("postgresql.conf"), &text, user)?;
        instance::write(&data.join("postgresql.auto.conf"), "", user)?;
        instance::write(&data.join("pg_hba.conf"), &access, user)?;
        forget_ready(&data.join(PID_FILE))
    }

    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>) {
        ("postgres", vec!["-D".into(), inside.join(DATA).into()])
    }

    /// The criterion of pg_ctl: the eighth line of the file that names the running server's process.
    fn is_ready(&self, folder: &Path, pid: u32) -> bool {
        let text = fs::read_to_string(folder.join(DATA).join(PID_FILE)).unwrap_or_default();
        let mut lines = text.lines();
        lines.next().and_then(|l| l.trim().parse().ok()) == Some(pid) && lines.nth(6).map(str::trim) == Some("ready")
    }

    /// "Fast": connections are ended, a checkpoint is written.
    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    fn leftovers(&self, folder: &Path) -> Vec<PathBuf> {
        let socket = format!(".s.PGSQL.{}", self.port());
        [format!("{socket}.lock"), socket].map(|name| folder.join("run").join(name)).into()
    }

    fn fatal_words(&self) -> &'static [&'static str] {
        &FATAL
    }
}

/// After a power loss the file still says `ready`, and in a guest the next server has the same process number.
fn forget_ready(path: &Path) -> Result<(), ServerError> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(()) };
    let lines: Vec<&str> = text.lines().enumerate().map(|(i, line)| if i == 7 { "starting" } else { line }).collect();
    fs::write(path, lines.join("\n") + "\n").map_err(doing("Cannot write", path))
}

/// A value in the syntax of `postgresql.conf`.
pub fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}
