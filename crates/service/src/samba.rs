//! Samba's file server: its recipe, and its configuration.
//!
//! ```text
//! FOLDER/data           the share
//! FOLDER/run            databases, sockets and the number of the running process
//! FOLDER/smb.conf       the whole configuration
//! FOLDER/run/smbpasswd  the only account, with the hash of its password
//! FOLDER/log            the server's output
//! ```

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::process::Signal;

use bigiron_archive::SeriesPackage;

use super::error::{ServerError, doing};
use super::instance::{self, DATA, Server};
use super::listen::is_listening;
use super::programs::Programs;
use super::recipe::Recipe;
use super::tree::UID;

/// Samba in Debian's archive.
pub const RECIPE: Recipe = Recipe {
    name: "samba",
    title: "Samba",
    instead: "set `files.server` to `nfs`, which is part of the kernel",
    package: SeriesPackage::InVersion("samba"),
    version_of: None,
    beside: &["dash"],
    without: &[],
    programs: |_| "usr/sbin".to_owned(),
    plugins: &[|_| LIBRARIES.to_owned()],
    loaded: &[],
    required: &["smbd"],
    version_argument: "--version",
    keeps: |path, _| match path {
        ["usr", "sbin", name] => *name == "smbd",
        ["usr", "lib", "x86_64-linux-gnu", "samba", name] => name.contains(".so"),
        _ => false,
    },
    own: None,
    finish: None,
    sees_sys: false,
    revision: 1,
    user: USER,
};

/// Libraries of Samba's own programs.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu/samba";
/// The account, in the system and in Samba.
pub const USER: &str = "samba";
/// The name of the share, which is the folder [`DATA`].
pub const SHARE: &str = "share";
const RUN: &str = "run";
const FILE: &str = "smb.conf";
const PASSWORDS: &str = "run/smbpasswd";
const PID_FILE: &str = "run/smbd.pid";
/// Not just `failed`: it complains of folders for its log and its core dumps, which it does without.
const FATAL: [&str; 4] = ["PANIC", "ERROR", "open_socket", "already in use"];

/// How the server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smbd {
    /// The port of 127.0.0.1.
    pub port: u16,
    /// The only version of the protocol, as Samba names it: `SMB3_11`.
    pub protocol: &'static str,
    /// Whether every message must be signed; encrypted ones need not.
    pub signs: bool,
    pub encrypts: bool,
    pub oplocks: bool,
    /// Whether reads and writes go to threads.
    pub asynchronous: bool,
    /// Whether a session may have several connections.
    pub multichannel: bool,
    /// The hash of the account's password, by which NTLM knows it.
    pub password_hash: [u8; 16],
}

impl Smbd {
    fn configuration(&self, inside: &Path) -> String {
        let run = inside.join(RUN);
        let run = run.display();
        let switch = |on: bool| if on { "yes" } else { "no" };
        let sizes = if self.asynchronous { 1 } else { 0 };
        // The default since 4.15; series before it need the line. Clients know the address, so the server need not name its interfaces.
        let channels = if self.multichannel { "  server multi channel support = yes\n" } else { "" };
        let (encryption, of_share) = match (self.encrypts, self.multichannel) {
            (false, _) => ("off", ""),
            (true, false) => ("required", ""),
            // The messages that bind a further channel are signed and not encrypted (MS-SMB2 3.2.4.1.8). A session that requires encryption refuses them, so
            // the share requires it instead.
            (true, true) => ("desired", "  server smb encrypt = required\n"),
        };
        // No printers, no names but the address, no helpers; the rest is Samba's own default.
        format!(
            "# Written by bigiron at every start.\n\
             [global]\n  server role = standalone server\n  disable netbios = yes\n  smb ports = {port}\n  interfaces = 127.0.0.1/8\n  \
             bind interfaces only = yes\n  dos charset = ASCII\n  load printers = no\n  printcap name = /dev/null\n  \
             disable spoolss = yes\n  rpc start on demand helpers = no\n  dns proxy = no\n  guest account = {USER}\n  \
             passdb backend = smbpasswd:{passwords}\n  private dir = {run}\n  lock directory = {run}\n  state directory = {run}\n  \
             cache directory = {run}\n  pid directory = {run}\n  ncalrpc dir = {run}/ncalrpc\n  log level = 0\n  \
             server min protocol = {protocol}\n  server max protocol = {protocol}\n  server signing = {signing}\n  \
             server smb encrypt = {encryption}\n{channels}\
             [{SHARE}]\n  path = {data}\n  read only = no\n  oplocks = {oplocks}\n  level2 oplocks = {oplocks}\n  aio read size = {sizes}\n  \
             aio write size = {sizes}\n{of_share}",
            port = self.port,
            passwords = inside.join(PASSWORDS).display(),
            protocol = self.protocol,
            signing = if self.signs { "mandatory" } else { "auto" },
            data = inside.join(DATA).display(),
            oplocks = switch(self.oplocks),
        )
    }

