//! The cache of kernels: a folder for each kernel, described by a small TOML file, and the names given to kernels.
//!
//! ```text
//! CACHE/kernels/RELEASE-KEY/{entry.toml,image,config,System.map,modules/}
//! CACHE/names/NAME        the entry a name stands for
//! CACHE/postgres/         trees of PostgreSQL servers and loaded databases, kept by `bigiron_sql::server`
//! CACHE/qemu/             the QEMU that runs guests, kept by `lab::vm::pinned`
//! CACHE/apt/              apt's private state
//! CACHE/git/              where commits of a source tree are built, by `bisect::git::workspace`
//! CACHE/relink/           where the objects of a build tree are linked anew, by `rebuild::folder`
//! CACHE/tmp/              what is being fetched
//! CACHE/lock              held by the process that changes any of this
//! ```
//! Invariant: an entry appears whole (by a rename) or not at all; files that a killed process left in `tmp` are removed with the next change.

mod linked;

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::distribution::Distribution;
use super::entry::{CachedKernel, Origin};
use super::error::{KernelError, doing};
use super::spec::{self, KernelSpec};
use super::{Kernel, hash, image, local, modinfo, modules, packages};
use bigiron_model::folder_files::{self, Access, Owner};
use bigiron_model::identity::Identity;
use bigiron_model::version;

/// The cache of kernels.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

/// Information about a kernel to be stored; the rest is read from its files.
#[derive(Debug)]
pub(super) struct NewKernel {
    pub spec: String,
    pub from: String,
    pub package: Option<String>,
    pub origin: Option<Origin>,
    pub source_sha256: String,
}

/// The lock for changing the store. Released when dropped, and by the system when the process ends.
pub struct StoreLock {
    _file: File,
}

impl Store {
    /// The user's cache: `$BIGIRON_CACHE`, else `$XDG_CACHE_HOME/bigiron`, else `~/.cache/bigiron`.
    pub fn open() -> Result<Self, KernelError> {
        let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let dir = set("BIGIRON_CACHE")
            .or_else(|| set("XDG_CACHE_HOME").filter(|d| d.is_absolute()).map(|d| d.join("bigiron")))
            .or_else(|| set("HOME").map(|d| d.join(".cache/bigiron")))
            .ok_or_else(|| {
                KernelError::Spec(
                    "No folder for the kernel cache; set BIGIRON_CACHE (neither it, XDG_CACHE_HOME nor HOME is set)"
                        .to_owned(),
                )
            })?;
        Self::at(&dir)
    }

    /// A cache in a folder of the caller's choice. Nothing is created before something is stored.
    ///
    /// # Errors
    /// Somebody else may have put something into the folder: what is in the cache runs as the user.
    pub fn at(dir: &Path) -> Result<Self, KernelError> {
        let dir = std::path::absolute(dir).map_err(doing("Cannot find", dir))?;
        let store = Self { dir };
        store.check_owner()?;
        Ok(store)
    }

