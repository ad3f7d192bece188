//! Apache: its recipe, and how a private server runs with each of its multi-processing modules.
//!
//! ```text
//! FOLDER/data         the documents
//! FOLDER/run          the number of the running process, the access log
//! FOLDER/httpd.conf   the whole configuration
//! FOLDER/log          the server's output and its error log
//! ```

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bigiron_archive::SeriesPackage;

use super::error::{ServerError, doing};
use super::instance::{self, DATA, LOG, Server};
use super::nginx::{RUN, has_number};
use super::programs::Programs;
use super::recipe::Recipe;

/// Apache in Debian's archive.
pub const RECIPE: Recipe = Recipe {
    name: "apache",
    title: "Apache",
    instead: "set `web.server` to `url` and `web.url` to a server of your own",
    package: SeriesPackage::InVersion("apache2-bin"),
    beside: &["dash"],
    without: &[],
    programs: |_| "usr/sbin".to_owned(),
    plugins: Some(|_| MODULES.to_owned()),
    // The C library needs it to end a thread.
    loaded: &["libgcc_s.so"],
    required: &["apache2"],
    version_argument: "-v",
    keeps: |path, _| match path {
        ["usr", "sbin", name] => *name == "apache2",
        ["usr", "lib", "apache2", "modules", name] => KEPT.contains(name),
        _ => false,
    },
    user: "www-data",
};

const MODULES: &str = "usr/lib/apache2/modules";
const KEPT: [&str; 5] =
    ["mod_mpm_event.so", "mod_mpm_worker.so", "mod_mpm_prefork.so", "mod_authz_core.so", "mod_mime.so"];
/// The file with the number of the running process.
const PID_FILE: &str = "run/pid";
/// What its log says when the server is ready.
const READY: &str = "resuming normal operations";
const FATAL: [&str; 7] = ["could not bind", "exit signal", "Syntax error", ":emerg]", ":alert]", ":crit]", ":error]"];
/// Threads of a process, Debian's value.
const THREADS: u32 = 25;

/// Apache's multi-processing module: what serves a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mpm {
    /// A thread serves a request, and the connection waits in a set of all idle ones.
    #[default]
    Event,
    /// A thread serves a connection until it ends.
    Worker,
    /// A process serves a connection until it ends.
    Prefork,
}

impl Mpm {
    /// Its name in the server's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Worker => "worker",
            Self::Prefork => "prefork",
        }
    }

    /// Threads, or processes without threads, with which all of `connections` are served at the same time.
    pub fn workers_for(self, connections: u32) -> u32 {
        match self {
            Self::Event => 2 * THREADS,
            // A connection that is kept has a worker of its own, and one more lets a new connection in while an old one ends.
            Self::Worker => (connections + 1).next_multiple_of(THREADS),
            Self::Prefork => connections + 1,
        }
    }
}

/// How a server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apache {
    /// The port of 127.0.0.1.
    pub port: u16,
    pub mpm: Mpm,
    /// Threads of all processes together, or processes without threads; all are started at once, and their number does not change.
    pub workers: u32,
    /// Most connections of all clients together.
    pub connections: u32,
    pub sendfile: bool,
    pub access_log: bool,
}

impl Apache {
    fn configuration(&self, modules: &Path, inside: &Path) -> String {
        let at = |name: &str| inside.join(name).display().to_string();
        let module =
            |name: &str| format!("LoadModule {name}_module {}\n", modules.join(format!("mod_{name}.so")).display());
        let loads = [&format!("mpm_{}", self.mpm.name()), "authz_core", "mime"].map(module).concat();
        let all = self.workers;
        let mpm = match self.mpm {
            Mpm::Prefork => format!(
                "ServerLimit {all}\nMaxRequestWorkers {all}\nStartServers {all}\nMinSpareServers 1\nMaxSpareServers {}\n",
                all + 1
            ),
            Mpm::Event | Mpm::Worker => {
                let (processes, threads) = (all.div_ceil(THREADS), THREADS.min(all));
                let all = processes * threads;
                let idle = match self.mpm {
                    // Connections that a process may hold in addition to those being served, for each idle thread.
                    Mpm::Event => format!("AsyncRequestWorkerFactor {}\n", self.connections.div_ceil(all) + 2),
                    _ => String::new(),
                };
                format!(
                    "ServerLimit {processes}\nThreadLimit {threads}\nThreadsPerChild {threads}\nMaxRequestWorkers {all}\n\
                     StartServers {processes}\nMinSpareThreads 1\nMaxSpareThreads {all}\n{idle}"
                )
            }
        };
        let access_log = match self.access_log {
            true => format!(
                "LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined\n\
                 CustomLog {} combined\n",
                at("run/access.log")
            ),
            false => String::new(),
        };
        // The names of media types are few, and given here: the package that lists them all is not part of the tree.
        format!(
            "# Written by bigiron at every start.\n\
             ServerRoot {root}\nServerName 127.0.0.1\nDefaultRuntimeDir {run}\nPidFile {pid}\nErrorLog {log}\nLogLevel notice\n\
             Listen 127.0.0.1:{port}\nListenBacklog 4096\nAcceptFilter http none\n{loads}{mpm}\
             Timeout 86400\nKeepAlive On\nKeepAliveTimeout 86400\nMaxKeepAliveRequests 0\nMaxConnectionsPerChild 0\n\
             EnableSendfile {sendfile}\nTypesConfig /dev/null\nAddType text/html .html\nAddType image/png .png\n{access_log}\
             DocumentRoot {data}\n<Directory />\n    AllowOverride None\n    Require all granted\n</Directory>\n",
            root = inside.display(),
            run = at(RUN),
            pid = at(PID_FILE),
            log = at(LOG),
            port = self.port,
            sendfile = if self.sendfile { "On" } else { "Off" },
            data = at(DATA),
        )
    }
}

