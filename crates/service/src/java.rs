//! Java: the recipe for Debian's headless JRE, with the jar of bigiron's own programs (java/) in its tree.
//!
//! Invariant: programs run without the machine's own Java, in a tree whose hash covers the jar.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bigiron_archive::SeriesPackage;
use bigiron_model::workload::{METHOD, Program};

use super::error::ServerError;
use super::instance::write;
use super::programs::Programs;
use super::recipe::Recipe;

/// Java 17 in Debian's archive. `libjvm` opens its libraries at run time, so that they count as plugins.
pub const RECIPE: Recipe = Recipe {
    name: "java",
    title: "Java",
    instead: "the workload `command` runs a Java program with this machine's own Java",
    package: SeriesPackage::InVersion("openjdk-17-jre-headless"),
    version_of: None,
    beside: &["dash"],
    without: &WITHOUT,
    programs: |_| format!("{HOME}/bin"),
    plugins: &[|_| format!("{HOME}/lib"), |_| format!("{HOME}/lib/server")],
    // The C library needs it to end a thread.
    loaded: &["libgcc_s.so"],
    required: &["java"],
    version_argument: "--version",
    keeps: |path, _| keeps(path),
    own: Some((JAR, jar)),
    finish: None,
    sees_sys: true,
    revision: 2,
    user: "nobody",
};

/// The series of versions that all Java programs of bigiron run on.
pub const SERIES: &str = "17.0";
/// The jar's path in the tree.
pub const JAR: &str = "usr/share/java/bigiron.jar";
/// Printing, sound, pictures, fonts, smart cards and certificates.
const WITHOUT: [&str; 9] = [
    "libcups",
    "libfontconfig",
    "liblcms",
    "libjpeg",
    "libnss",
    "libasound",
    "libfreetype",
    "libharfbuzz",
    "libpcsclite",
];
const HOME: &str = "usr/lib/jvm/java-17-openjdk-amd64";
const KEPT: [&str; 14] = [
    "modules",
    "jvm.cfg",
    "tzdb.dat",
    "libextnet.so",
    "libjava.so",
    "libjimage.so",
    "libjli.so",
    "libjsvml.so",
    "libmanagement.so",
    "libmanagement_ext.so",
    "libnet.so",
    "libnio.so",
    "libverify.so",
    "libzip.so",
];

/// Whether a file of Java's packages is kept.
pub(crate) fn keeps(path: &[&str]) -> bool {
    match path {
        ["usr", "lib", "jvm", "java-17-openjdk-amd64", rest @ ..] => match rest {
            ["bin", name] => *name == "java",
            ["lib", name] => KEPT.contains(name),
            ["lib", "server" | "security", ..] | ["conf", ..] => true,
            _ => false,
        },
        ["etc", "java-17-openjdk", ..] => true,
        _ => false,
    }
}

/// Whether a JVM has written that its heap was full: the parallel collector gives up before that, when it does nothing but collect.
pub fn heap_is_full(written: &str) -> bool {
    ["OutOfMemoryError: Java heap", "OutOfMemoryError: GC overhead"].iter().any(|text| written.contains(text))
}

/// The jar's path as the programs in `folder` see it.
///
/// # Errors
/// An installed Java, which is in no tree of bigiron's, needs the jar in `folder`, and it cannot be written.
pub fn place(programs: &Programs, folder: &Path, user: u32) -> Result<PathBuf, ServerError> {
    if programs.inside(folder) != folder {
        return Ok(Path::new("/").join(JAR));
    }
    let missing = || ServerError::Failed("This executable has no Java programs".to_owned());
    let path = folder.join("bigiron.jar");
    write(&path, jar().ok_or_else(missing)?, user)?;
    Ok(path)
}

/// The arguments with which a JVM writes where its compiled methods are, when it ends.
pub const NAMED: [&str; 2] = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"];

/// The list of methods that a JVM with [`NAMED`] leaves behind.
#[derive(Debug)]
pub struct MethodList {
    /// Its folder for temporary files, which is that of its root: open, because the root vanishes with the JVM.
    folder: File,
    name: String,
}

