//! The user's own kernels: packages, an image with modules, a build tree, the running kernel. All are copied into the cache.
//!
//! Invariant: the copied files are checked to be one kernel (image, modules and configuration of one release) before they become an entry.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::entry::CachedKernel;
use super::error::{KernelError, doing};
use super::store::{NewKernel, Store};
use super::{hash, image, modinfo, modules, packages, regular_file};

/// Files beside the modules that list what is built in.
const LISTS: [&str; 3] = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];

pub(super) fn debs(
    store: &Store,
    spec: &str,
    paths: &[PathBuf],
    note: &dyn Fn(&str),
) -> Result<CachedKernel, KernelError> {
    let source_sha256 = packages::fingerprint(paths)?;
    if let Some(entry) = store.by_source(&source_sha256)? {
        return Ok(entry);
    }
    let guard = store.lock(note)?;
    if let Some(entry) = store.by_source(&source_sha256)? {
        return Ok(entry);
    }
    let staged = store.stage(&guard)?;
    note(&format!("Unpacking {spec}"));
    let found = packages::unpack(paths, staged.path())?;
    let main =
        found.iter().find(|f| f.control.package.starts_with("linux-image")).or_else(|| found.iter().find(|f| f.image));
    let package = main.map(|f| format!("{} {}", f.control.package, f.control.version));
    let from = paths.iter().map(|p| absolute(p)).collect::<Vec<_>>().join(" ");
    store.commit(&guard, staged, NewKernel { spec: spec.to_owned(), from, package, origin: None, source_sha256 })
}

pub(super) fn image(
    store: &Store,
    spec: &str,
    path: &Path,
    modules_dir: Option<&Path>,
    config: Option<&Path>,
    note: &dyn Fn(&str),
) -> Result<CachedKernel, KernelError> {
    let release = image::read(path)?.release;
    let modules_dir = match modules_dir {
        Some(dir) => Some(folder_of_modules(dir, &release)?),
        None => None,
    };
    let lists_dir = modules_dir.clone();
    let parts = KernelFiles {
        image: path.to_path_buf(),
        release,
        modules_dir,
        lists_dir,
        config: config.map(Path::to_path_buf),
        symbols: None,
    };
    parts.store(store, spec, &absolute(path), note)
}

pub(super) fn build_tree(
    store: &Store,
    spec: &str,
    dir: &Path,
    note: &dyn Fn(&str),
) -> Result<CachedKernel, KernelError> {
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
    if said.exists() {
        let text = String::from_utf8_lossy(&image::read_file(&said, LONGEST_RELEASE)?).trim().to_owned();
        if text != release {
            return Err(bad(format!("its bzImage is for {release}, but the tree is at {text}; run `make` there")));
        }
    }
    let present = |name: &str| Some(dir.join(name)).filter(|p| p.is_file());
    let parts = KernelFiles {
        image: path,
        release,
        modules_dir: Some(dir.to_path_buf()),
        lists_dir: Some(dir.to_path_buf()),
        config: present(".config"),
        symbols: present("System.map"),
    };
    parts.store(store, spec, &absolute(dir), note)
}

pub(super) fn running(store: &Store, note: &dyn Fn(&str)) -> Result<CachedKernel, KernelError> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    running_below(store, Path::new("/"), &release, note)
}

