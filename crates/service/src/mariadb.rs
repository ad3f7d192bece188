//! MariaDB: its recipe, and how a private server runs.
//!
//! ```text
//! FOLDER/data           made by `mariadbd --bootstrap`
//! FOLDER/run            the socket, and the number of the running process
//! FOLDER/tmp            the server's temporary files
//! FOLDER/my.cnf         the whole configuration
//! FOLDER/accounts.sql   the accounts for other machines, if the server listens for them
//! FOLDER/log            the server's output
//! FOLDER/password       the user's, for TCP (the socket needs none: nobody else can enter the folder)
//! ```

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bigiron_archive::SeriesPackage;

use super::error::{ServerError, doing};
use super::instance::{self, DATA, Instance, LOG, Server};
use super::listen::{Listen, PASSWORD, Tcp, new_password};
use super::programs::Programs;
use super::recipe::Recipe;
use super::server_folder::check_socket;

/// MariaDB in Debian's archive.
pub const RECIPE: Recipe = Recipe {
    name: "mariadb",
    title: "MariaDB",
    instead: "set the workload's `engine` to `sqlite`",
    package: SeriesPackage::InVersion("mariadb-server-core"),
    version_of: None,
    beside: &["dash"],
    without: &[],
    programs: |_| "usr/sbin".to_owned(),
    plugins: &[],
    loaded: &[],
    required: &["mariadbd"],
    version_argument: "--version",
    keeps: |path, _| match path {
        ["usr", "sbin", name] => *name == "mariadbd",
        ["usr", "share", "mysql", "english" | "charsets", ..] => true,
        ["usr", "share", "mysql", name] => BOOTSTRAP.contains(name),
        _ => false,
    },
    own: None,
    finish: None,
    sees_sys: false,
    revision: 1,
    user: "mysql",
};

/// The statements of `mariadb-install-db` that make the system tables, in its order, without those of help texts, examples and the schema `sys`.
const BOOTSTRAP: [&str; 3] =
    ["mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"];
/// The only user, who may do everything, and the database.
pub const USER: &str = "bigiron";
pub const DATABASE: &str = "bigiron";
/// The TCP port if no other process can have it.
const PORT: u16 = 3306;
/// The socket, relative to the server's folder.
pub const SOCKET: &str = "run/socket";
/// What its log says when the server is ready.
const READY: &str = ": ready for connections.";
/// The file that the server writes while it starts: the number of its process.
const PID_FILE: &str = "run/pid";
/// Statements that the server runs when it starts.
const ACCOUNTS: &str = "accounts.sql";
/// Bytes without which a server cannot go on: a page of each of its log's buffers, and of temporary files.
const ROOM: u64 = 16 << 20;
const FATAL: [&str; 2] = ["[ERROR]", "ERROR: "];

/// How a server runs.
#[derive(Debug)]
pub struct MariaDb {
    /// Lines of the group `[mariadbd]`, except those for files and listening.
    settings: String,
    /// The port, if it listens on one, who may connect, and the password.
    tcp: Option<Tcp>,
}

/// Creates a server's data in `folder`, which exists and is empty except for files of the caller. `sync` tells whether they must survive a crash of
/// the machine.
///
/// # Errors
/// The server does not make its tables (with its output).
pub fn init(programs: &Programs, folder: &Path, sync: bool) -> Result<(), ServerError> {
    let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
    for name in [DATA, "run", "tmp"] {
        instance::make_folder(&folder.join(name), user)?;
    }
    let password = new_password(folder, user)?;
    let mut sql = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n".to_owned();
    for name in BOOTSTRAP {
        let path = programs.file("usr/share/mysql").join(name);
        sql.push_str(&fs::read_to_string(&path).map_err(doing("Cannot read", &path))?);
    }
    sql.push_str(&accounts(&password));
    let path = folder.join("bootstrap.sql");
    instance::write(&path, &sql, user)?;
    let input = File::open(&path).map_err(doing("Cannot read", &path))?;
    fs::remove_file(&path).map_err(doing("Cannot remove", &path))?;
    let inside = programs.inside(folder);
    let option = |name: &str, below: &str| {
        let mut text = OsString::from(name);
        text.push(inside.join(below));
        text
    };
    let mut arguments: Vec<OsString> = ["--no-defaults", "--bootstrap"].map(OsString::from).into();
    arguments.extend([option("--datadir=", DATA), option("--tmpdir=", "tmp")]);
    arguments.extend((!sync).then(|| "--debug-no-sync".into()));
    instance::run(programs, folder, "mariadbd", &arguments, Some(input), &FATAL)
}

