//! apt as a child process, with its own state below the cache folder.
//!
//! Invariant: nothing outside the cache folder is written, nothing is installed, and no hook of the machine's configuration runs. Each suite has its
//! own lists and locks, so that a missing or broken suite cannot affect another.

mod machine;

use std::fs;
use std::io::{BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use machine::{config_dump, config_paths, configuration, machine_sources};

use super::catalog::{self, Package};
use super::distribution::Distribution;
use super::error::{KernelError, doing};
use super::hash;
use super::sources::Source;
use bigiron_model::folder_files::{self, Owner};
use bigiron_sys as sys;

/// The file of a suite's packages. A change of what it keeps needs another name, so that an older file is not asked for what it lacks.
pub(super) const LISTING: &str = "packages-4.json";
/// Suites read in parallel: enough to hide the network's latency, few enough for a small machine.
const PARALLEL: usize = 3;
/// If this many suites fail before any could be read, the archive counts as unreachable. More than may be missing at the head of a list.
const HOPELESS: usize = 6;

/// What apt says of a suite that does not exist: it has no Release file; of one that is trusted without, that a server does not have its lists
/// or does not give them away, or that there is no such file.
const ABSENT: [&str; 4] = [" a Release file", "  404  ", "  403  ", "  File not found"];

/// The machine's apt with bigiron's own state.
#[derive(Clone)]
pub struct Apt {
    pub(super) dir: PathBuf,
    helper: PathBuf,
    own: Vec<Source>,
    /// Where the sources were looked for.
    searched: String,
}

/// What apt last read about one suite. Stored as [`LISTING`] in the suite's folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// When the archive was last asked, in seconds since 1970.
    pub checked: u64,
    /// Why the suite does not exist, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    #[serde(default)]
    pub origin: String,
    #[serde(default)]
    pub codename: String,
    #[serde(default)]
    pub packages: Vec<Package>,
}

impl Listing {
    /// Also stale if the clock was set back in the meantime.
    fn is_stale(&self, max_age: Duration) -> bool {
        now().checked_sub(self.checked).is_none_or(|age| Duration::from_secs(age) > max_age) || max_age.is_zero()
    }
}

/// A suite and its packages.
#[derive(Clone, Debug)]
pub struct Suite {
    pub source: Source,
    pub listing: Listing,
}

/// The outcome of asking the archive about some suites.
#[derive(Debug, Default)]
pub struct Lists {
    pub suites: Vec<Suite>,
    /// Suites that the archive does not have.
    pub absent: Vec<String>,
    /// Why the archive could not be asked now; `suites` then holds earlier results.
    pub failure: Option<String>,
}

impl Lists {
    fn new(sources: &[Source], known: impl IntoIterator<Item = Option<Listing>>) -> Self {
        let mut lists = Self::default();
        for (source, listing) in sources.iter().zip(known) {
            match listing {
                Some(listing) if listing.absent.is_none() => {
                    lists.suites.push(Suite { source: source.clone(), listing });
                }
                Some(_) => lists.absent.push(source.suite.clone()),
                None => {}
            }
        }
        lists
    }

    /// The suites signed by a distribution.
    pub fn of(&self, distribution: Distribution) -> impl Iterator<Item = &Suite> {
        self.suites.iter().filter(move |s| distribution.signs(&s.listing.origin))
    }
}

impl Apt {
    /// Reads the machine's apt configuration and writes bigiron's, derived from it, to `dir`.
    pub fn open(dir: &Path) -> Result<Self, KernelError> {
        fs::create_dir_all(dir).map_err(doing("Cannot create", dir))?;
        // apt obeys what is in it.
        folder_files::check_owner(dir, Owner::UserOrRoot).map_err(doing("Cannot use the folder", dir))?;
        let machine = config_dump()?;
        let paths = config_paths()?;
        let [list, parts, methods, keys @ ..] = &paths;
        let helper = Path::new(methods.trim_end_matches('/')).with_file_name("apt-helper");
        // A proxy's password may be among the machine's settings.
        replace(dir, "apt.conf", configuration(&machine, keys).as_bytes(), 0o600)?;
        let own = machine_sources(Path::new(list), Path::new(parts));
        Ok(Self { dir: dir.to_path_buf(), helper, own, searched: format!("looked in {list} and {parts}") })
    }

    /// The machine's own sources of a distribution's archive.
    ///
    /// # Errors
    /// If there is none.
    pub fn own(&self, distribution: Distribution) -> Result<Vec<Source>, KernelError> {
        let own: Vec<Source> =
            self.own.iter().filter(|source| source.distribution() == Some(distribution)).cloned().collect();
        if own.is_empty() {
            return Err(KernelError::NoSource { distribution, reason: self.searched.clone() });
        }
        Ok(own)
    }

    /// The suites' packages, if all suites were asked about within `max_age`.
    pub fn fresh(&self, sources: &[Source], max_age: Duration) -> Option<Lists> {
        let known: Option<Vec<Listing>> =
            sources.iter().map(|s| self.known(s).filter(|l| !l.is_stale(max_age))).collect();
        Some(Lists::new(sources, known?.into_iter().map(Some)))
    }

