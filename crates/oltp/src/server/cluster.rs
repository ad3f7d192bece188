//! A private PostgreSQL cluster in a folder of ours.
//!
//! ```text
//! FOLDER/data       what initdb made
//! FOLDER/run        the socket
//! FOLDER/log        what the server says
//! FOLDER/password   of the superuser over TCP (the socket needs none: nobody else reaches the folder)
//! ```
//! Invariant: no process of a [`Cluster`] outlives it, nor the thread that started it.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, test_kill_process, waitpid};

use super::program::Server;
use super::settings::{Settings, quoted};
use crate::config::Transport;
use crate::pg::Url;
use crate::pg::url::Password;
use bigiron_service::error::{ServerError, doing};

/// The superuser and the database.
const SUPERUSER: &str = "postgres";
const DATABASE: &str = "postgres";
/// Names the socket; the port too where nobody else can have it.
const PORT: u16 = 5432;
/// Bytes of a segment of PostgreSQL's log, which are there before the first of them is used.
const WAL_SEGMENT: u64 = 16 << 20;
/// How the C library words `ENOSPC`.
const NO_SPACE: &str = "No space left on device";
/// `sun_path` of a socket's address, less the zero at its end.
const LONGEST_SOCKET: usize = 107;
/// A server may take as long to start (recovery) or to stop (a checkpoint) on a slow disk or in a VM without KVM.
const PATIENCE: Duration = Duration::from_secs(900);

/// Where a cluster listens, beside its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    Socket,
    /// On a free port of 127.0.0.1, with a password: other users of the machine reach it.
    Tcp,
    /// On port 5432 of 127.0.0.1, without a password: for a guest, where nobody else is.
    TcpAlone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Connections are ended, a checkpoint is written.
    Fast,
    /// As in a crash, but by the server's own doing: the next start recovers.
    Immediate,
}

/// A running cluster. Dropping it kills it.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    postmaster: Child,
    /// The port of 127.0.0.1, which names the socket too, and the password there.
    tcp: Option<(u16, Option<String>)>,
    ended: bool,
}

/// In a cluster's folder: names the server's process, and says how far it is.
const PID_FILE: &str = "data/postmaster.pid";

/// A server that lost its machine's power has left the word `ready` behind, and in a guest the next one has the same number as it had.
fn forget_ready(folder: &Path) -> Result<(), ServerError> {
    let path = folder.join(PID_FILE);
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let lines: Vec<&str> = text.lines().enumerate().map(|(i, line)| if i == 7 { "starting" } else { line }).collect();
    fs::write(&path, lines.join("\n") + "\n").map_err(doing("Cannot write", &path))
}

impl Cluster {
    /// Makes a new cluster in `folder`, which exists and is empty but for files of the caller's: locale C, UTF-8. `sync` says whether it must
    /// survive a crash of the machine.
    ///
    /// # Errors
    /// initdb fails (with what it said).
    pub fn init(server: &Server, folder: &Path, sync: bool) -> Result<(), ServerError> {
        let user = server.user(folder).map_err(doing("Cannot find the user of", folder))?;
        for (name, mode) in [("data", 0o700), ("run", 0o700)] {
            let path = folder.join(name);
            fs::create_dir_all(&path)
                .and_then(|()| fs::set_permissions(&path, PermissionsExt::from_mode(mode)))
                .and_then(|()| give(&path, user))
                .map_err(doing("Cannot make", &path))?;
        }
        let path = folder.join("password");
        fs::write(&path, random_word().map_err(doing("No random bytes for", &path))?)
            .and_then(|()| fs::set_permissions(&path, PermissionsExt::from_mode(0o600)))
            .and_then(|()| give(&path, user))
            .map_err(doing("Cannot write", &path))?;
        let inside = server.inside(folder);
        let mut command = server.command("initdb", folder).map_err(doing("Cannot start `initdb` for", folder))?;
        command.args(["--username", SUPERUSER, "--locale=C", "--encoding=UTF8", "--auth-local=trust"]);
        command.arg("--auth-host=scram-sha-256").arg("--pwfile").arg(inside.join("password"));
        if !sync {
            command.arg("--no-sync");
        }
        let output = command.arg("-D").arg(inside.join("data")).output();
        let output = output.map_err(doing("Cannot start `initdb` for", folder))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        Err(refused("`initdb` failed", output.status, &said, folder))
    }

