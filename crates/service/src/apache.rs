//! Apache: its recipe, and its configuration with each of its multi-processing modules.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use bigiron_archive::SeriesPackage;

use super::error::{ServerError, doing};
use super::httpd::{APPLICATION, CERTIFICATE, Gateway, Httpd, KEY, PID_FILE, PROGRAMS, RUN, SOCKET};
use super::instance::{self, DATA, LOG};
use super::recipe::Recipe;

/// Apache in Debian's archive.
pub const RECIPE: Recipe = Recipe {
    name: "apache",
    title: "Apache",
    instead: "set `web.server` to `url` and `web.url` to a server of your own",
    package: SeriesPackage::InVersion("apache2-bin"),
    version_of: None,
    beside: &["dash"],
    without: &[],
    programs: |_| "usr/sbin".to_owned(),
    plugins: &[|_| MODULES.to_owned()],
    // The C library needs it to end a thread.
    loaded: &["libgcc_s.so"],
    required: &["apache2"],
    version_argument: "-v",
    keeps: |path, _| match path {
        ["usr", "sbin", name] => *name == "apache2",
        ["usr", "lib", "apache2", "modules", name] => KEPT.contains(name),
        _ => false,
    },
    own: None,
    finish: None,
    sees_sys: false,
    revision: 2,
    user: "www-data",
};

const MODULES: &str = "usr/lib/apache2/modules";
const KEPT: [&str; 10] = [
    "mod_mpm_event.so",
    "mod_mpm_worker.so",
    "mod_mpm_prefork.so",
    "mod_authz_core.so",
    "mod_mime.so",
    "mod_ssl.so",
    "mod_cgi.so",
    "mod_cgid.so",
    "mod_proxy.so",
    "mod_proxy_fcgi.so",
];
/// The file of the whole configuration. The server opens its error log itself.
pub(crate) const FILE: &str = "httpd.conf";
/// What its log says when the server is ready.
const READY: &str = "resuming normal operations";
pub(crate) const FATAL: [&str; 7] =
    ["could not bind", "exit signal", "Syntax error", ":emerg]", ":alert]", ":crit]", ":error]"];
/// All workers are busy: new connections wait in the kernel until one is free.
pub(crate) const HARMLESS: [&str; 1] = ["MaxRequestWorkers"];

/// Threads of a process, Debian's value.
pub const THREADS: u32 = 25;

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

/// Processes, and threads of each, that are `workers` in all, or the next number that can be shared equally; at most `most` threads in a process.
pub fn shared(workers: u32, most: u32) -> (u32, u32) {
    let processes = workers.div_ceil(most);
    (processes, workers.div_ceil(processes))
}

pub(crate) fn configuration(httpd: &Httpd, mpm: Mpm, inside: &Path) -> String {
    let at = |name: &str| inside.join(name).display().to_string();
    let module = |name: &str| format!("LoadModule {name}_module /{MODULES}/mod_{name}.so\n");
    let mut loads = [&format!("mpm_{}", mpm.name()), "authz_core", "mime"].map(module).concat();
    // Each connection has a handshake of its own: nothing is resumed.
    let encryption = httpd.tls.as_ref().map_or_else(String::new, |tls| {
        loads += &module("ssl");
        format!(
            "SSLEngine On\nSSLCertificateFile {}\nSSLCertificateKeyFile {}\nSSLProtocol -all +TLSv{}\nSSLSessionCache none\n\
             SSLSessionTickets Off\n",
            at(CERTIFICATE),
            at(KEY),
            tls.version.name(),
        )
    });
    let programs = httpd.gateway.map_or_else(String::new, |gateway| {
        let application = format!("\"proxy:unix:{}|fcgi://localhost/\"", at(SOCKET));
        if gateway != Gateway::Cgi {
            loads.extend(["proxy", "proxy_fcgi"].map(module));
        }
        let (mut text, mut handler) = (String::new(), "cgi-script");
        match (gateway, mpm) {
            (Gateway::FastCgi, _) => handler = &application,
            (_, Mpm::Prefork) => loads += &module("cgi"),
            // Threads have another process start the programs.
            _ => {
                loads += &module("cgid");
                text = format!("ScriptSock {}\n", at("run/cgid.sock"));
            }
        }
        if gateway == Gateway::Both {
            text += &format!("<Location {APPLICATION}>\n    SetHandler {application}\n</Location>\n");
        }
        format!("{text}<Directory {}>\n    Options +ExecCGI\n    SetHandler {handler}\n</Directory>\n", at(PROGRAMS))
    });
    let all = httpd.workers;
    let processes = match mpm {
        Mpm::Prefork => format!(
            "ServerLimit {all}\nMaxRequestWorkers {all}\nStartServers {all}\nMinSpareServers 1\nMaxSpareServers {}\n",
            all + 1
        ),
        Mpm::Event | Mpm::Worker => {
            let (processes, threads) = shared(all, httpd.threads);
            let all = processes * threads;
            let idle = match mpm {
                // Connections that a process may hold in addition to those being served, for each idle thread.
                Mpm::Event => format!("AsyncRequestWorkerFactor {}\n", httpd.connections.div_ceil(all) + 2),
                _ => String::new(),
            };
            format!(
                "ServerLimit {processes}\nThreadLimit {threads}\nThreadsPerChild {threads}\nMaxRequestWorkers {all}\n\
                 StartServers {processes}\nMinSpareThreads 1\nMaxSpareThreads {all}\n{idle}"
            )
        }
    };
    let access_log = match httpd.access_log {
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
         Listen {address}\nListenBacklog 4096\nAcceptFilter http none\n{loads}{processes}\
         Timeout 86400\nKeepAlive On\nKeepAliveTimeout 86400\nMaxKeepAliveRequests 0\nMaxConnectionsPerChild 0\n\
         EnableSendfile {sendfile}\nTypesConfig /dev/null\nAddType text/html .html\nAddType image/png .png\n{access_log}\
         {encryption}DocumentRoot {data}\n<Directory />\n    AllowOverride None\n    Require all granted\n</Directory>\n{programs}",
        root = inside.display(),
        run = at(RUN),
        pid = at(PID_FILE),
        log = at(LOG),
        address = httpd.address,
        sendfile = if httpd.sendfile { "On" } else { "Off" },
        data = at(DATA),
    )
}

