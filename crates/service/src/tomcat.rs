//! Tomcat: its recipe, with Java, drivers of databases and bigiron's servlets (java/app), and how a private one runs.
//!
//! ```text
//! FOLDER/conf/server.xml     the complete configuration
//! FOLDER/data/WEB-INF        the servlets and their paths
//! FOLDER/run                 the number of the running process, temporary files
//! FOLDER/log                 the server's output
//! ```

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use bigiron_sys::child::fixed_addresses;

use super::error::{ServerError, doing};
use super::instance::{self, DATA, Instance, Server};
use super::java;
use super::listen::free_port;
use super::programs::Programs;
use super::recipe::Recipe;
use super::server_folder::server_folder;

/// Tomcat 10 in Debian's archive, of the release that also has Java 17.
pub const RECIPE: Recipe = Recipe {
    name: "tomcat",
    title: "Tomcat",
    version_of: Some("libtomcat10-java"),
    beside: &["libtomcat10-java", "libpostgresql-jdbc-java", "libmariadb-java", "dash"],
    finish: Some(archive),
    keeps: |path, _| match path {
        ["usr", "share", "java", name] => JARS.iter().any(|jar| is_of(jar, name)),
        ["usr", "lib", "jvm", "java-17-openjdk-amd64", "lib", name] if *name == OPTIONS => true,
        path => java::keeps(path),
    },
    sees_sys: false,
    revision: 3,
    ..java::RECIPE
};

/// The series of its Java.
pub use super::java::SERIES;

/// What Tomcat needs for servlets, and the databases' drivers.
const JARS: [&str; 13] = [
    "mariadb-java-client",
    "postgresql",
    "tomcat10-annotations-api",
    "tomcat10-api",
    "tomcat10-catalina",
    "tomcat10-coyote",
    "tomcat10-jaspic-api",
    "tomcat10-jdbc",
    "tomcat10-jni",
    "tomcat10-juli",
    "tomcat10-servlet-api",
    "tomcat10-util",
    "tomcat10-util-scan",
];
/// Its sockets have options of Linux, which need this library.
const OPTIONS: &str = "libextnet.so";
const JAVA: &str = "openjdk-17-jre-headless=";
/// The archive of classes in the tree.
const ARCHIVE: &str = "usr/share/java/bigiron-tomcat.jsa";
const RUN: &str = "run";
const PID_FILE: &str = "run/pid";
/// The status of a process that SIGTERM has ended: the JVM stops Tomcat and reports it like this.
const TERMINATED: i32 = 128 + 15;
const FATAL: [&str; 3] = ["OutOfMemoryError", "Caused by:", "Exception: "];

/// Whether a file is the jar of this name, or a link to it: `postgresql-42.5.5.jar`.
fn is_of(jar: &str, file: &str) -> bool {
    let Some(rest) = file.strip_prefix(jar).and_then(|rest| rest.strip_suffix(".jar")) else { return false };
    rest.is_empty() || rest.strip_prefix('-').is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

/// The version of Java among a tree's packages.
pub fn java_version(packages: &[String]) -> &str {
    packages.iter().find_map(|package| package.strip_prefix(JAVA)).unwrap_or("unknown")
}

/// How servlets reach the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub driver: &'static str,
    /// `jdbc:…`
    pub url: String,
    pub user: &'static str,
    pub password: Option<String>,
}

/// How a server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tomcat {
    /// Where it listens.
    pub address: SocketAddrV4,
    /// The only machine that may send requests, if the address is not of the loopback.
    pub client: Option<Ipv4Addr>,
    /// Threads that serve requests.
    pub threads: u32,
    /// Connections to the database, all open from the start.
    pub pool: u32,
    pub source: Source,
    /// Of each session; 0: there are none.
    pub session_bytes: u64,
    pub heap_bytes: u64,
    /// Whether the quick one of Java's two compilers is the only one.
    pub quick_compiler: bool,
    /// Whether code is compiled beside the threads that need it.
    pub background: bool,
    /// The names of the servlets in the package `bigiron.app`, which are their paths.
    pub servlets: &'static [&'static str],
    /// bigiron's jar, as the server sees it.
    pub jar: PathBuf,
    /// More arguments of its JVM.
    pub flags: Vec<String>,
}