impl Server for Apache {
    /// The complete configuration; the server reads no other file.
    fn configure(&self, programs: &Programs, folder: &Path) -> Result<(), ServerError> {
        let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
        // The server opens its error log itself.
        let log = folder.join(LOG);
        let opened = File::options().create(true).append(true).open(&log).map(drop);
        opened.and_then(|()| instance::give(&log, user)).map_err(doing("Cannot write", &log))?;
        let text = self.configuration(&Path::new("/").join(MODULES), &programs.inside(folder));
        instance::write(&folder.join("httpd.conf"), text, user)
    }

    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>) {
        ("apache2", vec!["-f".into(), inside.join("httpd.conf").into(), "-D".into(), "FOREGROUND".into()])
    }

    fn is_ready(&self, folder: &Path, pid: u32) -> bool {
        // The file is written before the processes that serve are started.
        let log = || fs::read(folder.join(LOG)).unwrap_or_default();
        let says = |line: &str| line.contains(&format!("[pid {pid}")) && line.contains(READY);
        has_number(folder, PID_FILE, pid) && String::from_utf8_lossy(&log()).lines().any(says)
    }

    fn leaves_processes(&self) -> bool {
        true
    }

    fn leftovers(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join(PID_FILE)]
    }

    fn fatal_words(&self) -> &'static [&'static str] {
        &FATAL
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::instance::Instance;
    use crate::listen::free_port;
    use crate::nginx::init;
    use crate::nginx::tests::get;
    use crate::root;
    use crate::server_folder::server_folder;
    use bigiron_archive::Store;

    #[test]
    fn a_server_starts_with_each_module_serves_and_stops() {
        let say = |line: &str| eprintln!("{line}");
        let root = root::ensure(&Store::open().unwrap(), &RECIPE, "2.4", &say).unwrap();
        assert_eq!(root.about.left_out, Vec::<String>::new());
        let programs = Programs::of(&RECIPE, &root).unwrap();
        assert!(programs.version().unwrap().contains("Apache/2.4."), "{:?}", programs.version());
        let place = server_folder(&std::env::temp_dir()).unwrap();
        let folder = place.path();
        init(&programs, folder).unwrap();
        let user = programs.user(folder).unwrap();
        instance::write(&folder.join("data/a.html"), "<p>hello", user).unwrap();
        for mpm in [Mpm::Event, Mpm::Worker, Mpm::Prefork] {
            let port = free_port(folder).unwrap();
            let workers = mpm.workers_for(8);
            let apache = Apache { port, mpm, workers, connections: 8, sendfile: true, access_log: true };
            let server = Instance::start(apache, &programs, folder).unwrap();
            let said = get(port, "/a.html");
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\n<p>hello"), "{said}");
            assert!(said.contains("Content-Type: text/html\r\n"), "{said}");
            assert!(fs::read_to_string(folder.join("run/access.log")).unwrap().contains("GET /a.html HTTP/1.1"));
            if mpm == Mpm::Worker {
                server.kill();
            } else {
                server.stop().unwrap();
            }
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "its processes are left");
        }
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let apache = Apache { port, mpm: Mpm::Event, workers: 50, connections: 8, sendfile: false, access_log: false };
        let refused = Instance::start(apache, &programs, folder).unwrap_err().to_string();
        assert!(refused.contains(&format!("could not bind to address 127.0.0.1:{port}")), "{refused}");
    }
}