impl MethodList {
    /// To be called while the JVM runs; `None` if its root cannot be entered.
    pub fn of(pid: u32) -> Option<Self> {
        let folder = File::open(format!("/proc/{pid}/root/tmp")).ok()?;
        Some(Self { folder, name: format!("perf-{pid}.map") })
    }

    /// To be called after its end: the methods as programs of their own, and those addresses that belong to none of Java's methods, such as the
    /// interpreter's. Empty if it has left no list.
    pub fn read(self) -> Vec<Program> {
        let path = format!("/proc/self/fd/{}/{}", self.folder.as_raw_fd(), self.name);
        let text = fs::read_to_string(&path).unwrap_or_default();
        // An installed JVM has no root of its own.
        let _ = fs::remove_file(path);
        text.lines().filter_map(method).collect()
    }
}

/// `0x00007f2a 0x000001c0    long bigiron.Draws.next(int)`.
fn method(line: &str) -> Option<Program> {
    let mut words = line.splitn(2, ' ');
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let start = hex(words.next()?)?;
    let (size, name) = words.next()?.trim_start().split_once(' ')?;
    let name = name.trim();
    // Without the types of what it takes and returns.
    let name = name
        .split_once('(')
        .and_then(|(name, _)| name.rsplit(' ').next())
        .filter(|name| name.contains('.'))
        .unwrap_or(name);
    Some(Program { start, end: start + hex(size)?, file: format!("{METHOD}{name} (java)") })
}

static INSTALLED: OnceLock<&'static [u8]> = OnceLock::new();

/// Lets trees of this process have the jar, which the agent of guests does not contain: there it is in the tree.
pub fn install(jar: &'static [u8]) {
    // A second call installs the same.
    let _ = INSTALLED.set(jar);
}

/// The jar, in executables that have it.
pub fn jar() -> Option<&'static [u8]> {
    INSTALLED.get().copied()
}

pub mod testing {
    /// The jar as in the executable.
    pub fn install() {
        // Read at run time: a crate includes only files of its own folder.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../java/bigiron-java.jar");
        super::install(std::fs::read(path).expect("the repository has it").leak());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Programs;
    use crate::root;
    use crate::server_folder::server_folder;
    use bigiron_archive::Store;

    #[test]
    fn methods_are_named_without_their_types() {
        let read = |line: &str| method(line).map(|method| (method.start, method.end, method.file));
        let named = |name: &str| Some((0x7f10, 0x7f20, format!("method:{name} (java)")));
        assert_eq!(
            read("0x0000000000007f10 0x0000000000000010 long bigiron.Draws.next(int, java.lang.String)"),
            named("bigiron.Draws.next")
        );
        assert_eq!(read("0x7f10 0x10 void bigiron.Page.<init>(java.lang.String)"), named("bigiron.Page.<init>"));
        assert_eq!(read("0x7f10 0x10 StubRoutines (1)"), named("StubRoutines (1)"));
        assert_eq!(read("0x7f10 0x10 Interpreter"), named("Interpreter"));
        assert_eq!(read("nothing"), None);
    }

    #[test]
    fn a_program_runs_in_a_tree_that_is_closed() {
        testing::install();
        let root = root::ensure(&Store::open().unwrap(), &RECIPE, SERIES, &|line| eprintln!("{line}")).unwrap();
        eprintln!("{} {} bytes {:?}", root.dir.display(), root.about.bytes, root.about.left_out);
        assert!(root.about.left_out.is_empty() && root.about.bytes < 250 << 20, "{:?}", root.about);
        let programs = Programs::of(&RECIPE, &root).unwrap();
        assert!(programs.version().unwrap().starts_with("openjdk 17."), "{:?}", programs.version());
        let place = server_folder(&std::env::temp_dir()).unwrap();
        let mut command = programs.command("java", place.path()).unwrap();
        let inside = format!("/{JAR}");
        command.args(["-Xmx64m", "-jar", &inside, "points=1", "warmup=9", "length=30", "items=90", "customers=9"]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("{\"warehouses\":1,\"operations\":30,"), "{said} {output:?}");
    }
}