    /// A line of smbpasswd(5), without a hash for LAN Manager.
    fn account(&self, user: u32) -> String {
        let hash: String = self.password_hash.iter().map(|b| format!("{b:02X}")).collect();
        format!("{USER}:{user}:{}:{hash}:[U          ]:LCT-00000001:\n", "X".repeat(32))
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

impl Server for Smbd {
    /// The complete configuration; the server reads no other file.
    fn configure(&self, programs: &Programs, folder: &Path) -> Result<(), ServerError> {
        let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
        instance::write(&folder.join(PASSWORDS), self.account(UID), user)?;
        instance::write(&folder.join(FILE), self.configuration(&programs.inside(folder)), user)
    }

    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>) {
        let arguments = ["--foreground".into(), "--no-process-group".into(), "--debug-stdout".into(), "-s".into()];
        ("smbd", arguments.into_iter().chain([inside.join(FILE).into()]).collect())
    }

    fn is_ready(&self, folder: &Path, pid: u32) -> bool {
        let number = fs::read_to_string(folder.join(PID_FILE)).unwrap_or_default();
        let user = fs::metadata(folder.join(DATA)).map(|folder| folder.uid());
        // The number is written before the socket is there.
        let is_own = number.trim_end_matches(['\0', '\n']) == pid.to_string();
        is_own && user.is_ok_and(|user| is_listening(self.port, user))
    }

    /// It ends its children, then itself by the signal.
    fn ends_well(&self, status: ExitStatus) -> bool {
        status.success() || status.signal() == Some(Signal::TERM.as_raw())
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
    use crate::root;
    use crate::server_folder::server_folder;
    use bigiron_archive::Store;

    #[test]
    fn a_server_starts_listens_survives_a_kill_and_stops() {
        let say = |line: &str| eprintln!("{line}");
        let root = root::ensure(&Store::open().unwrap(), &RECIPE, "4.17", &say).unwrap();
        let programs = Programs::of(&RECIPE, &root).unwrap();
        assert!(programs.version().unwrap().contains("4.17."), "{:?}", programs.version());
        let place = server_folder(&std::env::temp_dir()).unwrap();
        let folder = place.path();
        init(&programs, folder).unwrap();
        let port = free_port(folder).unwrap();
        let smbd = Smbd {
            port,
            protocol: "SMB3_11",
            signs: true,
            encrypts: false,
            oplocks: true,
            asynchronous: true,
            multichannel: false,
            password_hash: [7; 16],
        };
        let server = Instance::start(smbd.clone(), &programs, folder).unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        server.kill();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "its processes are left");

        Instance::start(smbd.clone(), &programs, folder).unwrap().stop().unwrap();

        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let refused = Instance::start(Smbd { port, ..smbd }, &programs, folder).unwrap_err().to_string();
        assert!(refused.contains("Address already in use"), "{refused}");
    }
}
