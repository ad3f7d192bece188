//! nginx: its recipe, and its configuration.

use std::ffi::OsString;
use std::path::Path;

use bigiron_archive::SeriesPackage;

use super::httpd::{APPLICATION, CERTIFICATE, Gateway, Httpd, KEY, PID_FILE, SOCKET};
use super::instance::DATA;
use super::recipe::Recipe;

/// nginx in Debian's archive.
pub const RECIPE: Recipe = Recipe {
    name: "nginx",
    title: "nginx",
    instead: "set `web.server` to `url` and `web.url` to a server of your own",
    package: SeriesPackage::InVersion("nginx"),
    version_of: None,
    beside: &["dash"],
    without: &[],
    programs: |_| "usr/sbin".to_owned(),
    plugins: &[],
    loaded: &[],
    required: &["nginx"],
    version_argument: "-v",
    keeps: |path, _| matches!(path, ["usr", "sbin", "nginx"]),
    own: None,
    finish: None,
    sees_sys: false,
    revision: 1,
    user: "www-data",
};

/// The file of the whole configuration.
pub(crate) const FILE: &str = "nginx.conf";
pub(crate) const FATAL: [&str; 3] = ["[emerg]", "[alert]", "[crit]"];

pub(crate) fn configuration(httpd: &Httpd, reuseport: bool, inside: &Path) -> String {
    let at = |name: &str| inside.join(name).display().to_string();
    let switch = |on: bool| if on { "on" } else { "off" };
    // A worker's share of the connections can be all of them. Its listening socket and the pipe of the master count too, and with less than a
    // sixteenth free it closes idle ones.
    let most = httpd.connections + httpd.connections / 8 + 64;
    let access_log = if httpd.access_log { format!("{} combined", at("run/access.log")) } else { "off".to_owned() };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("    {name}_temp_path {};\n", at(&format!("run/{name}"))))
        .collect();
    // Each connection has a handshake of its own: nothing is resumed.
    let encryption = httpd.tls.as_ref().map_or_else(String::new, |tls| {
        format!(
            "        ssl_certificate {};\n        ssl_certificate_key {};\n        ssl_protocols TLSv{};\n        \
             ssl_session_cache off;\n        ssl_session_tickets off;\n",
            at(CERTIFICATE),
            at(KEY),
            tls.version.name(),
        )
    });
    let programs = httpd.gateway.map_or_else(String::new, |gateway| {
        let location = |path: &str, more: &str| {
            format!(
                "        location {path} {{\n            fastcgi_pass unix:{};\n            fastcgi_param QUERY_STRING $query_string;\n            \
                 fastcgi_param REQUEST_METHOD $request_method;\n{more}        }}\n",
                at(SOCKET)
            )
        };
        if gateway != Gateway::Both {
            return location("/cgi/", "");
        }
        let more = "            fastcgi_param REMOTE_ADDR $remote_addr;\n            fastcgi_param SCRIPT_NAME $fastcgi_script_name;\n";
        location(&format!("= {APPLICATION}"), more) + &location("/cgi/", more)
    });
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
         server {{\n        listen {address}{tls}{reuseport} backlog=4096;\n{encryption}        root {data};\n{programs}    }}\n}}\n",
        workers = httpd.workers,
        pid = at(PID_FILE),
        data = at(DATA),
        tls = if httpd.tls.is_some() { " ssl" } else { "" },
        sendfile = switch(httpd.sendfile),
        address = httpd.address,
        reuseport = if reuseport { " reuseport" } else { "" },
    )
}

pub(crate) fn start(inside: &Path) -> (&'static str, Vec<OsString>) {
    let arguments = ["-e".into(), "stderr".into(), "-p".into(), inside.into(), "-c".into()];
    ("nginx", arguments.into_iter().chain([inside.join(FILE).into()]).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};

    use super::*;
    use crate::httpd::{Kind, init};
    use crate::instance::{self, Instance};
    use crate::listen::free_port;
    use crate::programs::Programs;
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
        let nginx = Httpd {
            kind: Kind::Nginx { reuseport: true },
            address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            workers: 2,
            threads: 1,
            connections: 8,
            sendfile: true,
            access_log: true,
            tls: None,
            gateway: None,
        };
        let server = Instance::start(nginx.clone(), &programs, folder).unwrap();
        let said = get(port, "/a.html");
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\n<p>hello"), "{said}");
        assert!(get(port, "/none").starts_with("HTTP/1.1 404 "));
        assert!(fs::read_to_string(folder.join("run/access.log")).unwrap().contains("GET /none HTTP/1.1"));
        server.kill();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "its workers are left");

        let again = Instance::start(Httpd { sendfile: false, access_log: false, ..nginx.clone() }, &programs, folder);
        let again = again.unwrap();
        assert!(get(port, "/a.html").ends_with("<p>hello"));
        again.stop().unwrap();

        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let refused =
            Instance::start(Httpd { address, kind: Kind::Nginx { reuseport: false }, ..nginx }, &programs, folder)
                .unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains(&format!("127.0.0.1:{port} failed (98: Address already in use)")), "{refused}");
    }
}