/// Makes the error log, which the server's user writes.
pub(crate) fn make_log(folder: &Path, user: u32) -> Result<(), ServerError> {
    let log = folder.join(LOG);
    let opened = File::options().create(true).append(true).open(&log).map(drop);
    opened.and_then(|()| instance::give(&log, user)).map_err(doing("Cannot write", &log))
}

pub(crate) fn start(inside: &Path) -> (&'static str, Vec<OsString>) {
    ("apache2", vec!["-f".into(), inside.join(FILE).into(), "-D".into(), "FOREGROUND".into()])
}

/// Whether the log says that the process `pid` is ready.
pub(crate) fn says_ready(folder: &Path, pid: u32) -> bool {
    let log = fs::read(folder.join(LOG)).unwrap_or_default();
    let says = |line: &str| line.contains(&format!("[pid {pid}")) && line.contains(READY);
    String::from_utf8_lossy(&log).lines().any(says)
}

#[cfg(test)]
mod tests {
    #[test]
    fn workers_are_shared_equally() {
        for (workers, most, shares) in
            [(26, 25, (2, 13)), (50, 25, (2, 25)), (10, 25, (1, 10)), (128, 64, (2, 64)), (53, 25, (3, 18))]
        {
            assert_eq!(super::shared(workers, most), shares, "{workers}");
        }
    }

    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::httpd::{Kind, init};
    use crate::instance::Instance;
    use crate::listen::free_port;
    use crate::nginx::tests::get;
    use crate::programs::Programs;
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
            let kind = Kind::Apache { mpm };
            let apache = Httpd {
                kind,
                address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
                workers,
                threads: THREADS,
                connections: 8,
                sendfile: true,
                access_log: true,
                tls: None,
                gateway: None,
            };
            let mut server = Instance::start(apache, &programs, folder).unwrap();
            let said = get(port, "/a.html");
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\n<p>hello"), "{said}");
            assert!(said.contains("Content-Type: text/html\r\n"), "{said}");
            assert!(fs::read_to_string(folder.join("run/access.log")).unwrap().contains("GET /a.html HTTP/1.1"));
            if mpm == Mpm::Prefork {
                // All of its processes are busy, which it logs once a second as an error.
                let held: Vec<_> = (0..workers).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
                let began = Instant::now();
                while !fs::read_to_string(server.log()).unwrap().contains("reached MaxRequestWorkers") {
                    assert!(began.elapsed() < Duration::from_secs(300), "it has logged nothing");
                    sleep(Duration::from_millis(20));
                }
                assert!(server.complaint(RECIPE.title).is_none());
                drop(held);
            }
            if mpm == Mpm::Worker {
                server.kill();
            } else {
                server.stop().unwrap();
            }
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "its processes are left");
        }
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let kind = Kind::Apache { mpm: Mpm::Event };
        let apache = Httpd {
            kind,
            address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            workers: 50,
            threads: THREADS,
            connections: 8,
            sendfile: false,
            access_log: false,
            tls: None,
            gateway: None,
        };
        let refused = Instance::start(apache, &programs, folder).unwrap_err().to_string();
        assert!(refused.contains(&format!("could not bind to address 127.0.0.1:{port}")), "{refused}");
    }
}
