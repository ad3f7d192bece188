//! The pinned QEMU: one of Debian's builds for every machine, so that a study gives the same digits everywhere. Its packages are unpacked in the
//! cache, and it is started through its own loader with its own libraries; nothing is installed.
//!
//! ```text
//! CACHE/qemu/BUILD/{bin/qemu-system-x86_64,lib/,modules/,share/,packages}
//! ```
//! Invariant: a folder appears whole (by a rename) or not at all, and has every library that the program and its modules need.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bigiron_archive::error::doing;
use bigiron_archive::{Closure, KernelError, LinkEntry, Store, extract};

use super::program::{PROGRAM, Qemu, QemuError};

/// The build, as a version of the package `qemu-system-x86`. Of the versions tried (7.2, 10.0, 11.1) it takes the least CPU time for a guest with one
/// CPU, and such a guest needs nothing that later versions add.
pub const BUILD: &str = "1:7.2+dfsg-7+deb12u18+b3";

/// The Debian release of the build.
const RELEASE: &str = "bookworm";

const PACKAGE: &str = "qemu-system-x86";

/// Packages from which QEMU needs some files, but not their dependencies.
const BESIDE: [&str; 3] = ["qemu-system-common", "qemu-system-data", "seabios"];

/// Files that every guest needs.
const REQUIRED: [&str; 6] = [
    "bin/qemu-system-x86_64",
    LOADER,
    "modules/accel-tcg-x86_64.so",
    "share/bios-256k.bin",
    "share/kvmvapic.bin",
    "share/linuxboot_dma.bin",
];

/// Version of the folder's layout.
const FORM: u32 = 1;

const LIBRARY_FOLDERS: [&str; 3] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "lib64"];
const MODULE_FOLDER: &str = "usr/lib/x86_64-linux-gnu/qemu";
const FIRMWARE_FOLDERS: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

pub(super) const LOADER: &str = "lib/ld-linux-x86-64.so.2";
pub(super) const LIBRARIES: &str = "lib";
pub(super) const MODULES: &str = "modules";
pub(super) const FIRMWARE: &str = "share";

/// Lists the packages; written last.
const LIST: &str = "packages";

/// Why there is no pinned QEMU.
#[derive(Debug, thiserror::Error)]
pub enum PinnedError {
    #[error(
        "bigiron's build of QEMU, Debian 12's {BUILD}, is neither installed nor available: {why}; \
         `--qemu system` uses {} instead, with which the exact clock may give other digits", or_installed(installed.as_deref())
    )]
    NoArchive { why: String, installed: Option<Box<Qemu>> },
    #[error("Debian's packages of QEMU {build} cannot be used: {why}; `--qemu system` uses an installed QEMU instead")]
    Packages { build: String, why: String },
    #[error("The QEMU in bigiron's cache cannot be started now: {0}; try again when this machine is less busy")]
    Busy(io::Error),
    #[error(transparent)]
    Cache(KernelError),
}

fn or_installed(installed: Option<&Qemu>) -> String {
    match installed {
        Some(qemu) => format!("the installed QEMU {}", qemu.version),
        None => "a QEMU that you install (`apt-get install qemu-system-x86`)".to_owned(),
    }
}

/// The pinned QEMU: the installed one if it is the same build, else the one in the cache, fetched if necessary. `note` receives progress messages.
///
/// # Errors
/// It is neither installed nor available, or cannot be started now.
pub fn find(store: &Store, note: &dyn Fn(&str)) -> Result<Qemu, PinnedError> {
    let installed = Qemu::find().ok();
    if let Some(qemu) = installed.as_ref().filter(|qemu| is_build(qemu, BUILD)) {
        return Ok(qemu.clone());
    }
    let dir = folder(store);
    if let Some(qemu) = kept(&dir, &Qemu::at)? {
        return Ok(qemu);
    }
    fetch(store, &dir, installed, note)
}

fn folder(store: &Store) -> PathBuf {
    store.dir().join("qemu").join(format!("{}-{FORM}", BUILD.trim_start_matches("1:")))
}

/// Whether QEMU says that it was built for this version of Debian's package.
fn is_build(qemu: &Qemu, version: &str) -> bool {
    qemu.build.as_deref().and_then(|build| build.strip_prefix("Debian ")) == Some(version)
}