/// Creates the folders of a server in `folder`, which exists.
///
/// # Errors
/// They cannot be made.
pub fn init(programs: &Programs, folder: &Path) -> Result<(), ServerError> {
    let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
    ["conf", DATA, "data/WEB-INF", RUN].iter().try_for_each(|name| instance::make_folder(&folder.join(name), user))
}

/// Makes an archive of the classes of Java, Tomcat, the drivers and the servlets, as a JVM has them in memory: it maps them, and need not read, check
/// and link them one by one.
fn archive(programs: &Programs, tree: &Path) -> Result<(), ServerError> {
    let place = server_folder(&std::env::temp_dir())?;
    let folder = place.path();
    init(programs, folder)?;
    let inside = programs.inside(folder);
    let at = |name: &str| inside.join(name).display().to_string();
    let list = at("run/classes");
    let jar = Path::new("/").join(java::JAR);
    let path = class_path(&jar);
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, free_port(folder)?);
    let source = Source { driver: "", url: String::new(), user: "", password: None };
    let flags = vec![format!("-XX:DumpLoadedClassList={list}")];
    let server = Tomcat {
        address,
        client: None,
        threads: 1,
        pool: 1,
        source,
        session_bytes: 0,
        heap_bytes: 64 << 20,
        quick_compiler: true,
        background: true,
        servlets: &["Train"],
        jar,
        flags,
    };
    Instance::start(server, programs, folder)?.stop()?;
    let arguments = [
        "-Xshare:dump".to_owned(),
        // Only with this collector the archive also has objects.
        "-XX:+UseG1GC".to_owned(),
        format!("-XX:SharedClassListFile={list}"),
        format!("-XX:SharedArchiveFile={}", at("run/archive")),
        "-cp".to_owned(),
        path,
    ];
    let mut command = programs.command("java", folder).map_err(doing("Cannot start Java in", folder))?;
    // The archive has its objects in the order of their addresses.
    fixed_addresses(command.args(arguments));
    instance::run_command(command, folder, "java", &FATAL)?;
    let to = tree.join(ARCHIVE);
    fs::copy(folder.join("run/archive"), &to).map_err(doing("Cannot write", &to))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o644)).map_err(doing("Cannot write", &to))
}

/// The arguments with which a JVM uses the archive of classes of its tree.
pub fn archived(programs: &Programs) -> Vec<String> {
    let is_there = programs.file(ARCHIVE).is_file();
    is_there.then(|| format!("-XX:SharedArchiveFile=/{ARCHIVE}")).into_iter().collect()
}

fn class_path(jar: &Path) -> String {
    let mut path = jar.display().to_string();
    JARS.iter().for_each(|jar| path += &format!(":/usr/share/java/{jar}.jar"));
    path
}