    /// Starts the cluster in `folder` and waits until it accepts connections. It is killed when the thread that calls this ends.
    ///
    /// # Errors
    /// The server does not start: with what it logged.
    pub fn start(server: &Server, folder: &Path, settings: &Settings, listen: Listen) -> Result<Self, ServerError> {
        check_socket(folder)?;
        let tcp = match listen {
            Listen::Socket => None,
            Listen::Tcp => {
                let port = free_port().map_err(doing("No free port of 127.0.0.1 for", folder))?;
                let path = folder.join("password");
                Some((port, Some(fs::read_to_string(&path).map_err(doing("Cannot read", &path))?)))
            }
            Listen::TcpAlone => Some((PORT, None)),
        };
        let user = server.user(folder).map_err(doing("Cannot find the user of", folder))?;
        configure(server, folder, user, settings, tcp.as_ref())?;
        forget_ready(folder)?;
        let path = folder.join("log");
        let log = File::options().create(true).append(true).open(&path).map_err(doing("Cannot write", &path))?;
        let before = log.metadata().map_or(0, |m| m.len());
        let mut command = server.command("postgres", folder).map_err(doing("Cannot start the server of", folder))?;
        command.arg("-D").arg(server.inside(folder).join("data"));
        command.stdout(log.try_clone().map_err(doing("Cannot write", &path))?).stderr(Stdio::from(log));
        let postmaster = command.spawn().map_err(doing("Cannot start the server of", folder))?;
        // If the machine has no memory left, the server goes and nobody else's work; its sessions inherit this. Not allowed everywhere.
        let _ = fs::write(format!("/proc/{}/oom_score_adj", postmaster.id()), "1000");
        let mut cluster = Self { folder: folder.to_owned(), postmaster, tcp, ended: false };
        cluster.wait_until_ready(before)?;
        Ok(cluster)
    }