/// The QEMU in a folder of the cache, if it is there and runs; `ask` is [`Qemu::at`].
///
/// # Errors
/// This machine cannot start it now, although it may be intact.
fn kept(
    dir: &Path,
    ask: &dyn Fn(PathBuf, Option<PathBuf>) -> Result<Qemu, QemuError>,
) -> Result<Option<Qemu>, PinnedError> {
    let Ok(list) = fs::read_to_string(dir.join(LIST)) else { return Ok(None) };
    let version = list.lines().find_map(|line| line.strip_prefix(PACKAGE)?.strip_prefix('='));
    match (version, ask(dir.join("bin").join(PROGRAM), Some(dir.to_owned()))) {
        (Some(version), Ok(qemu)) => Ok(is_build(&qemu, version).then_some(qemu)),
        (Some(_), Err(QemuError::Broken { cause, .. })) if is_passing(&cause) => Err(PinnedError::Busy(cause)),
        _ => Ok(None),
    }
}

/// Whether a program that could not be started may start later, because the machine lacked memory, processes or open files.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

fn fetch(store: &Store, dir: &Path, installed: Option<Qemu>, note: &dyn Fn(&str)) -> Result<Qemu, PinnedError> {
    let guard = store.lock(note).map_err(PinnedError::Cache)?;
    // Another process may have completed it in the meantime.
    if let Some(qemu) = kept(dir, &Qemu::at)? {
        return Ok(qemu);
    }
    let refused = |error| unavailable(error, installed.clone());
    let closure = Closure::of_release(&store.dir().join("apt"), RELEASE, PACKAGE, &[BUILD], note).map_err(refused)?;
    let unusable = |build: &str, why: String| PinnedError::Packages { build: build.to_owned(), why };
    let Some(first) = closure.part(PACKAGE) else {
        return Err(unusable(BUILD, format!("`{PACKAGE}` is not among them")));
    };
    let build = first.version.clone();
    if build != BUILD {
        note(&format!(
            "Debian no longer has QEMU {BUILD}; using {build} from the same release. Each study records its QEMU"
        ));
        if let Some(qemu) = installed.as_ref().filter(|qemu| is_build(qemu, &build)) {
            return Ok(qemu.clone());
        }
    }
    let mut parts = closure.libraries_of(vec![first], &[]);
    parts.extend(BESIDE.iter().filter_map(|name| closure.part(name)));
    let size: u64 = parts.iter().map(|p| p.size).sum();
    store.needs(size + parts.iter().map(|p| p.installed).sum::<u64>()).map_err(PinnedError::Cache)?;
    note(&format!(
        "Downloading QEMU {build} and its libraries ({} MB) from Debian {}",
        size.div_ceil(1_000_000),
        closure.release
    ));
    let downloads = store.stage(&guard).map_err(PinnedError::Cache)?;
    let files = closure.download(&parts, downloads.path()).map_err(refused)?;
    let staged = store.stage(&guard).map_err(PinnedError::Cache)?;
    unpack(&files, staged.path()).map_err(|error| match error {
        KernelError::Deb { path, reason } => unusable(&build, format!("{}: {reason}", path.display())),
        other => PinnedError::Cache(other),
    })?;
    check(staged.path()).map_err(|why| unusable(&build, why))?;
    let list: String = parts.iter().map(|p| format!("{}={}\n", p.name, p.version)).collect();
    let aside = store.stage(&guard).map_err(PinnedError::Cache)?;
    keep(staged, dir, &list, aside.path()).map_err(PinnedError::Cache)?;
    kept(dir, &Qemu::at)?.ok_or_else(|| unusable(&build, "the program does not run here".to_owned()))
}

fn unavailable(error: KernelError, installed: Option<Qemu>) -> PinnedError {
    let why = match error {
        KernelError::NoApt(tool) => format!("this machine has no `{tool}` to fetch it with"),
        KernelError::NoSource { reason, .. } => {
            format!("Debian's archive is not among this machine's apt sources ({reason})")
        }
        error @ (KernelError::Update(_) | KernelError::Download { .. }) => error.to_string(),
        other => return PinnedError::Cache(other),
    };
    PinnedError::NoArchive { why, installed: installed.map(Box::new) }
}

/// The path of a package's file in the folder; `None` if guests do not need the file.
fn place(path: &Path) -> Option<PathBuf> {
    let (folder, name) = (path.parent()?.to_str()?, path.file_name()?.to_str()?);
    let is = |folders: &[&str]| folders.contains(&folder);
    if name == PROGRAM && folder == "usr/bin" {
        return Some(Path::new("bin").join(name));
    }
    let to = if is(&LIBRARY_FOLDERS) && name.contains(".so") {
        LIBRARIES
    } else if folder == MODULE_FOLDER && name.starts_with("accel-") {
        MODULES
    } else if is(&FIRMWARE_FOLDERS) && (name.ends_with(".bin") || name.ends_with(".rom")) {
        FIRMWARE
    } else {
        return None;
    };
    Some(Path::new(to).join(name))
}

