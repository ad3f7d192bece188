//! Kernels that the user has: packages, an image with modules, a build tree, the running kernel. All are copied into the cache.
//!
//! Invariant: what is copied is checked to be one kernel (image, modules and configuration of one release) before it becomes an entry.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::entry::Entry;
use super::error::{KernelError, doing};
use super::store::{Arrival, Store};
use super::{debian, hash, image, modinfo, modules};

/// Files beside the modules that say what is built in.
const LISTS: [&str; 3] = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];

pub(super) fn debs(store: &Store, spec: &str, paths: &[PathBuf], note: &dyn Fn(&str)) -> Result<Entry, KernelError> {
    let source_sha256 = debian::fingerprint(paths)?;
    if let Some(entry) = store.by_source(&source_sha256)? {
        return Ok(entry);
    }
    let guard = store.lock(note)?;
    let staged = store.stage(&guard)?;
    note(&format!("Unpacking {spec}"));
    let found = debian::unpack(paths, staged.path())?;
    let main =
        found.iter().find(|f| f.control.package.starts_with("linux-image")).or_else(|| found.iter().find(|f| f.image));
    let package = main.map(|f| format!("{} {}", f.control.package, f.control.version));
    let from = paths.iter().map(|p| absolute(p)).collect::<Vec<_>>().join(" ");
    store.commit(&guard, staged, Arrival { spec: spec.to_owned(), from, package, debian: None, source_sha256 })
}

pub(super) fn image(
    store: &Store,
    spec: &str,
    path: &Path,
    modules_dir: Option<&Path>,
    config: Option<&Path>,
    note: &dyn Fn(&str),
) -> Result<Entry, KernelError> {
    let release = image::read(path)?.release;
    let modules_dir = match modules_dir {
        Some(dir) => Some(folder_of_modules(dir, &release)?),
        None => None,
    };
    let lists_dir = modules_dir.clone();
    let parts = Parts {
        image: path.to_path_buf(),
        release,
        modules_dir,
        lists_dir,
        config: config.map(Path::to_path_buf),
        symbols: None,
    };
    parts.store(store, spec, &absolute(path), note)
}

pub(super) fn build_tree(store: &Store, spec: &str, dir: &Path, note: &dyn Fn(&str)) -> Result<Entry, KernelError> {
    let bad = |reason: String| KernelError::BuildTree { path: dir.to_path_buf(), reason };
    let path = dir.join("arch/x86/boot/bzImage");
    if !path.is_file() {
        let reason = if dir.join("arch/x86").is_dir() || dir.join("Makefile").is_file() {
            "it has no arch/x86/boot/bzImage; run `make` there first (or give the folder of `make O=`)"
        } else {
            "it has no arch/x86/boot/bzImage, so it is not a kernel's build tree"
        };
        return Err(bad(reason.to_owned()));
    }
    let release = image::read(&path)?.release;
    let said = dir.join("include/config/kernel.release");
    if let Ok(text) = fs::read_to_string(&said)
        && text.trim() != release
    {
        return Err(bad(format!("its bzImage is of {release}, but the tree is at {}; run `make` there", text.trim())));
    }
    let present = |name: &str| Some(dir.join(name)).filter(|p| p.is_file());
    let parts = Parts {
        image: path,
        release,
        modules_dir: Some(dir.to_path_buf()),
        lists_dir: Some(dir.to_path_buf()),
        config: present(".config"),
        symbols: present("System.map"),
    };
    parts.store(store, spec, &absolute(dir), note)
}

pub(super) fn running(store: &Store, note: &dyn Fn(&str)) -> Result<Entry, KernelError> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    running_below(store, Path::new("/"), &release, note)
}

fn running_below(store: &Store, root: &Path, release: &str, note: &dyn Fn(&str)) -> Result<Entry, KernelError> {
    let places = |names: &[String]| names.iter().map(|n| root.join(n)).collect::<Vec<_>>();
    let images = places(&[
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
        format!("lib/modules/{release}/vmlinuz"),
    ]);
    let Some(path) = images.iter().find(|p| p.exists()) else {
        let looked: Vec<_> = images.iter().map(|p| p.display().to_string()).collect();
        return Err(KernelError::Running(format!(
            "The image of the running kernel {release} is not on this machine (looked for {}); name another kernel, or give the image with `bigiron kernel add`",
            looked.join(", ")
        )));
    };
    if let Err(error) = fs::File::open(path) {
        return Err(KernelError::Running(format!(
            "The image of the running kernel cannot be read: {}: {error}; let root make it readable, or copy it and `bigiron kernel add` the copy",
            path.display()
        )));
    }
    let found = image::read(path)?.release;
    if found != release {
        return Err(KernelError::OtherRelease { path: path.clone(), found, wanted: release.to_owned() });
    }
    let present = |paths: Vec<PathBuf>| paths.into_iter().find(|p| fs::File::open(p).is_ok());
    let modules_dir = places(&[format!("lib/modules/{release}"), format!("usr/lib/modules/{release}")])
        .into_iter()
        .find(|d| d.is_dir());
    let parts = Parts {
        image: path.clone(),
        release: release.to_owned(),
        lists_dir: modules_dir.clone(),
        modules_dir,
        config: present(places(&[
            format!("boot/config-{release}"),
            format!("lib/modules/{release}/config"),
            "proc/config.gz".to_owned(),
        ])),
        symbols: present(places(&[format!("boot/System.map-{release}")])),
    };
    parts.store(store, "running", "this machine", note)
}