    fn wait_until_ready(&mut self, logged_before: u64) -> Result<(), ServerError> {
        let patience = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(5);
        loop {
            if let Some(status) = self.postmaster.try_wait().map_err(doing("Cannot wait for", &self.folder))? {
                self.ended = true;
                let log = fs::read(self.log()).unwrap_or_default();
                let new = log.get(logged_before as usize..).unwrap_or_default();
                return Err(refused("The server did not start", status, &String::from_utf8_lossy(new), &self.folder));
            }
            if self.is_ready() {
                return Ok(());
            }
            if Instant::now() >= patience {
                return Err(ServerError::Cluster(format!(
                    "The server in `{}` was not ready after {} s; its log is `log` there",
                    self.folder.display(),
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(100));
        }
    }

    /// What pg_ctl looks at: the eighth line of the file that names the running server's process.
    fn is_ready(&self) -> bool {
        let text = fs::read_to_string(self.folder.join(PID_FILE)).unwrap_or_default();
        let mut lines = text.lines();
        lines.next().and_then(|l| l.trim().parse().ok()) == Some(self.postmaster.id())
            && lines.nth(6).map(str::trim) == Some("ready")
    }

    /// The file that the server logs to.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// What the server has complained of last that ends it, or that its file system has no room for another segment of its log.
    pub fn complaint(&self) -> Option<ServerError> {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let has_room = rustix::fs::statvfs(&self.folder).is_ok_and(|s| s.f_bavail * s.f_frsize >= WAL_SEGMENT);
        if !has_room || log.contains(NO_SPACE) {
            return Some(ServerError::Space { dir: self.folder.clone() });
        }
        let line = log.lines().rfind(|line| line.contains("PANIC:"))?;
        Some(ServerError::Cluster(format!("The server ended itself: {line}")))
    }

    /// The process number of the postmaster, parent of all others.
    pub fn postmaster(&self) -> u32 {
        self.postmaster.id()
    }

    /// Where to connect to. `None` if it was not started for that transport.
    pub fn url(&self, transport: Transport) -> Option<Url> {
        match (transport, &self.tcp) {
            (Transport::Unix, _) => Some(Url::unix(SUPERUSER, &self.folder.join("run"), self.port(), DATABASE)),
            (Transport::Tcp, None) => None,
            (Transport::Tcp, Some((port, password))) => {
                let mut url = Url::tcp(SUPERUSER, "127.0.0.1", *port, DATABASE);
                url.password = password.as_deref().map(Password::new);
                Some(url)
            }
        }
    }

    /// Stops the server and waits for its end.
    ///
    /// # Errors
    /// It does not stop, and was killed; or it did not end well.
    pub fn stop(mut self, how: Stop) -> Result<(), ServerError> {
        let signal = match how {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        };
        let children = children(self.pid());
        kill_process(self.pid(), signal).map_err(io::Error::from).map_err(doing("Cannot stop", &self.folder))?;
        let patience = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(status) = self.postmaster.try_wait().map_err(doing("Cannot wait for", &self.folder))? {
                self.ended = true;
                await_ends(&children);
                self.remove_socket();
                let log = fs::read(self.log()).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                return match how {
                    Stop::Fast if !status.success() => {
                        Err(refused("The server did not stop as it should", status, &log, &self.folder))
                    }
                    _ => Ok(()),
                };
            }
            if Instant::now() >= patience {
                return Err(ServerError::Cluster(format!(
                    "The server in `{}` did not stop within {} s and was killed",
                    self.folder.display(),
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(100));
        }
    }

    /// Kills all processes of the server at once, as a crash does. The next start recovers.
    pub fn kill(mut self) {
        self.kill_all();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.postmaster)
    }

    fn kill_all(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        // Stopped first, so that it starts nobody while its children are counted. It is our child and not reaped: the number is its own.
        let _ = kill_process(self.pid(), Signal::STOP);
        let mut children = children(self.pid());
        // Those that a dead postmaster has left behind write to the data as long as they live.
        children.extend(inhabitants(&self.folder.join("data")).into_iter().filter(|pid| *pid != self.pid()));
        for child in &children {
            let _ = kill_process(*child, Signal::KILL);
        }
        let _ = self.postmaster.kill();
        let _ = self.postmaster.wait();
        await_ends(&children);
        self.remove_socket();
    }

    fn port(&self) -> u16 {
        self.tcp.as_ref().map_or(PORT, |t| t.0)
    }

    /// After a kill the server's socket is still there.
    fn remove_socket(&self) {
        let socket = format!(".s.PGSQL.{}", self.port());
        for name in [format!("{socket}.lock"), socket] {
            let _ = fs::remove_file(self.folder.join("run").join(name));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Writes the server's configuration, all of it: what initdb found out about the machine is not in it.
fn configure(
    server: &Server,
    folder: &Path,
    user: u32,
    settings: &Settings,
    tcp: Option<&(u16, Option<String>)>,
) -> Result<(), ServerError> {
    let inside = server.inside(folder);
    let mut text = String::from("# Written by bigiron at every start.\n");
    text.push_str(&settings.text());
    let addresses = if tcp.is_some() { "127.0.0.1" } else { "" };
    let port = tcp.map_or(PORT, |t| t.0);
    text.push_str(&format!("listen_addresses = '{addresses}'\nport = {port}\n"));
    text.push_str(&format!("unix_socket_directories = {}\n", quoted(&inside.join("run").display().to_string())));
    text.push_str("unix_socket_permissions = 0700\nlogging_collector = off\npassword_encryption = 'scram-sha-256'\n");
    let method = if tcp.is_some_and(|t| t.1.is_none()) { "trust" } else { "scram-sha-256" };
    let access = format!("local all all trust\nhost all all 127.0.0.1/32 {method}\n");
    for (name, text) in [("postgresql.conf", text.as_str()), ("postgresql.auto.conf", ""), ("pg_hba.conf", &access)] {
        let path = folder.join("data").join(name);
        fs::write(&path, text).and_then(|()| give(&path, user)).map_err(doing("Cannot write", &path))?;
    }
    Ok(())
}

/// Makes what root made the server's; an ordinary user's is as it must be.
fn give(path: &Path, user: u32) -> io::Result<()> {
    if rustix::process::geteuid().is_root() { chown(path, Some(user), Some(user)) } else { Ok(()) }
}

/// Whether the path of a socket in `folder` is short enough.
pub fn fits_socket(folder: &Path) -> bool {
    socket_length(&folder.join("run")) <= LONGEST_SOCKET
}

fn socket_length(run: &Path) -> usize {
    run.as_os_str().len() + "/.s.PGSQL.65535".len()
}

fn check_socket(folder: &Path) -> Result<(), ServerError> {
    let run = folder.join("run");
    let length = socket_length(&run);
    if length > LONGEST_SOCKET {
        return Err(ServerError::Cluster(format!(
            "The path of the server's socket in `{}` is {length} bytes long, and {LONGEST_SOCKET} are possible; set TMPDIR to a folder \
             with a shorter path",
            run.display()
        )));
    }
    Ok(())
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn random_word() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// The children of a process: the server's others are all its postmaster's.
fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get().to_string();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let of_parent = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, in brackets, may hold anything.
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)) == Some(&parent)
    };
    numbers.filter(of_parent).filter_map(Pid::from_raw).collect()
}

/// Processes whose working folder this is, in whatever name space: all of a server's work in its data folder.
fn inhabitants(folder: &Path) -> Vec<Pid> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let (Some(here), Ok(entries)) = (identity(folder), fs::read_dir("/proc")) else { return Vec::new() };
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let inside = |pid: &i32| identity(Path::new(&format!("/proc/{pid}/cwd"))) == Some(here);
    numbers.filter(inside).filter_map(Pid::from_raw).collect()
}

/// Waits until these processes, dying, are gone; reaps those that have become ours.
fn await_ends(pids: &[Pid]) {
    let patience = Instant::now() + Duration::from_secs(30);
    for pid in pids {
        while Instant::now() < patience {
            let ours = waitpid(Some(*pid), WaitOptions::NOHANG);
            if matches!(ours, Ok(Some(_))) || test_kill_process(*pid) == Err(rustix::io::Errno::SRCH) || is_dead(*pid) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether a process that is still listed has ended, and waits for a parent that is not us.
fn is_dead(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// An error with the lines of a log that say why.
fn refused(what: &str, status: ExitStatus, log: &str, folder: &Path) -> ServerError {
    if log.contains(NO_SPACE) {
        return ServerError::Space { dir: folder.to_owned() };
    }
    // What is wrong with a setting is said in lines that only count as information.
    const WEIGHTY: [&str; 6] = ["FATAL:", "PANIC:", "HINT:", "ERROR:", "error:", " parameter \""];
    let weighty = |l: &&str| WEIGHTY.iter().any(|w| l.contains(w));
    let mut lines: Vec<&str> = log.lines().filter(weighty).collect();
    if lines.is_empty() {
        lines = log.lines().collect();
    }
    let last = lines[lines.len().saturating_sub(4)..].join("; ");
    ServerError::Cluster(format!("{what} ({status}): {last}"))
}