impl Tomcat {
    fn server(&self, inside: &Path) -> String {
        let Source { driver, url, user, password } = &self.source;
        let (port, host, threads, pool) = (self.address.port(), self.address.ip(), self.threads, self.pool);
        let password = password.as_deref().unwrap_or_default();
        let client = self.client.map_or_else(String::new, |client| {
            let client = client.to_string().replace('.', "\\.");
            format!("<Valve className=\"org.apache.catalina.valves.RemoteAddrValve\" allow=\"{client}\"/>\n")
        });
        // Nothing is scanned, deployed or ended in the background. A connection of the pool is the one that was free longest.
        format!(
            "<?xml version=\"1.0\"?>\n<!-- Written by bigiron at every start. -->\n<Server port=\"-1\">\n<Service name=\"business\">\n\
             <Connector port=\"{port}\" address=\"{host}\" protocol=\"org.apache.coyote.http11.Http11NioProtocol\" maxThreads=\"{threads}\" \
             minSpareThreads=\"{threads}\" acceptCount=\"4096\" maxConnections=\"20000\" maxKeepAliveRequests=\"-1\" \
             keepAliveTimeout=\"-1\" connectionTimeout=\"-1\"/>\n\
             <Engine name=\"business\" defaultHost=\"localhost\" backgroundProcessorDelay=\"-1\">\n\
             <Host name=\"localhost\" appBase=\"data\" autoDeploy=\"false\" deployOnStartup=\"false\" failCtxIfServletStartFails=\"true\">\n{client}\
             <Context path=\"\" docBase=\"{data}\" sessionCookiePath=\"/\" validateClientProvidedNewSessionId=\"false\">\n\
             <JarScanner scanClassPath=\"false\" scanManifest=\"false\"/>\n<Manager pathname=\"\"/>\n\
             <Parameter name=\"session-bytes\" value=\"{session}\"/>\n\
             <Resource name=\"jdbc/business\" type=\"javax.sql.DataSource\" factory=\"org.apache.tomcat.jdbc.pool.DataSourceFactory\" \
             driverClassName=\"{driver}\" url=\"{url}\" username=\"{user}\" password=\"{password}\" defaultAutoCommit=\"false\" \
             initialSize=\"{pool}\" minIdle=\"{pool}\" maxIdle=\"{pool}\" maxActive=\"{pool}\" maxWait=\"600000\" \
             timeBetweenEvictionRunsMillis=\"86400000\" jmxEnabled=\"false\"/>\n\
             </Context>\n</Host>\n</Engine>\n</Service>\n</Server>\n",
            data = inside.join(DATA).display(),
            session = self.session_bytes,
        )
    }

    fn application(&self) -> String {
        let servlet = |name: &&str| {
            format!(
                "<servlet><servlet-name>{name}</servlet-name><servlet-class>bigiron.app.{name}</servlet-class>\
                 <load-on-startup>1</load-on-startup></servlet>\n\
                 <servlet-mapping><servlet-name>{name}</servlet-name><url-pattern>/{name}</url-pattern></servlet-mapping>\n"
            )
        };
        let servlets: String = self.servlets.iter().map(servlet).collect();
        format!(
            "<?xml version=\"1.0\"?>\n<web-app xmlns=\"https://jakarta.ee/xml/ns/jakartaee\" version=\"6.0\" metadata-complete=\"true\">\n\
             <absolute-ordering/>\n{servlets}</web-app>\n"
        )
    }
}

impl Server for Tomcat {
    fn configure(&self, programs: &Programs, folder: &Path) -> Result<(), ServerError> {
        let user = programs.user(folder).map_err(doing("Cannot find the user of", folder))?;
        instance::write(&folder.join("conf/server.xml"), self.server(&programs.inside(folder)), user)?;
        instance::write(&folder.join("data/WEB-INF/web.xml"), self.application(), user)
    }

    fn start(&self, inside: &Path) -> (&'static str, Vec<OsString>) {
        let flag = |on: bool, name: &str| format!("-XX:{}{name}", if on { '+' } else { '-' });
        let heap = self.heap_bytes >> 10;
        let arguments = [
            format!("-Xms{heap}k"),
            format!("-Xmx{heap}k"),
            flag(true, "UseSerialGC"),
            format!("-XX:TieredStopAtLevel={}", if self.quick_compiler { 1 } else { 4 }),
            flag(self.background, "BackgroundCompilation"),
            // Statistics for other programs, in a mapped file.
            flag(false, "UsePerfData"),
            flag(true, "ExitOnOutOfMemoryError"),
            java::NAMED[0].to_owned(),
            java::NAMED[1].to_owned(),
            format!("-Dcatalina.home={}", inside.display()),
            format!("-Dcatalina.base={}", inside.display()),
            format!("-Djava.io.tmpdir={}", inside.join(RUN).display()),
            // A line: level, message, and a failure with its stack.
            "-Djava.util.logging.SimpleFormatter.format=%4$s: %5$s%6$s%n".to_owned(),
            "-cp".to_owned(),
            class_path(&self.jar),
            "bigiron.app.Start".to_owned(),
        ];
        ("java", self.flags.iter().cloned().chain(arguments).map(OsString::from).collect())
    }

