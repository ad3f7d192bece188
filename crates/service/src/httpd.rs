//! A private web server: what nginx and Apache have in common.
//!
//! ```text
//! FOLDER/data             the documents
//! FOLDER/run              the number of the running process, the access log, temporary files
//! FOLDER/certificate.pem  with TLS; and FOLDER/key.pem
//! FOLDER/log              the server's output
//! ```
//! The configuration is a file of each server's own.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use super::apache::{self, Mpm};
use super::error::{ServerError, doing};
use super::instance::{self, DATA, Server};
use super::nginx;
use super::programs::Programs;
use super::recipe::Recipe;

/// The folder of what the server writes, relative to its own.
pub const RUN: &str = "run";
/// The file with the number of the running process.
pub(crate) const PID_FILE: &str = "run/pid";
/// The folder of programs among the documents, and the socket of the application that answers with FastCGI.
pub const PROGRAMS: &str = "data/cgi";
pub const SOCKET: &str = "run/page.sock";
/// The certificate and its key.
pub(crate) const CERTIFICATE: &str = "certificate.pem";
pub(crate) const KEY: &str = "key.pem";

/// Which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nginx {
        /// Whether each worker has a listening socket of its own (`SO_REUSEPORT`).
        reuseport: bool,
    },
    Apache {
        mpm: Mpm,
    },
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    V12,
    #[default]
    V13,
}

impl TlsVersion {
    /// `1.3`
    pub fn name(self) -> &'static str {
        match self {
            Self::V12 => "1.2",
            Self::V13 => "1.3",
        }
    }
}

/// How a server runs programs for their pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// A process for each request; only Apache.
    Cgi,
    /// An application listens on [`SOCKET`] and answers for what is below [`PROGRAMS`].
    FastCgi,
    /// The application answers for [`APPLICATION`], and a process for what is below [`PROGRAMS`]; nginx, which starts none, leaves both to the
    /// application.
    Both,
}

/// The path of the application's own pages.
pub const APPLICATION: &str = "/ads";

/// How a server encrypts; every connection does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The only one that it offers.
    pub version: TlsVersion,
    /// As PEM, with its key.
    pub certificate: String,
    pub key: String,
}

/// How a server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Httpd {
    pub kind: Kind,
    /// Where it listens.
    pub address: SocketAddrV4,
    /// nginx: processes. Apache: threads of all processes together, or processes without threads; all are started at once, and their number does not
    /// change.
    pub workers: u32,
    /// Apache's threads of a process.
    pub threads: u32,
    /// Most connections of all clients together.
    pub connections: u32,
    pub sendfile: bool,
    pub access_log: bool,
    pub tls: Option<Tls>,
    /// How programs are run, if there are any.
    pub gateway: Option<Gateway>,
}

impl Kind {
    pub fn recipe(self) -> &'static Recipe {
        match self {
            Self::Nginx { .. } => &nginx::RECIPE,
            Self::Apache { .. } => &apache::RECIPE,
        }
    }

    /// Whether the server does not wait for its CGI programs, so that no process has their CPU time: `mod_cgid` ignores SIGCHLD.
    pub fn drops_cpu_time(self) -> bool {
        matches!(self, Self::Apache { mpm: Mpm::Event | Mpm::Worker })
    }
}

/// Creates the folders of a server in `folder`, which exists.
///
/// # Errors
/// They cannot be made.
pub fn init(programs: &Programs, folder: &Path) -> Result<(), ServerError> {
    let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
    [DATA, RUN].iter().try_for_each(|name| instance::make_folder(&folder.join(name), user))
}

impl Server for Httpd {
    /// The complete configuration; the server reads no other file.
    fn configure(&self, programs: &Programs, folder: &Path) -> Result<(), ServerError> {
        let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
        if let Some(tls) = &self.tls {
            instance::write(&folder.join(CERTIFICATE), &tls.certificate, user)?;
            instance::write(&folder.join(KEY), &tls.key, user)?;
        }
        let inside = programs.inside(folder);
        let (file, text) = match self.kind {
            Kind::Nginx { reuseport } => (nginx::FILE, nginx::configuration(self, reuseport, &inside)),
            Kind::Apache { mpm } => {
                apache::make_log(folder, user)?;
                (apache::FILE, apache::configuration(self, mpm, &inside))
            }
        };
        instance::write(&folder.join(file), text, user)
    }

    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>) {
        match self.kind {
            Kind::Nginx { .. } => nginx::start(inside),
            Kind::Apache { .. } => apache::start(inside),
        }
    }

    fn is_ready(&self, folder: &Path, pid: u32) -> bool {
        let number = fs::read_to_string(folder.join(PID_FILE));
        let has_number = number.is_ok_and(|text| text.trim() == pid.to_string());
        // nginx writes it when it listens, Apache before the processes that serve are started.
        has_number && (matches!(self.kind, Kind::Nginx { .. }) || apache::says_ready(folder, pid))
    }

    fn leaves_processes(&self) -> bool {
        true
    }

    fn leftovers(&self, folder: &Path) -> Vec<PathBuf> {
        vec![folder.join(PID_FILE)]
    }

    fn fatal_words(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Nginx { .. } => &nginx::FATAL,
            Kind::Apache { .. } => &apache::FATAL,
        }
    }

    fn harmless_words(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Nginx { .. } => &[],
            Kind::Apache { .. } => &apache::HARMLESS,
        }
    }
}