fn unpack(packages: &[PathBuf], into: &Path) -> Result<(), KernelError> {
    let mut links = Vec::new();
    for package in packages {
        extract(package, into, &place, &mut |at, item| links.push((at, item)))?;
    }
    for (at, item) in links {
        let path = into.join(&at);
        if path.symlink_metadata().is_ok() {
            continue;
        }
        let made = match &item {
            LinkEntry::Same(to) => fs::hard_link(into.join(to), &path),
            // All files of a kind are in one folder here.
            LinkEntry::Link(to) => to.file_name().map_or(Ok(()), |name| symlink(name, &path)),
        };
        made.map_err(doing("Cannot write", &path))?;
    }
    Ok(())
}

/// Checks that the folder has everything that guests need, and that the loader finds all libraries of the program and its modules there.
///
/// # Errors
/// What is missing.
fn check(dir: &Path) -> Result<(), String> {
    if let Some(missing) = REQUIRED.iter().find(|file| !dir.join(file).is_file()) {
        return Err(format!("they do not contain `{missing}`"));
    }
    for object in REQUIRED.iter().filter(|file| !file.starts_with(FIRMWARE)).map(|file| dir.join(file)) {
        let mut command = std::process::Command::new(dir.join(LOADER));
        command.args(["--inhibit-cache", "--library-path"]).arg(dir.join(LIBRARIES)).arg("--list").arg(&object);
        let output =
            command.env_remove("LD_PRELOAD").output().map_err(|e| format!("their loader does not run ({e})"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        if let Some(line) = elsewhere(&listed, dir) {
            return Err(format!("they lack a library: {line}"));
        }
    }
    Ok(())
}

/// The first line of the loader's list (`libz.so.1 => PATH (ADDRESS)`) that names a library outside `dir`.
fn elsewhere<'l>(listed: &'l str, dir: &Path) -> Option<&'l str> {
    let outside = |line: &&str| {
        line.split_once(" => ").is_some_and(|(_, found)| {
            !Path::new(found.rsplit_once(" (").map_or(found, |(path, _)| path)).starts_with(dir)
        })
    };
    listed.lines().map(str::trim).find(outside)
}