    /// Whether nobody else can have filled the folder, or one of those in it; also true if there is none yet.
    fn check_owner(&self) -> Result<(), KernelError> {
        match folder_files::check_entries(&self.dir, Owner::UserOrRoot) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            checked => checked.map_err(doing("Cannot use the cache", &self.dir)),
        }
    }

    /// Makes the folder for what is being fetched, and the cache with it, for nobody else to write to whatever the umask allows.
    fn make(&self) -> Result<PathBuf, KernelError> {
        let tmp = self.dir.join("tmp");
        let make = || std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&tmp);
        make().map_err(doing("Cannot create", &tmp))?;
        self.check_owner()?;
        Ok(tmp)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kernel that `spec` names, fetched or copied into the cache if necessary. `note` gets lines about the progress.
    pub fn resolve(&self, spec: &KernelSpec, note: &dyn Fn(&str)) -> Result<Kernel, KernelError> {
        let called = spec.to_string();
        Ok(self.entry(spec, &called, None, note)?.kernel(&called))
    }

    /// The cache's entry of a kernel, which is now `called` so; `config` is the configuration of an image given by path.
    fn entry(
        &self,
        spec: &KernelSpec,
        called: &str,
        config: Option<&Path>,
        note: &dyn Fn(&str),
    ) -> Result<CachedKernel, KernelError> {
        match spec {
            KernelSpec::Archive { distribution, version, flavour } => {
                packages::resolve(self, *distribution, version, flavour.as_deref(), note)
            }
            KernelSpec::Named(name) => self.named(name),
            KernelSpec::Deb(paths) => local::debs(self, called, paths, note),
            KernelSpec::Image { image, modules } => local::image(self, called, image, modules.as_deref(), config, note),
            KernelSpec::BuildTree(dir) => local::build_tree(self, called, dir, note),
            KernelSpec::Running => local::running(self, note),
            KernelSpec::Latest => packages::newest(self, 0, note),
            KernelSpec::Previous => packages::newest(self, 1, note),
        }
    }

    /// The kernels of a flavour that a distribution's archive offers, as exact specs, oldest first.
    pub fn kernels_of(
        &self,
        distribution: Distribution,
        flavour: &str,
        note: &dyn Fn(&str),
    ) -> Result<Vec<String>, KernelError> {
        let versions = packages::offered(self, distribution, flavour, note)?.all;
        Ok(versions.into_iter().map(|version| spec::of_archive(distribution, version, flavour)).collect())
    }

    /// The newest kernel of a flavour in the suites among the machine's sources, and the newest of all in the archive; as exact specs, with
    /// their versions.
    pub fn newest_of(
        &self,
        distribution: Distribution,
        flavour: &str,
        note: &dyn Fn(&str),
    ) -> Result<[Option<(String, String)>; 2], KernelError> {
        let offered = packages::offered(self, distribution, flavour, note)?;
        let spec = |version: String| (spec::of_archive(distribution, version.clone(), flavour), version);
        Ok([offered.own, offered.all].map(|versions| versions.into_iter().next_back().map(spec)))
    }

    /// The distribution whose archive is among the machine's sources; Debian, if none or several are.
    pub fn distribution(&self) -> Distribution {
        packages::distribution(self)
    }

    /// The kernel with this identity, only from the cache; its bytes are checked against their hashes.
    pub fn get(&self, identity: &Identity) -> Result<Kernel, KernelError> {
        let same = |e: &CachedKernel| {
            e.release == identity.release
                && e.image_sha256 == identity.image_sha256
                && e.config_sha256 == identity.config_sha256
        };
        let newest = self.list()?.into_iter().filter(same).max_by_key(|e| e.added);
        let entry = newest.ok_or_else(|| KernelError::NotCached {
            release: identity.release.clone(),
            sha256: identity.image_sha256.clone(),
            spec: spec::exact(identity),
        })?;
        entry.verify()?;
        Ok(Kernel { identity: identity.clone(), ..entry.kernel(&identity.spec) })
    }

    /// Stores the kernel that `spec` names under a name, replacing any kernel with that name. `config` is the configuration of an image given by
    /// path.
    pub fn add(
        &self,
        name: &str,
        spec: &KernelSpec,
        config: Option<&Path>,
        note: &dyn Fn(&str),
    ) -> Result<CachedKernel, KernelError> {
        if !spec::is_name(name) {
            return Err(KernelError::Spec(format!(
                "`{name}` cannot be a kernel's name: use letters, digits, `.`, `_` and `-`, and not `running`, `latest` or `previous`"
            )));
        }
        let entry = self.entry(spec, name, config, note)?;
        let _guard = self.lock(note)?;
        let names = self.dir.join("names");
        fs::create_dir_all(&names).map_err(doing("Cannot create", &names))?;
        let path = names.join(name);
        let folder = entry.dir.file_name().expect("an entry has a folder").to_string_lossy();
        folder_files::write_whole(&names, name, folder.as_bytes(), 0o644).map_err(doing("Cannot write", &path))?;
        self.named(name)
    }

    /// Everything in the cache, oldest release first.
    pub fn list(&self) -> Result<Vec<CachedKernel>, KernelError> {
        let dir = self.dir.join("kernels");
        let mut entries: Vec<CachedKernel> = folder(&dir)?.iter().filter_map(|p| CachedKernel::read(p)).collect();
        for path in folder(&self.dir.join("names"))? {
            let (Some(name), Ok(target)) = (path.file_name(), fs::read_to_string(&path)) else { continue };
            if let Some(entry) =
                entries.iter_mut().find(|e| e.dir.file_name().is_some_and(|n| n.to_str() == Some(&target)))
            {
                entry.names.push(name.to_string_lossy().into_owned());
            }
        }
        entries.sort_by(|a, b| version::compare(&a.release, &b.release).then_with(|| a.added.cmp(&b.added)));
        Ok(entries)
    }

    /// The names that were given to kernels.
    pub fn names(&self) -> Result<Vec<String>, KernelError> {
        Ok(self.list()?.into_iter().flat_map(|e| e.names).collect())
    }

    /// Removes the kernels that `what` names: a name, a release, or the spec under which it was stored (`debian:6.12` removes the whole series).
    /// Returns the removed entries.
    ///
    /// A kernel fetched from Debian outlives the names that were given to it.
    pub fn remove(&self, what: &str) -> Result<Vec<CachedKernel>, KernelError> {
        let entries = self.list()?;
        if entries.iter().any(|e| e.names.iter().any(|n| n == what)) {
            let _guard = self.lock(&|_| {})?;
            let path = self.dir.join("names").join(what);
            fs::remove_file(&path).map_err(doing("Cannot remove", &path))?;
            let owned = |e: &&CachedKernel| e.names == [what];
            return entries.iter().filter(owned).filter(|e| e.origin.is_none()).map(|e| self.discard(e)).collect();
        }
        let spec = KernelSpec::parse(what).ok();
        let meant = |e: &&CachedKernel| match (&spec, &e.origin) {
            (Some(KernelSpec::Archive { distribution, version, flavour }), Some(origin)) => {
                origin.distribution == *distribution
                    && version::satisfies(&origin.version, version)
                    && flavour.as_deref().unwrap_or(distribution.default_flavour()) == origin.flavour
            }
            _ => e.release == what || e.spec == what,
        };
        let found: Vec<&CachedKernel> = entries.iter().filter(meant).collect();
        if found.is_empty() {
            return Err(KernelError::Spec(format!("No kernel `{what}` is in the cache; see `bigiron kernel list`")));
        }
        let _guard = self.lock(&|_| {})?;
        for name in found.iter().flat_map(|e| &e.names) {
            let path = self.dir.join("names").join(name);
            fs::remove_file(&path).map_err(doing("Cannot remove", &path))?;
        }
        found.into_iter().map(|e| self.discard(e)).collect()
    }

    fn discard(&self, entry: &CachedKernel) -> Result<CachedKernel, KernelError> {
        // Renamed first, so that nobody finds half of it.
        let gone = self.dir.join("tmp").join(entry.dir.file_name().expect("an entry has a folder"));
        fs::rename(&entry.dir, &gone).map_err(doing("Cannot remove", &entry.dir))?;
        fs::remove_dir_all(&gone).map_err(doing("Cannot remove", &gone))?;
        Ok(entry.clone())
    }

    fn named(&self, name: &str) -> Result<CachedKernel, KernelError> {
        let entries = self.list()?;
        if let Some(entry) = entries.iter().find(|e| e.names.iter().any(|n| n == name)) {
            return Ok(entry.clone());
        }
        let names: Vec<String> = entries.iter().flat_map(|e| &e.names).map(|n| format!("`{n}`")).collect();
        let known = if names.is_empty() {
            "no names have been given yet".to_owned()
        } else {
            format!("names given so far: {}", names.join(", "))
        };
        Err(KernelError::UnknownName { name: name.to_owned(), known })
    }

    /// Waits for the lock for changing the store, and removes what a killed process left.
    pub fn lock(&self, note: &dyn Fn(&str)) -> Result<StoreLock, KernelError> {
        let tmp = self.make()?;
        let path = self.dir.join("lock");
        let file = folder_files::open(&self.dir, "lock", Access::Update, 0o644).map_err(doing("Cannot open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                note("Waiting for another bigiron that is changing the cache");
                file.lock().map_err(doing("Cannot lock", &path))?;
            }
            Err(TryLockError::Error(error)) => return Err(KernelError::io("Cannot lock", &path, error)),
        }
        for left in folder(&tmp)? {
            let name = left.file_name().expect("an entry of a folder has a name");
            folder_files::remove_all(&tmp, name).map_err(doing("Cannot remove", &left))?;
        }
        Ok(StoreLock { _file: file })
    }

    /// An empty folder that becomes an entry by [`Store::commit`].
    pub fn stage(&self, _guard: &StoreLock) -> Result<tempfile::TempDir, KernelError> {
        let tmp = self.dir.join("tmp");
        tempfile::tempdir_in(&tmp).map_err(doing("Cannot create a folder in", &tmp))
    }

    /// Refuses early if `bytes` more do not fit.
    pub fn needs(&self, bytes: u64) -> Result<(), KernelError> {
        let Ok(stat) = rustix::fs::statvfs(&self.dir) else { return Ok(()) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < bytes {
            let need = format!(": {} MB are needed, {} MB are free", bytes.div_ceil(1_000_000), free / 1_000_000);
            return Err(KernelError::Space { dir: self.dir.clone(), need });
        }
        Ok(())
    }

    /// The stored kernel whose source was in this state.
    pub(super) fn by_source(&self, source_sha256: &str) -> Result<Option<CachedKernel>, KernelError> {
        Ok(self.list()?.into_iter().find(|e| e.source_sha256 == source_sha256))
    }

    /// Checks the kernel in `staged` (`image`, and if they exist `config`, `System.map`, `modules/`) and makes it an entry.
    pub(super) fn commit(
        &self,
        _guard: &StoreLock,
        staged: tempfile::TempDir,
        arrival: NewKernel,
    ) -> Result<CachedKernel, KernelError> {
        let dir = staged.path();
        let path = dir.join("image");
        let release = image::read(&path)?.release;
        let image_sha256 = hash::of_file(&path).map_err(doing("Cannot read", &path))?;
        let config = dir.join("config");
        let config_sha256 =
            if config.is_file() { Some(hash::of_file(&config).map_err(doing("Cannot read", &config))?) } else { None };
        let folder_of_modules = dir.join("modules");
        let count = if folder_of_modules.is_dir() { check_modules(&folder_of_modules, &release)? } else { 0 };
        let key = hash::of_bytes(format!("{image_sha256} {config_sha256:?} {}", arrival.source_sha256).as_bytes());
        let entry = CachedKernel {
            spec: arrival.spec,
            package: arrival.package,
            origin: arrival.origin,
            from: arrival.from,
            added: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            bytes: size(dir)?,
            modules: count,
            image_sha256,
            config_sha256,
            source_sha256: arrival.source_sha256,
            names: Vec::new(),
            dir: self.dir.join("kernels").join(format!("{release}-{}", &key[..12])),
            release,
        };
        let kernels = self.dir.join("kernels");
        fs::create_dir_all(&kernels).map_err(doing("Cannot create", &kernels))?;
        if let Some(entry) = CachedKernel::read(&entry.dir) {
            return Ok(entry);
        }
        File::open(&path).and_then(|f| f.sync_all()).map_err(doing("Cannot write", &path))?;
        entry.write(dir)?;
        if entry.dir.exists() {
            fs::remove_dir_all(&entry.dir).map_err(doing("Cannot remove", &entry.dir))?;
        }
        // Temporary folders are accessible only to their owner; an entry has the permissions of the user's other files.
        let staged = staged.keep();
        fs::rename(&staged, &entry.dir).map_err(doing("Cannot store", &entry.dir))?;
        Ok(entry)
    }
}

/// The number of modules, after a check that they belong to the kernel: the first and last of each folder's list stand for all.
fn check_modules(dir: &Path, release: &str) -> Result<usize, KernelError> {
    let files = modules::files(dir)?;
    for (_, path, compression) in files.first().into_iter().chain(files.last()) {
        let found = modinfo::read(path, *compression)?.release;
        if found != release {
            return Err(KernelError::OtherRelease { path: path.clone(), found, wanted: release.to_owned() });
        }
    }
    Ok(files.len())
}

/// Sorted paths in a folder; none if it does not exist.
fn folder(dir: &Path) -> Result<Vec<PathBuf>, KernelError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(KernelError::io("Cannot read", dir, error)),
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

fn size(dir: &Path) -> Result<u64, KernelError> {
    let mut bytes = 0;
    for path in folder(dir)? {
        let meta = fs::symlink_metadata(&path).map_err(doing("Cannot read", &path))?;
        bytes += if meta.is_dir() { size(&path)? } else { meta.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
