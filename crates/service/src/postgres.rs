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
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::error::{ServerError, doing};
use super::instance::{self, DATA, Instance, Server};
use super::programs::Programs;
use super::recipe::Recipe;
use super::server_folder::check_socket;

/// PostgreSQL in Debian's archive.
pub const RECIPE: Recipe = Recipe {
    name: "postgres",
    title: "PostgreSQL",
    instead: "use `oltp.url=postgresql://…` for a server of your own, or `oltp.engine=sqlite`",
    package: "postgresql",
    // `initdb` runs the server through `/bin/sh`, and Debian's server reads the system's time zones.
    beside: &["dash", "tzdata"],
    // The JIT compiler is larger than everything else together.
    without: &["libllvm"],
    programs: |major| format!("usr/lib/postgresql/{major}/bin"),
    plugins: |major| format!("usr/lib/postgresql/{major}/lib"),
    required: &["postgres", "initdb", "pg_controldata", "pg_waldump"],
    keeps: |path, major| {
        let is_major = |version: &str| version.parse() == Ok(major);
        match path {
            ["usr", "lib", "postgresql", v, "bin", name] => is_major(v) && PROGRAMS.contains(name),
            ["usr", "lib", "postgresql", v, "lib", name] => is_major(v) && name.ends_with(".so"),
            ["usr", "share", "postgresql", v, rest @ ..] => is_major(v) && rest.first() != Some(&"man"),
            _ => false,
        }
    },
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

/// Where a cluster listens, in addition to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Socket,
    /// On a free port of 127.0.0.1, with a password, because other users of the machine can reach it.
    Tcp,
    /// On port 5432 of 127.0.0.1, without a password: for a guest, which nobody else uses.
    TcpAlone,
}

/// The settings with which a cluster starts.
#[derive(Debug)]
pub struct Postgres {
    /// Lines of `postgresql.conf`, except those for listening.
    settings: String,
    /// The port of 127.0.0.1, which is also in the socket's name, and the password.
    tcp: Option<(u16, Option<String>)>,
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
    let password = folder.join("password");
    instance::write(&password, &random_word().map_err(doing("No random bytes for", &password))?, user)?;
    fs::set_permissions(&password, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .map_err(doing("Cannot write", &password))?;
    let inside = programs.inside(folder);
    let mut arguments: Vec<OsString> =
        ["--username", SUPERUSER, "--locale=C", "--encoding=UTF8", "--auth-local=trust"].map(OsString::from).into();
    arguments.extend(["--auth-host=scram-sha-256".into(), "--pwfile".into(), inside.join("password").into()]);
    arguments.extend((!sync).then(|| "--no-sync".into()));
    arguments.extend(["-D".into(), inside.join(DATA).into()]);
    instance::run(programs, folder, "initdb", &arguments, &FATAL)
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
    let tcp = match listen {
        Listen::Socket => None,
        Listen::Tcp => {
            let port = free_port().map_err(doing("No free port of 127.0.0.1 for", folder))?;
            let path = folder.join("password");
            Some((port, Some(fs::read_to_string(&path).map_err(doing("Cannot read", &path))?)))
        }
        Listen::TcpAlone => Some((PORT, None)),
    };
    Instance::start(Postgres { settings, tcp }, programs, folder)
}

impl Postgres {
    /// The port in the socket's name.
    pub fn port(&self) -> u16 {
        self.tcp.as_ref().map_or(PORT, |tcp| tcp.0)
    }

    /// The port of 127.0.0.1 and its password, if it listens there.
    pub fn tcp(&self) -> Option<(u16, Option<&str>)> {
        self.tcp.as_ref().map(|(port, password)| (*port, password.as_deref()))
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
        let addresses = if self.tcp.is_some() { "127.0.0.1" } else { "" };
        let run = quoted(&programs.inside(folder).join("run").display().to_string());
        let text = format!(
            "# Written by bigiron at every start.\n{}listen_addresses = '{addresses}'\nport = {}\nunix_socket_directories = {run}\n\
             unix_socket_permissions = 0700\nlogging_collector = off\npassword_encryption = 'scram-sha-256'\n",
            self.settings,
            self.port()
        );
        let method = if self.tcp().is_some_and(|(_, password)| password.is_none()) { "trust" } else { "scram-sha-256" };
        let access = format!("local all all trust\nhost all all 127.0.0.1/32 {method}\n");
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

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn random_word() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