/// Replaces the accounts of a new server by one, which has no password on the socket, and makes the database.
fn accounts(password: &str) -> String {
    let all = r#"{"access":18446744073709551615,"plugin":"mysql_native_password","authentication_string":""#;
    format!(
        "DELETE FROM global_priv;\nDELETE FROM proxies_priv;\nDELETE FROM db;\n\
         INSERT INTO global_priv VALUES ('localhost', '{USER}', '{all}\"}}');\n\
         INSERT INTO global_priv VALUES ('127.0.0.1', '{USER}', CONCAT('{all}', PASSWORD('{password}'), '\"}}'));\n\
         CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;\n"
    )
}

/// Starts the server in `folder` with these lines of `[mariadbd]`, and waits until it accepts connections.
///
/// # Errors
/// As [`Instance::start`].
pub fn start(
    programs: &Programs,
    folder: &Path,
    settings: String,
    listen: Listen,
) -> Result<Instance<MariaDb>, ServerError> {
    Instance::start(MariaDb { settings, tcp: listen.tcp(folder, PORT)? }, programs, folder)
}

impl MariaDb {
    /// The port, if it listens on one.
    pub fn tcp(&self) -> Option<&Tcp> {
        self.tcp.as_ref()
    }

    /// SQL: accounts for clients on other machines. The data have those of this one.
    fn network_accounts(&self) -> String {
        let Some(Tcp { clients, password: Some(password), .. }) = &self.tcp else { return String::new() };
        let others = clients.iter().filter(|client| **client != Ipv4Addr::LOCALHOST);
        let account = |client| {
            format!(
                "CREATE USER IF NOT EXISTS '{USER}'@'{client}' IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO '{USER}'@'{client}';\n"
            )
        };
        others.map(account).collect()
    }
}

/// The password of a server's user over TCP.
///
/// # Errors
/// It cannot be read.
pub fn password(folder: &Path) -> Result<String, ServerError> {
    let path = folder.join(PASSWORD);
    fs::read_to_string(&path).map_err(doing("Cannot read", &path))
}

