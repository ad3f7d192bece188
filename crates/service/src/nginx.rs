//! nginx: its recipe, and how a private server runs.
//!
//! ```text
//! FOLDER/data         the documents
//! FOLDER/run          the number of the running process, the access log, temporary files
//! FOLDER/nginx.conf   the whole configuration
//! FOLDER/log          the server's output
//! ```

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use bigiron_archive::SeriesPackage;

use super::error::{ServerError, doing};
use super::instance::{self, DATA, Server};
use super::programs::Programs;
use super::recipe::Recipe;

/// nginx in Debian's archive.
pub const RECIPE: Recipe = Recipe {
    name: "nginx",
    title: "nginx",
    instead: "set `web.server` to `url` and `web.url` to a server of your own",
    package: SeriesPackage::InVersion("nginx"),
    beside: &["dash"],
    without: &[],
    programs: |_| "usr/sbin".to_owned(),
    plugins: None,
    loaded: &[],
    required: &["nginx"],
    version_argument: "-v",
    keeps: |path, _| matches!(path, ["usr", "sbin", "nginx"]),
    user: "www-data",
};

/// The folder of what the server writes, relative to its own.
pub const RUN: &str = "run";
/// The file with the number of the running process. It is written when the server listens.
const PID_FILE: &str = "run/pid";
const FATAL: [&str; 3] = ["[emerg]", "[alert]", "[crit]"];

/// How a server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nginx {
    /// The port of 127.0.0.1.
    pub port: u16,
    /// Worker processes.
    pub workers: u32,
    /// Most connections of all clients together.
    pub connections: u32,
    pub sendfile: bool,
    pub access_log: bool,
    /// Whether each worker has a listening socket of its own (`SO_REUSEPORT`).
    pub reuseport: bool,
}

/// Creates the folders of a web server in `folder`, which exists: nginx and Apache have the same.
///
/// # Errors
/// They cannot be made.
pub fn init(programs: &Programs, folder: &Path) -> Result<(), ServerError> {
    let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
    [DATA, RUN].iter().try_for_each(|name| instance::make_folder(&folder.join(name), user))
}

/// Whether the file of the running process's number holds `pid`.
pub(crate) fn has_number(folder: &Path, file: &str, pid: u32) -> bool {
    fs::read_to_string(folder.join(file)).is_ok_and(|text| text.trim() == pid.to_string())
}

impl Nginx {
    fn configuration(&self, inside: &Path) -> String {
        let at = |name: &str| inside.join(name).display().to_string();
        let switch = |on: bool| if on { "on" } else { "off" };
        // A worker's share of the connections can be all of them. Its listening socket and the pipe of the master count too, and with less than a
        // sixteenth free it closes idle ones.
        let most = self.connections + self.connections / 8 + 64;
        let access_log = if self.access_log { format!("{} combined", at("run/access.log")) } else { "off".to_owned() };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("    {name}_temp_path {};\n", at(&format!("run/{name}"))))
            .collect();
        // `tcp_nopush` goes with `sendfile` in Debian's configuration. A connection ends when its client ends it.
        format!(
            "# Written by bigiron at every start.\n\
             daemon off;\n\
             worker_processes {workers};\n\
             pid {pid};\n\
             working_directory {data};\n\
             error_log stderr notice;\n\
             events {{\n    worker_connections {most};\n}}\n\
             http {{\n    access_log {access_log};\n    sendfile {sendfile};\n    tcp_nopush {sendfile};\n    \
             keepalive_timeout 86400;\n    keepalive_requests 1000000000;\n    default_type application/octet-stream;\n    \
             types {{\n        text/html html;\n        image/png png;\n    }}\n{temporary}    \
             server {{\n        listen 127.0.0.1:{port}{reuseport} backlog=4096;\n        root {data};\n    }}\n}}\n",
            workers = self.workers,
            pid = at(PID_FILE),
            data = at(DATA),
            sendfile = switch(self.sendfile),
            port = self.port,
            reuseport = if self.reuseport { " reuseport" } else { "" },
        )
    }
}

impl Server for Nginx {
    /// The complete configuration; the server reads no other file.
    fn configure(&self, programs: &Programs, folder: &Path) -> Result<(), ServerError> {
        let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
        let text = self.configuration(&programs.inside(folder));
        instance::write(&folder.join("nginx.conf"), text, user)
    }

    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>) {
        let arguments = ["-e".into(), "stderr".into(), "-p".into(), inside.into(), "-c".into()];
        ("nginx", arguments.into_iter().chain([inside.join("nginx.conf").into()]).collect())
    }

    fn is_ready(&self, folder: &Path, pid: u32) -> bool {
        has_number(folder, PID_FILE, pid)
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
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::instance::Instance;
    use crate::listen::free_port;
    use crate::root;
    use crate::server_folder::server_folder;
    use bigiron_archive::Store;

    pub(crate) fn get(port: u16, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn a_server_starts_serves_survives_a_kill_and_stops() {
        let say = |line: &str| eprintln!("{line}");
        let root = root::ensure(&Store::open().unwrap(), &RECIPE, "1.22", &say).unwrap();
        let programs = Programs::of(&RECIPE, &root).unwrap();
        assert!(programs.version().unwrap().contains("nginx/1.22."), "{:?}", programs.version());
        let place = server_folder(&std::env::temp_dir()).unwrap();
        let folder = place.path();
        init(&programs, folder).unwrap();
        let user = programs.user(folder).unwrap();
        instance::write(&folder.join("data/a.html"), "<p>hello", user).unwrap();
        let port = free_port(folder).unwrap();
        let nginx = Nginx { port, workers: 2, connections: 8, sendfile: true, access_log: true, reuseport: true };
        let server = Instance::start(nginx.clone(), &programs, folder).unwrap();
        let said = get(port, "/a.html");
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\n<p>hello"), "{said}");
        assert!(get(port, "/none").starts_with("HTTP/1.1 404 "));
        assert!(fs::read_to_string(folder.join("run/access.log")).unwrap().contains("GET /none HTTP/1.1"));
        server.kill();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "its workers are left");

        let again = Instance::start(Nginx { sendfile: false, access_log: false, ..nginx }, &programs, folder);
        let again = again.unwrap();
        assert!(get(port, "/a.html").ends_with("<p>hello"));
        again.stop().unwrap();

        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let refused = Instance::start(Nginx { port, reuseport: false, ..nginx }, &programs, folder).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains(&format!("127.0.0.1:{port} failed (98: Address already in use)")), "{refused}");
    }
}