fn running_below(store: &Store, root: &Path, release: &str, note: &dyn Fn(&str)) -> Result<CachedKernel, KernelError> {
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
    if let Err(error) = regular_file::open(path) {
        return Err(KernelError::Running(format!(
            "The image of the running kernel cannot be read: {}: {error}; make it readable as root, or copy it and `bigiron kernel add` the copy",
            path.display()
        )));
    }
    let found = image::read(path)?.release;
    if found != release {
        return Err(KernelError::OtherRelease { path: path.clone(), found, wanted: release.to_owned() });
    }
    let present = |paths: Vec<PathBuf>| paths.into_iter().find(|p| regular_file::open(p).is_ok());
    let modules_dir = places(&[format!("lib/modules/{release}"), format!("usr/lib/modules/{release}")])
        .into_iter()
        .find(|d| d.is_dir());
    let parts = KernelFiles {
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

/// Files of one kernel, at the user's paths.
struct KernelFiles {
    image: PathBuf,
    release: String,
    modules_dir: Option<PathBuf>,
    lists_dir: Option<PathBuf>,
    config: Option<PathBuf>,
    symbols: Option<PathBuf>,
}

impl KernelFiles {
    fn store(self, store: &Store, spec: &str, from: &str, note: &dyn Fn(&str)) -> Result<CachedKernel, KernelError> {
        let modules = match &self.modules_dir {
            Some(dir) => modules::files(dir)?.into_iter().map(|(_, path, _)| path).collect(),
            None => Vec::new(),
        };
        let (source_sha256, bytes) = self.look(&modules)?;
        if let Some(entry) = store.by_source(&source_sha256)? {
            return Ok(entry);
        }
        let guard = store.lock(note)?;
        if let Some(entry) = store.by_source(&source_sha256)? {
            return Ok(entry);
        }
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
            NewKernel { spec: spec.to_owned(), from: from.to_owned(), package: None, origin: None, source_sha256 };
        store.commit(&guard, staged, arrival)
    }

    /// Hash of the files' state, and their total bytes. Modules are identified by size and time: hashing gigabytes at each start would be slow.
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

/// The folder with the modules of `release`: `dir` itself, or a folder below it as created by `make modules_install INSTALL_MOD_PATH=`.
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
    let copy = || {
        let (mut from, mut to) = (regular_file::open(from)?, fs::File::create(to)?);
        io::copy(&mut from, &mut to)?;
        to.set_permissions(from.metadata()?.permissions())
    };
    copy().map_err(doing("Cannot copy", from))
}

/// A release has at most 64 bytes.
const LONGEST_RELEASE: u64 = 1 << 12;

/// A configuration has some hundred KiB.
const LONGEST_CONFIG: u64 = 1 << 24;

/// A configuration may be /proc/config.gz.
fn copy_config(from: &Path, to: &Path) -> Result<(), KernelError> {
    let bytes = image::read_file(from, LONGEST_CONFIG)?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        flate2::read::MultiGzDecoder::new(&bytes[..])
            .take(LONGEST_CONFIG)
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

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, bzimage, ko};
    use super::super::{KernelSpec, modules};
    use super::*;

    const RELEASE: &str = "6.9.0-mine";

    fn quiet(_: &str) {}

    /// A cache, and a folder with a bzImage and a build tree of the same kernel.
    fn place() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(&dir.path().join("cache")).unwrap();
        let module = ko(&["depends=", &format!("vermagic={RELEASE} SMP")]);
        fixture::write(dir.path(), "bzImage", &bzimage(RELEASE));
        fixture::write(dir.path(), &format!("root/lib/modules/{RELEASE}/kernel/a.ko"), &module);
        fixture::write(dir.path(), "tree/arch/x86/boot/bzImage", &bzimage(RELEASE));
        fixture::write(dir.path(), "tree/include/config/kernel.release", format!("{RELEASE}\n").as_bytes());
        fixture::write(dir.path(), "tree/.config", b"CONFIG_A=y\n");
        fixture::write(dir.path(), "tree/System.map", &vec![b'0'; 1 << 17]);
        fixture::write(dir.path(), "tree/fs/a/a.ko", &module);
        fixture::write(dir.path(), "tree/modules.builtin", b"kernel/fs/b.ko\n");
        (dir, store)
    }

    #[test]
    fn image_and_modules_become_a_named_kernel() {
        let (dir, store) = place();
        let spec = KernelSpec::Image { image: dir.path().join("bzImage"), modules: Some(dir.path().join("root")) };
        let entry = store.add("mine", &spec, None, &quiet).unwrap();
        assert_eq!((entry.release.as_str(), entry.modules, &entry.names[..]), (RELEASE, 1, &["mine".to_owned()][..]));
        let kernel = store.resolve(&KernelSpec::parse("mine").unwrap(), &quiet).unwrap();
        assert_eq!(kernel.identity.spec, "mine");
        assert_eq!(modules::load_order(&kernel, &["a"]).unwrap()[0].name, "a");
        // The user may remove the files; the cache has its own.
        fs::remove_dir_all(dir.path().join("root")).unwrap();
        assert_eq!(store.get(&kernel.identity).unwrap().modules, kernel.modules);
    }

    #[test]
    fn a_build_tree_is_copied_once_per_build() {
        let (dir, store) = place();
        let spec = KernelSpec::parse(dir.path().join("tree").to_str().unwrap()).unwrap();
        let lines = std::cell::RefCell::new(Vec::new());
        let note = |text: &str| lines.borrow_mut().push(text.to_owned());
        let kernel = store.resolve(&spec, &note).unwrap();
        assert_eq!(kernel.identity.release, RELEASE);
        assert!(kernel.identity.config_sha256.is_some() && kernel.symbols.is_some());
        assert_eq!(modules::load_order(&kernel, &["a", "b"]).unwrap().len(), 1);
        store.resolve(&spec, &note).unwrap();
        assert_eq!(lines.borrow().len(), 1, "{lines:?}");
        fixture::write(dir.path(), "tree/.config", b"CONFIG_A=y\nCONFIG_B=y\n");
        let rebuilt = store.resolve(&spec, &note).unwrap();
        assert_ne!(rebuilt.identity, kernel.identity);
        assert_eq!(store.list().unwrap().len(), 2);
    }

    #[test]
    fn refusals() {
        let (dir, store) = place();
        let at = |name: &str| dir.path().join(name);
        let other = ko(&["depends=", "vermagic=6.8.0-other SMP"]);
        fixture::write(dir.path(), "others/a.ko", &other);
        fs::create_dir(at("empty")).unwrap();
        fixture::write(dir.path(), "unbuilt/Makefile", b"");
        fixture::write(dir.path(), "stale/arch/x86/boot/bzImage", &bzimage(RELEASE));
        fixture::write(dir.path(), "stale/include/config/kernel.release", b"6.9.0-next\n");
        fixture::write(dir.path(), "mixed/arch/x86/boot/bzImage", &bzimage(RELEASE));
        fixture::write(dir.path(), "mixed/a.ko", &other);
        fixture::write(dir.path(), "arm", &[&vec![0; 56][..], b"ARM\x64", &[0; 600]].concat());
        let image =
            |image: &str, modules: Option<&str>| KernelSpec::Image { image: at(image), modules: modules.map(at) };
        for (spec, what) in [
            (image("bzImage", Some("others")), "built for kernel 6.8.0-other, not for 6.9.0-mine"),
            (image("bzImage", Some("empty")), "no module"),
            (image("arm", None), "arm64 Image"),
            (image("missing", None), "missing"),
            (KernelSpec::BuildTree(at("unbuilt")), "run `make`"),
            (KernelSpec::BuildTree(at("empty")), "not a kernel's build tree"),
            (KernelSpec::BuildTree(at("stale")), "tree is at 6.9.0-next"),
            (KernelSpec::BuildTree(at("mixed")), "built for kernel 6.8.0-other"),
            (KernelSpec::Deb(vec![at("bzImage")]), "not a Debian package"),
            (KernelSpec::Named("nobody".into()), "No kernel is named `nobody`"),
        ] {
            let said = store.resolve(&spec, &quiet).unwrap_err().to_string();
            assert!(said.contains(what), "{said} / {what}");
            assert_eq!(store.list().unwrap(), [], "{spec:?}");
        }
        let left = fs::read_dir(store.dir().join("tmp")).unwrap().count();
        assert_eq!(left, 0);
    }

    /// A FIFO is waited for by who opens it, and may be anywhere in a folder that somebody else made.
    #[test]
    fn a_fifo_in_the_place_of_any_file_is_refused_and_not_waited_for() {
        for (name, fatal) in [
            ("tree/fs/a/a.ko", true),
            ("tree/fs/a/z.ko.xz", true),
            (&format!("root/lib/modules/{RELEASE}/kernel/a.ko"), true),
            (&format!("root/lib/modules/{RELEASE}/kernel/b.ko.zst"), true),
            ("tree/arch/x86/boot/bzImage", true),
            ("tree/include/config/kernel.release", true),
            ("bzImage", true),
            ("linux-image.deb", true),
            // What a kernel can do without.
            ("tree/.config", false),
            ("tree/System.map", false),
            ("tree/modules.builtin", false),
        ] {
            let (dir, store) = place();
            let at = |name: &str| dir.path().join(name);
            let _ = fs::remove_file(at(name));
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, at(name), rustix::fs::FileType::Fifo, mode, 0).unwrap();
            let spec = match name {
                _ if name.starts_with("tree/") => KernelSpec::BuildTree(at("tree")),
                "linux-image.deb" => KernelSpec::Deb(vec![at(name)]),
                _ => KernelSpec::Image { image: at("bzImage"), modules: Some(at("root")) },
            };
            let (send, answer) = std::sync::mpsc::channel();
            let of_thread = store.clone();
            std::thread::spawn(move || {
                let done = of_thread.resolve(&spec, &quiet).map(drop).map_err(|e| e.to_string());
                let _ = send.send(done);
            });
            // A reader of a FIFO waits for ever. Other reads can take long on a busy machine.
            let answer = answer.recv_timeout(std::time::Duration::from_secs(600)).expect(name);
            match answer {
                Ok(()) => assert!(!fatal, "{name}"),
                Err(said) => {
                    assert!(fatal && (said.contains("regular file") || said.contains("bzImage")), "{name}: {said}");
                }
            }
            assert_eq!(store.list().unwrap().is_empty(), fatal, "{name}");
        }
    }

    #[test]
    fn running_kernel_is_looked_for_where_systems_keep_it() {
        let (dir, store) = place();
        let root = dir.path().join("root");
        let said = running_below(&store, &root, RELEASE, &quiet).unwrap_err().to_string();
        assert!(said.contains("not on this machine") && said.contains(&format!("boot/vmlinuz-{RELEASE}")), "{said}");
        fixture::write(&root, &format!("usr/lib/modules/{RELEASE}/vmlinuz"), &bzimage("6.9.0-older"));
        let said = running_below(&store, &root, RELEASE, &quiet).unwrap_err().to_string();
        assert!(said.contains("6.9.0-older"), "{said}");
        fixture::write(&root, &format!("boot/vmlinuz-{RELEASE}"), &bzimage(RELEASE));
        fixture::write(&root, "proc/config.gz", &fixture::pack(b"CONFIG_A=y\n", ".gz"));
        let entry = running_below(&store, &root, RELEASE, &quiet).unwrap();
        assert_eq!((entry.spec.as_str(), entry.modules), ("running", 1));
        assert_eq!(fs::read(entry.dir.join("config")).unwrap(), b"CONFIG_A=y\n");
    }
}