/// Files of one kernel, where the user keeps them.
struct Parts {
    image: PathBuf,
    release: String,
    modules_dir: Option<PathBuf>,
    lists_dir: Option<PathBuf>,
    config: Option<PathBuf>,
    symbols: Option<PathBuf>,
}

impl Parts {
    fn store(self, store: &Store, spec: &str, from: &str, note: &dyn Fn(&str)) -> Result<Entry, KernelError> {
        let modules = match &self.modules_dir {
            Some(dir) => modules::files(dir)?.into_iter().map(|(_, path, _)| path).collect(),
            None => Vec::new(),
        };
        let (source_sha256, bytes) = self.look(&modules)?;
        if let Some(entry) = store.by_source(&source_sha256)? {
            return Ok(entry);
        }
        let guard = store.lock(note)?;
        store.needs(bytes)?;
        note(&format!("Copying {} ({} modules, {} MB)", self.release, modules.len(), bytes.div_ceil(1_000_000)));
        let staged = store.stage(&guard)?;
        let dir = staged.path();
        copy(&self.image, &dir.join("image"))?;
        if let Some(config) = &self.config {
            copy_config(config, &dir.join("config"))?;
        }
        // Debian's System.map is a stub of one line.
        if let Some(symbols) = self.symbols.as_ref().filter(|p| fs::metadata(p).is_ok_and(|m| m.len() > 1 << 16)) {
            copy(symbols, &dir.join("System.map"))?;
        }
        if let Some(base) = &self.modules_dir {
            for path in &modules {
                let below = path.strip_prefix(base).unwrap_or(path);
                copy(path, &dir.join("modules").join(below))?;
            }
        }
        if let Some(lists) = self.lists_dir.as_ref().filter(|_| !modules.is_empty()) {
            for name in LISTS {
                let path = lists.join(name);
                if path.is_file() {
                    copy(&path, &dir.join("modules").join(name))?;
                }
            }
        }
        let arrival =
            Arrival { spec: spec.to_owned(), from: from.to_owned(), package: None, debian: None, source_sha256 };
        store.commit(&guard, staged, arrival)
    }

    /// Hash of what the files look like, and their bytes together. Modules are told apart by size and time: hashing gigabytes at each start would be slow.
    fn look(&self, modules: &[PathBuf]) -> Result<(String, u64), KernelError> {
        let hash = hash::of_file(&self.image).map_err(doing("Cannot read", &self.image))?;
        let mut text = format!("{hash}\n");
        let mut bytes = 0;
        for path in [&self.image].into_iter().chain(&self.config).chain(&self.symbols).chain(modules) {
            let meta = fs::metadata(path).map_err(doing("Cannot read", path))?;
            bytes += meta.len();
            text.push_str(&format!("{} {} {}.{:09}\n", absolute(path), meta.len(), meta.mtime(), meta.mtime_nsec()));
        }
        Ok((hash::of_bytes(text.as_bytes()), bytes))
    }
}

/// The folder with the modules of `release`: `dir` itself, or below it as `make modules_install INSTALL_MOD_PATH=` puts them.
fn folder_of_modules(dir: &Path, release: &str) -> Result<PathBuf, KernelError> {
    let below = [format!("lib/modules/{release}"), format!("usr/lib/modules/{release}"), release.to_owned()];
    let found = below.iter().map(|b| dir.join(b)).find(|d| d.is_dir()).unwrap_or_else(|| dir.to_path_buf());
    let files = modules::files(&found)?;
    let Some((_, path, compression)) = files.first() else {
        let reason =
            "there is no module (`*.ko`, `*.ko.xz`, `*.ko.zst`) below it; leave it out for a kernel without modules"
                .to_owned();
        return Err(KernelError::Module { path: dir.to_path_buf(), reason });
    };
    let built_for = modinfo::read(path, *compression)?.release;
    if built_for != release {
        return Err(KernelError::OtherRelease { path: path.clone(), found: built_for, wanted: release.to_owned() });
    }
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<(), KernelError> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(doing("Cannot create", parent))?;
    }
    fs::copy(from, to).map(drop).map_err(doing("Cannot copy", from))
}

/// A configuration may be /proc/config.gz.
fn copy_config(from: &Path, to: &Path) -> Result<(), KernelError> {
    let bytes = fs::read(from).map_err(doing("Cannot read", from))?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        flate2::read::MultiGzDecoder::new(&bytes[..])
            .take(1 << 24)
            .read_to_end(&mut text)
            .map_err(doing("Cannot unpack", from))?;
        text
    } else {
        bytes
    };
    fs::write(to, bytes).map_err(doing("Cannot write", to))
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}