    /// The suites' packages; asks the archive about suites last asked about more than `max_age` ago.
    pub fn lists(&self, sources: &[Source], max_age: Duration) -> Result<Lists, KernelError> {
        let mut known: Vec<Option<Listing>> = sources.iter().map(|s| self.known(s)).collect();
        let stale: Vec<usize> =
            (0..sources.len()).filter(|&i| known[i].as_ref().is_none_or(|l| l.is_stale(max_age))).collect();
        let results: Mutex<Vec<(usize, Result<Listing, KernelError>)>> = Mutex::default();
        let (next, failed, reached) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let work = || {
                // Without a network every suite would fail in turn, each after apt's own retries.
                let hopeless = || !reached.load(Ordering::Relaxed) && failed.load(Ordering::Relaxed) >= HOPELESS;
                while let Some(&i) = stale.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !hopeless()) {
                    let result = self.update(&sources[i]);
                    match &result {
                        Ok(_) => reached.store(true, Ordering::Relaxed),
                        Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                    results.lock().expect("no thread panics with the lock").push((i, result));
                }
            };
            // Fewer, if no more can be started.
            for _ in 1..PARALLEL.min(stale.len()) {
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let results = results.into_inner().expect("no thread panics with the lock");
        let reached = reached.into_inner();
        let mut failure = None;
        for (i, result) in results {
            match result {
                Ok(listing) => known[i] = Some(listing),
                Err(KernelError::Update(reason)) => {
                    // apt's exit status does not distinguish a suite that does not exist from one that could not be read; its words do, and
                    // another readable suite shows that there is a network. In other words than these the suite is asked about again.
                    let absent = reached && ABSENT.iter().any(|words| reason.contains(words));
                    if known[i].as_ref().is_none_or(|l| l.absent.is_some()) && absent {
                        let listing = Listing {
                            checked: now(),
                            absent: Some(reason),
                            origin: String::new(),
                            codename: String::new(),
                            packages: vec![],
                        };
                        self.remember(&sources[i], &listing)?;
                        known[i] = Some(listing);
                    } else {
                        failure = Some(reason);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Lists { failure, ..Lists::new(sources, known) })
    }

    /// Downloads packages of one suite into `into` (an empty folder); apt checks them against the signed index.
    pub fn download(&self, suite: &Suite, packages: &[&Package], into: &Path) -> Result<Vec<PathBuf>, KernelError> {
        let exact: Vec<_> = packages.iter().map(|p| (p.name.as_str(), p.version.as_str())).collect();
        self.fetch(&self.folder(&suite.source), &exact, into)
    }

    /// Downloads packages, given by name and version, that are in the lists in `folder`.
    pub(super) fn fetch(
        &self,
        folder: &Path,
        packages: &[(&str, &str)],
        into: &Path,
    ) -> Result<Vec<PathBuf>, KernelError> {
        let mut command = self.apt_get(folder);
        command.arg("download").args(packages.iter().map(|(n, v)| format!("{n}={v}"))).current_dir(into);
        let names = || packages.iter().map(|p| p.0).collect::<Vec<_>>().join(" ");
        run(command).map_err(|reason| match reason {
            Failure::Missing(name) => KernelError::NoApt(name),
            Failure::Said(text) if text.contains("No space left") => {
                KernelError::Space { dir: into.to_path_buf(), need: String::new() }
            }
            Failure::Said(reason) => KernelError::Download { package: names(), reason },
        })?;
        let entries = fs::read_dir(into).map_err(doing("Cannot read", into))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|e| Some(e.ok()?.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "deb"))
            .collect();
        files.sort();
        if files.len() != packages.len() {
            return Err(KernelError::Download {
                package: names(),
                reason: format!("apt delivered {} of {} files", files.len(), packages.len()),
            });
        }
        Ok(files)
    }

    fn folder(&self, source: &Source) -> PathBuf {
        let key = hash::of_bytes(source.deb822().as_bytes());
        self.dir.join(format!("{}-{}", source.suite.replace('/', "_"), &key[..12]))
    }

    fn known(&self, source: &Source) -> Option<Listing> {
        serde_json::from_slice(&fs::read(self.folder(source).join(LISTING)).ok()?).ok()
    }

    fn remember(&self, source: &Source, listing: &Listing) -> Result<(), KernelError> {
        let text = serde_json::to_vec(listing).expect("a listing is plain data");
        replace(&self.folder(source), LISTING, &text, 0o644)
    }

    fn update(&self, source: &Source) -> Result<Listing, KernelError> {
        let folder = self.folder(source);
        let lists = folder.join("lists");
        self.refresh(&folder, &source.deb822())?;
        let mut listing =
            Listing { checked: now(), absent: None, origin: String::new(), codename: String::new(), packages: vec![] };
        for entry in fs::read_dir(&lists).map_err(doing("Cannot read", &lists))?.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with("_InRelease") || name.ends_with("_Release") {
                let text = fs::read_to_string(entry.path()).map_err(doing("Cannot read", &entry.path()))?;
                let field =
                    |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default().trim().to_owned();
                (listing.origin, listing.codename) = (field("Origin:"), field("Codename:"));
            } else if name.split('_').next_back().is_some_and(|n| n.starts_with("Packages")) {
                listing.packages = self.read_index(&entry.path())?;
            }
        }
        self.remember(source, &listing)?;
        Ok(listing)
    }

    /// Makes `folder` apt's state for these sources (deb822), and updates its lists from the archive.
    pub(super) fn refresh(&self, folder: &Path, sources: &str) -> Result<(), KernelError> {
        fs::create_dir_all(folder).map_err(doing("Cannot create", folder))?;
        for sub in ["lists/partial", "cache/archives/partial"] {
            folder_files::make_folders(folder, sub).map_err(doing("Cannot create", &folder.join(sub)))?;
        }
        replace(folder, "suite.sources", sources.as_bytes(), 0o644)?;
        let mut patience = 20;
        loop {
            let mut command = self.apt_get(folder);
            command.arg("update");
            match run(command) {
                Ok(_) => return Ok(()),
                // The apt of a killed bigiron may live a little longer.
                Err(Failure::Said(text)) if text.contains("Could not get lock") && patience > 0 => {
                    patience -= 1;
                    std::thread::sleep(Duration::from_millis(500));
                }
                Err(Failure::Missing(name)) => return Err(KernelError::NoApt(name)),
                Err(Failure::Said(text)) if text.contains("No space left") => {
                    return Err(KernelError::Space { dir: folder.to_path_buf(), need: String::new() });
                }
                Err(Failure::Said(text)) => return Err(KernelError::Update(text)),
            }
        }
    }

    /// apt stores indexes in the machine's preferred compression; its own helper reads all of them.
    fn read_index(&self, path: &Path) -> Result<Vec<Package>, KernelError> {
        let mut command = self.with_configuration(Command::new(&self.helper));
        let mut child = command
            .arg("cat-file")
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(doing("Cannot start", &self.helper))?;
        let output = child.stdout.take().expect("stdout is piped");
        let packages = catalog::read_index(BufReader::with_capacity(1 << 17, output));
        let status = child.wait().map_err(doing("Cannot wait for", &self.helper))?;
        match packages {
            Ok(packages) if status.success() => Ok(packages),
            Ok(_) => Err(KernelError::Update(format!("apt-helper cannot read {}", path.display()))),
            Err(error) => Err(KernelError::io("Cannot read", path, error)),
        }
    }

    pub(super) fn apt_get(&self, folder: &Path) -> Command {
        self.tool("apt-get", folder)
    }

    /// A command that prints the lists' information about packages.
    pub(super) fn apt_cache(&self, folder: &Path, packages: &[String]) -> Command {
        let mut command = self.tool("apt-cache", folder);
        command.arg("show").args(packages);
        command
    }

    fn tool(&self, name: &str, folder: &Path) -> Command {
        let mut command = self.with_configuration(Command::new(name));
        command.arg("-q");
        for (key, path) in [
            ("Dir::State", folder.to_path_buf()),
            ("Dir::State::lists", folder.join("lists")),
            ("Dir::Cache", folder.join("cache")),
            ("Dir::Etc::sourcelist", folder.join("suite.sources")),
        ] {
            let mut option = std::ffi::OsString::from(format!("{key}="));
            option.push(path);
            command.arg("-o").arg(option);
        }
        command
    }

    fn with_configuration(&self, mut command: Command) -> Command {
        command.env("APT_CONFIG", self.dir.join("apt.conf")).env("LC_ALL", "C");
        command
    }
}

pub(super) enum Failure {
    Missing(String),
    /// The program's message, in one line.
    Said(String),
}

/// Runs a command to its end and returns stdout.
pub(super) fn run(mut command: Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match sys::child::die_with_parent(&mut command).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(Failure::Missing(name)),
        Err(error) => return Err(Failure::Said(format!("{name}: {error}"))),
    };
    let mut stderr = child.stderr.take().expect("stderr is piped");
    let errors = std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        // A read error here only shortens a message.
        let _ = stderr.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let errors = errors.map_err(|error| {
        let _ = child.kill().and_then(|()| child.wait());
        Failure::Said(format!("no thread for the messages of {name}: {error}"))
    })?;
    let output = child.wait_with_output().map_err(|e| Failure::Said(format!("{name}: {e}")))?;
    let errors = errors.join().unwrap_or_default();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    if let Some(signal) = output.status.signal() {
        return Err(Failure::Said(format!("{name} was killed by signal {signal}")));
    }
    // The last of these lines only says that there were others.
    let said =
        errors.lines().filter_map(|l| l.strip_prefix("E: ")).filter(|l| !l.starts_with("Some index files failed"));
    let said: Vec<&str> = said.collect();
    Err(Failure::Said(match said.as_slice() {
        [] => format!("{name} failed ({}): {}", output.status, errors.trim().lines().last().unwrap_or("no message")),
        lines => lines.join("; "),
    }))
}

/// Write a file so that it is either old or new, never half.
fn replace(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> Result<(), KernelError> {
    folder_files::write_whole(folder, name, bytes, mode).map_err(doing("Cannot write", &folder.join(name)))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