/// Renames the staged folder to `dir`, with the list of its packages. An existing folder moves to `aside` whole: its program did not run for this
/// process, but another process may have started guests from it.
fn keep(staged: tempfile::TempDir, dir: &Path, list: &str, aside: &Path) -> Result<(), KernelError> {
    let path = staged.path().join(LIST);
    fs::write(&path, list).map_err(doing("Cannot write", &path))?;
    let flushed = fs::File::open(&path).and_then(|file| Ok(rustix::fs::syncfs(&file)?));
    flushed.map_err(doing("Cannot write", &path))?;
    let parent = dir.parent().expect("a folder of the cache");
    fs::create_dir_all(parent).map_err(doing("Cannot create", parent))?;
    let old = aside.join("old");
    match fs::rename(dir, &old) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(KernelError::io("Cannot rename", dir, e)),
        _ => {}
    }
    if let Err(error) = fs::rename(staged.path(), dir) {
        let _ = fs::rename(&old, dir);
        return Err(KernelError::io("Cannot store", dir, error));
    }
    // The staged folder has its final name; do not remove it.
    let _ = staged.keep();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn files_that_guests_need_have_a_place() {
        for (path, at) in [
            ("usr/bin/qemu-system-x86_64", Some("bin/qemu-system-x86_64")),
            ("usr/bin/qemu-system-i386", None),
            ("lib/x86_64-linux-gnu/libc.so.6", Some("lib/libc.so.6")),
            ("usr/lib/x86_64-linux-gnu/libz.so.1.2.13", Some("lib/libz.so.1.2.13")),
            ("usr/lib/x86_64-linux-gnu/gconv/UTF-16.so", None),
            ("usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so", Some("modules/accel-tcg-x86_64.so")),
            ("usr/lib/x86_64-linux-gnu/qemu/ui-spice-app.so", None),
            ("usr/share/seabios/bios-256k.bin", Some("share/bios-256k.bin")),
            ("usr/share/qemu/keymaps/de", None),
        ] {
            assert_eq!(place(Path::new(path)).as_deref(), at.map(Path::new), "{path}");
        }
    }

    #[test]
    fn a_library_of_the_machine_is_not_one_of_the_folder() {
        let dir = Path::new("/cache/qemu");
        let own = "\tlinux-vdso.so.1 (0x7ffe)\n\tlibc.so.6 => /cache/qemu/lib/libc.so.6 (0x7f01)\n\t/cache/qemu/ld.so (0x7f02)";
        assert_eq!(elsewhere(own, dir), None);
        let foreign = "libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x7f03)";
        assert_eq!(elsewhere(&format!("{own}\n\t{foreign}\n"), dir), Some(foreign));
        assert_eq!(elsewhere("libz.so.1 => not found", dir), Some("libz.so.1 => not found"));
    }

    #[test]
    fn a_folder_counts_only_if_it_is_whole_and_of_the_build_that_it_says() {
        let installed = Qemu::find().expect("QEMU is installed");
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        fs::create_dir_all(dir.path().join(LIBRARIES)).unwrap();
        symlink(&installed.program, dir.path().join("bin").join(PROGRAM)).unwrap();
        let list = |version: &str| fs::write(dir.path().join(LIST), format!("libz=1\n{PACKAGE}={version}\n")).unwrap();
        let Some(build) = installed.build.as_deref().and_then(|build| build.strip_prefix("Debian ")) else {
            let said = installed.build.as_deref().unwrap_or("no package");
            return drop(writeln!(
                io::stderr(),
                "SKIPPED a folder with QEMU: the installed one was built for {said}, not for Debian"
            ));
        };
        let kept = |dir: &Path| kept(dir, &Qemu::at).unwrap();
        assert_eq!(kept(dir.path()), None, "without a list");
        list(build);
        assert_eq!(kept(dir.path()), None, "without a loader");
        symlink("/lib64/ld-linux-x86-64.so.2", dir.path().join(LOADER)).unwrap();
        let found = kept(dir.path()).expect("it is whole");
        assert!(!found.is_installed() && found.version == installed.version);
        let command = found.command();
        assert_eq!(command.get_program(), dir.path().join(LOADER));
        assert!(command.get_args().any(|word| word == found.program));
        list("1:0.0");
        assert_eq!(kept(dir.path()), None, "of another build");
        assert!(check(dir.path()).unwrap_err().contains("accel-tcg"));
    }

    #[test]
    fn a_folder_that_cannot_be_started_now_is_not_given_up() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LIST), format!("{PACKAGE}={BUILD}\n")).unwrap();
        let by = |errno: rustix::io::Errno| {
            let broken = move |program: PathBuf, _| {
                Err(QemuError::Broken { program: program.display().to_string(), cause: errno.into() })
            };
            kept(dir.path(), &broken)
        };
        let busy = by(rustix::io::Errno::NOMEM).unwrap_err().to_string();
        assert!(busy.contains("cannot be started now: Out of memory") && busy.contains("try again"), "{busy}");
        assert!(matches!(by(rustix::io::Errno::AGAIN), Err(PinnedError::Busy(_))));
        // The loader is gone, or no program.
        for errno in [rustix::io::Errno::NOENT, rustix::io::Errno::NOEXEC] {
            assert_eq!(by(errno).unwrap(), None);
        }
    }

    #[test]
    fn a_folder_that_is_replaced_is_set_aside_whole() {
        let cache = tempfile::tempdir().unwrap();
        let at = |name: &str| cache.path().join(name);
        let staged = |content: &str| {
            let staged = tempfile::tempdir_in(cache.path()).unwrap();
            fs::write(staged.path().join("file"), content).unwrap();
            staged
        };
        let aside = tempfile::tempdir_in(cache.path()).unwrap();
        keep(staged("first"), &at("qemu/x"), "a=1\n", aside.path()).unwrap();
        keep(staged("second"), &at("qemu/x"), "a=2\n", aside.path()).unwrap();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!((read(at("qemu/x/file")), read(at("qemu/x").join(LIST))), ("second".to_owned(), "a=2\n".to_owned()));
        assert_eq!(
            (read(aside.path().join("old/file")), read(aside.path().join("old").join(LIST))),
            ("first".to_owned(), "a=1\n".to_owned())
        );
    }

    #[test]
    fn where_it_cannot_be_had_the_way_out_is_said() {
        let none = unavailable(KernelError::NoApt("apt-get".to_owned()), None).to_string();
        assert!(none.contains("has no `apt-get`") && none.contains("`--qemu system`"), "{none}");
        let installed = Qemu::named("/usr/bin/qemu".into(), super::super::program::Version(8, 2, 2));
        let gone = unavailable(KernelError::Update("no release".to_owned()), Some(installed)).to_string();
        assert!(gone.contains("no release") && gone.contains("uses the installed QEMU 8.2.2"), "{gone}");
    }
}