/// The server's last fatal complaint, or that its file system is full.
pub fn complaint(server: &Instance<MariaDb>) -> Option<ServerError> {
    if server.is_full(ROOM) {
        return Some(ServerError::Space { dir: server.folder().to_owned() });
    }
    let log = fs::read(server.log()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let line = log.lines().rfind(|line| line.contains(FATAL[0]))?;
    Some(ServerError::Failed(format!("The server stopped itself: {line}")))
}

impl Server for MariaDb {
    /// The complete configuration; the server reads no other file.
    fn configure(&self, programs: &Programs, folder: &Path) -> Result<(), ServerError> {
        check_socket(&folder.join(SOCKET))?;
        let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
        let inside = programs.inside(folder);
        let at = |name: &str| inside.join(name).display().to_string();
        let mut listening = match &self.tcp {
            Some(Tcp { address, port, .. }) => format!("bind-address = {address}\nport = {port}\n"),
            None => "skip-networking\n".to_owned(),
        };
        let accounts = self.network_accounts();
        if !accounts.is_empty() {
            let path = folder.join(ACCOUNTS);
            instance::write(&path, &accounts, user)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(doing("Cannot write", &path))?;
            listening += &format!("init-file = {}\n", at(ACCOUNTS));
        }
        // Names of hosts would be looked up at each connection.
        let text = format!(
            "# Written by bigiron at every start.\n[mariadbd]\n{}{listening}skip-name-resolve\ndatadir = {}\nsocket = {}\npid-file = {}\n\
             tmpdir = {}\n",
            self.settings,
            at(DATA),
            at(SOCKET),
            at(PID_FILE),
            at("tmp")
        );
        instance::write(&folder.join("my.cnf"), &text, user)
    }

    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>) {
        let mut defaults = OsString::from("--defaults-file=");
        defaults.push(inside.join("my.cnf"));
        ("mariadbd", vec![defaults])
    }

    fn is_ready(&self, folder: &Path, pid: u32) -> bool {
        // The file with its number is written earlier, and a request to stop that comes before these words can be lost.
        let log = fs::read(folder.join(LOG)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let start = log.rfind(&format!("as process {pid}\n"));
        start.is_some_and(|at| log[at..].contains(READY))
    }

    fn leftovers(&self, folder: &Path) -> Vec<PathBuf> {
        [SOCKET, PID_FILE].map(|name| folder.join(name)).into()
    }

    fn fatal_words(&self) -> &'static [&'static str] {
        &FATAL
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::root;
    use crate::server_folder::server_folder;
    use bigiron_archive::Store;

    /// The server's first packet, which names its version.
    fn greeting(mut from: impl std::io::Read) -> String {
        let mut header = [0; 4];
        from.read_exact(&mut header).unwrap();
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let mut text = vec![0; length as usize];
        from.read_exact(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn a_server_is_ready_when_it_says_so_itself() {
        let place = server_folder(&std::env::temp_dir()).unwrap();
        let server = MariaDb { settings: String::new(), tcp: None };
        let mut log = String::new();
        for (line, ready) in [
            ("Starting MariaDB 10.11 as process 7", false),
            ("mariadbd: ready for connections.", true),
            ("Starting MariaDB 10.11 as process 71", false),
        ] {
            log.push_str(&format!("{line}\n"));
            fs::write(place.path().join(LOG), &log).unwrap();
            let pid = if log.contains("71") { 71 } else { 7 };
            assert_eq!(server.is_ready(place.path(), pid), ready, "{log}");
        }
    }

    #[test]
    fn a_server_is_made_starts_survives_a_kill_and_stops() {
        let say = |line: &str| eprintln!("{line}");
        let root = root::ensure(&Store::open().unwrap(), &RECIPE, "10.11", &say).unwrap();
        assert!(root.about.version.contains(":10.11."), "{:?}", root.about);
        assert!(root.about.bytes < 90 << 20, "{} bytes", root.about.bytes);
        let programs = Programs::of(&RECIPE, &root).unwrap();
        let place = server_folder(&std::env::temp_dir()).unwrap();
        let folder = place.path();
        init(&programs, folder, false).unwrap();
        assert!(!folder.join("bootstrap.sql").exists(), "it has the password");

        let server = start(&programs, folder, "innodb_buffer_pool_size = 32M\n".to_owned(), Listen::Tcp).unwrap();
        let socket = UnixStream::connect(folder.join(SOCKET)).unwrap();
        assert!(greeting(socket).contains("10.11."));
        let tcp = TcpStream::connect(("127.0.0.1", server.server().tcp().unwrap().port)).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert!(greeting(tcp).contains("MariaDB"));
        assert_eq!(password(folder).unwrap().len(), 32);
        assert!(server.usage().memory_bytes > 16 << 20);
        assert!(complaint(&server).is_none());
        server.kill();
        assert!(!folder.join(SOCKET).exists());

        let again = start(&programs, folder, String::new(), Listen::Socket).unwrap();
        assert_eq!(again.server().tcp(), None);
        again.stop().unwrap();

        let refused = start(&programs, folder, "no_such_setting = 1\n".to_owned(), Listen::Socket).unwrap_err();
        assert!(refused.to_string().contains("unknown variable 'no_such_setting=1'"), "{refused}");
        let none = root::ensure(&Store::open().unwrap(), &RECIPE, "1.2", &say).unwrap_err().to_string();
        assert!(
            none.starts_with("Debian has no MariaDB 1.2 here; available versions: ") && none.contains("10.11"),
            "{none}"
        );
    }
}