    fn is_ready(&self, folder: &Path, pid: u32) -> bool {
        fs::read_to_string(folder.join(PID_FILE)).is_ok_and(|text| text.trim() == pid.to_string())
    }

    fn ends_well(&self, status: ExitStatus) -> bool {
        status.success() || status.code() == Some(TERMINATED)
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
    use std::net::TcpListener;

    use super::*;
    use crate::root;
    use bigiron_archive::Store;

    /// What a server with these servlets, whose database is not there, says at a port.
    fn refused(programs: &Programs, folder: &Path, port: u16, servlets: &'static [&'static str]) -> String {
        init(programs, folder).unwrap();
        let user = programs.user(folder).unwrap();
        let source = Source {
            driver: "org.postgresql.Driver",
            url: "jdbc:postgresql://127.0.0.1:1/postgres".to_owned(),
            user: "postgres",
            password: None,
        };
        let server = Tomcat {
            address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            client: None,
            threads: 2,
            pool: 2,
            source,
            session_bytes: 0,
            heap_bytes: 64 << 20,
            quick_compiler: false,
            background: true,
            servlets,
            jar: java::place(programs, folder, user).unwrap(),
            flags: archived(programs),
        };
        Instance::start(server, programs, folder).unwrap_err().to_string()
    }

    #[test]
    fn a_server_that_cannot_start_says_why() {
        java::testing::install();
        let root = root::ensure(&Store::open().unwrap(), &RECIPE, SERIES, &|line| eprintln!("{line}")).unwrap();
        eprintln!("{} {} bytes", root.dir.display(), root.about.bytes);
        assert!(root.about.left_out.is_empty() && root.about.bytes < 260 << 20, "{:?}", root.about);
        assert!(root.about.version.starts_with("10.1."), "{:?}", root.about);
        assert!(java_version(&root.about.packages).starts_with("17.0."), "{:?}", root.about);
        let programs = Programs::of(&RECIPE, &root).unwrap();
        let place = server_folder(&std::env::temp_dir()).unwrap();
        let folder = place.path();
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let said = refused(&programs, folder, taken.local_addr().unwrap().port(), &["Order"]);
        assert!(said.contains("Caused by: java.net.BindException: Address already in use"), "{said}");
        let port = free_port(folder).unwrap();
        let said = refused(&programs, folder, port, &["Order"]);
        assert!(said.contains("Connection to 127.0.0.1:1 refused"), "{said}");
        let said = refused(&programs, folder, port, &["Elsewhere"]);
        assert!(said.contains("ClassNotFoundException: bigiron.app.Elsewhere"), "{said}");
        // No Java at all.
        let empty = tempfile::tempdir().unwrap();
        let none = Programs::installed(&RECIPE, empty.path(), SERIES);
        let said = refused(&none, folder, port, &["Order"]);
        assert!(said.starts_with("Cannot start the server of") && said.contains("No such file"), "{said}");
    }

    #[test]
    fn a_jar_is_told_from_those_that_its_name_begins() {
        assert!(is_of("postgresql", "postgresql.jar") && is_of("postgresql", "postgresql-42.5.5.jar"));
        assert!(is_of("tomcat10-catalina", "tomcat10-catalina-10.1.60.jar"));
        for other in ["tomcat10-catalina-ha.jar", "tomcat10-catalina-ant-10.1.60.jar", "tomcat10-catalina"] {
            assert!(!is_of("tomcat10-catalina", other), "{other}");
        }
        assert!(!is_of("postgresql", "postgresql-jdbc4.jar"));
    }
}
