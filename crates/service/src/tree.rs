//! Selects files of Debian's packages for a server's root tree, and their places in it.
//!
//! Invariant: the tree is usr-merged (`bin`, `lib`, `lib64`, `sbin` are links into `usr`), all its links are relative, and none leads out of it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::elf::Libraries;
use super::error::{ServerError, doing};
use super::recipe::Recipe;
use bigiron_archive::{LinkEntry, extract, hash};
use bigiron_model::folder_files;

/// The user and group of servers where bigiron may choose them: in its own user namespace, in a guest, and when bigiron is root. Neither Debian
/// (60000–64999 on request of a package) nor systemd (60578–61183 unused) assigns a number in this range, so no other user of the machine can access
/// the server's files.
pub const UID: u32 = 60_932;

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The path of a server's own folder in its tree.
pub const FOLDER: &str = "cluster";
/// Mount points, and folders that programs expect.
const FOLDERS: [&str; 8] = ["dev", "proc", "sys", "run", "tmp", "etc", "root", FOLDER];

/// The date of bigiron's own file, which archives of Java's classes contain: files of packages have theirs.
const OWN_DATE: SystemTime = UNIX_EPOCH;

/// Unpacks packages into `dir` and completes the tree. Returns the server's libraries that were left out, each with the library it lacks.
pub fn build(
    packages: &[PathBuf],
    dir: &Path,
    recipe: &Recipe,
    series: &str,
    unusable: &dyn Fn(String) -> ServerError,
) -> Result<Vec<String>, ServerError> {
    fs::create_dir_all(dir).map_err(doing("Cannot create", dir))?;
    let mut links = Vec::new();
    for package in packages {
        extract(package, dir, &|path| place(path, recipe, series), &mut |at, item| links.push((at, item)))?;
    }
    for (at, item) in links {
        link(dir, &at, &item)?;
    }
    let left_out = prune(dir, recipe, series).map_err(|e| unusable(format!("{e:#}")))?;
    complete(dir, recipe)?;
    Ok(left_out)
}

/// The place for a file of a package; `None` if a running server does not need it.
fn place(path: &Path, recipe: &Recipe, series: &str) -> Option<PathBuf> {
    let merged = merged(path);
    let parts: Vec<&str> = merged.iter().map(|p| p.to_str()).collect::<Option<_>>()?;
    let wanted = match parts.as_slice() {
        ["usr", "lib", "x86_64-linux-gnu", name] | ["usr", "lib64", name] => name.contains(".so"),
        ["usr", "bin", "dash"] => true,
        ["usr", "share", "zoneinfo", first, ..] => !["posix", "right"].contains(first),
        parts => (recipe.keeps)(parts, series),
    };
    wanted.then_some(merged)
}

/// The path of a package's file in a usr-merged tree.
fn merged(path: &Path) -> PathBuf {
    let top = ["bin", "sbin", "lib", "lib64"].iter().any(|d| path.starts_with(d));
    if top { Path::new("usr").join(path) } else { path.to_path_buf() }
}

fn link(dir: &Path, at: &Path, item: &LinkEntry) -> Result<(), ServerError> {
    let path = dir.join(at);
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    // Not by a link of the package's: what leads where is judged by the path as it stands.
    let parent = at.parent().expect("a path below the tree");
    folder_files::make_folders(dir, parent).map_err(doing("Cannot create", &dir.join(parent)))?;
    let made = match item {
        LinkEntry::Same(to) => fs::hard_link(dir.join(to), &path),
        LinkEntry::Link(to) => {
            let to = relative(at, to);
            // Debian's time zone links may lead to the machine's own zone, which the tree does not have.
            let Some(to) = to else { return Ok(()) };
            symlink(to, &path)
        }
    };
    made.map_err(doing("Cannot write", &path))
}

/// The target with which a link at `at` to `to` stays in the tree; `None` if it cannot.
fn relative(at: &Path, to: &Path) -> Option<PathBuf> {
    let depth = at.components().count() - 1;
    let Ok(inside) = to.strip_prefix("/") else {
        // As many steps up as there are folders above the link, and no more, keep it inside; behind a name, which may be a link, none does.
        let up = to.components().take_while(|c| *c == Component::ParentDir).count();
        let goes_on = to.components().skip(up).all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        return (up <= depth && goes_on).then(|| to.to_path_buf());
    };
    Some(std::iter::repeat_n("..", depth).collect::<PathBuf>().join(merged(inside)))
}

/// Removes libraries that nothing needs, and the server's own libraries that lack a dependency.
fn prune(dir: &Path, recipe: &Recipe, series: &str) -> anyhow::Result<Vec<String>> {
    let own = dir.join((recipe.programs)(series));
    let shared = dir.join(LIBRARIES);
    let mut libraries = Libraries::default();
    libraries.add(&shared)?;
    let folders = recipe.plugins.iter().map(|folder| dir.join(folder(series)));
    for folder in folders.clone() {
        // Some servers keep libraries of their own programs there.
        libraries.add(&folder)?;
    }
    let mut needed = BTreeSet::new();
    for program in recipe.required {
        anyhow::ensure!(own.join(program).is_file(), "`{program}` is not in the package");
    }
    let programs = fs::read_dir(own)?.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>()?;
    for program in programs.iter().chain([&dir.join("usr/bin/dash")]) {
        match libraries.closure(program)? {
            Ok(files) => needed.extend(files),
            Err(name) => anyhow::bail!("`{}` needs `{name}`, which no package provides", program.display()),
        }
    }
    let mut left_out = Vec::new();
    let mut plugins = Vec::new();
    for folder in folders {
        plugins.extend(fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>()?);
    }
    // Java has its classes there too.
    plugins.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")));
    plugins.sort();
    for library in plugins {
        match libraries.closure(&library)? {
            Ok(files) => needed.extend(files),
            Err(name) => {
                let short = library.file_name().unwrap_or_default().to_string_lossy();
                left_out.push(format!("{short} (needs {name})"));
                fs::remove_file(&library)?;
            }
        }
    }
    // The target of a needed link is needed too.
    let ends = needed.iter().map(fs::canonicalize).collect::<std::io::Result<Vec<_>>>()?;
    needed.extend(ends);
    let top = fs::canonicalize(&shared)?;
    for entry in fs::read_dir(&top)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Loaded by name at run time, for looking up user names before libc could do it alone.
        let mut by_name = ["libnss_files", "ld-linux"].iter().chain(recipe.loaded);
        let by_name = by_name.any(|begin| name.starts_with(begin));
        if path.is_dir() {
            // A server's own, below the machine's.
            continue;
        }
        if !by_name && !needed.contains(&shared.join(path.file_name().unwrap_or_default())) && !needed.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(left_out)
}

/// Adds the links, folders and small files that make a folder a root.
fn complete(dir: &Path, recipe: &Recipe) -> Result<(), ServerError> {
    let user = recipe.user;
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).map_err(doing("Cannot write", &path))
    };
    for folder in FOLDERS.iter().copied().chain(["usr/bin", "usr/sbin", "usr/lib", "usr/lib64"]) {
        let path = dir.join(folder);
        fs::create_dir_all(&path).map_err(doing("Cannot create", &path))?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        link(dir, Path::new(name), &LinkEntry::Link(Path::new("usr").join(name)))?;
    }
    link(dir, Path::new("usr/bin/sh"), &LinkEntry::Link("dash".into()))?;
    if let Some((path, bytes)) = own_file(recipe)? {
        let path = dir.join(path);
        let parent = path.parent().expect("a path below the tree");
        fs::create_dir_all(parent).map_err(doing("Cannot create", parent))?;
        let written =
            fs::write(&path, bytes).and_then(|()| File::options().write(true).open(&path)?.set_modified(OWN_DATE));
        written.map_err(doing("Cannot write", &path))?;
    }
    put("etc/passwd", &format!("root:x:0:0::/:/bin/sh\n{user}:x:{UID}:{UID}::/{FOLDER}:/bin/sh\n"))?;
    put("etc/group", &format!("root:x:0:\n{user}:x:{UID}:\n"))?;
    put("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")?;
    // Servers connect to themselves through `localhost`, for example PostgreSQL 14 and older.
    put("etc/hosts", "127.0.0.1 localhost\n")
}

/// The path and bytes of the file that bigiron adds.
pub(crate) fn own_file(recipe: &Recipe) -> Result<Option<(&'static str, &'static [u8])>, ServerError> {
    let Some((path, bytes)) = recipe.own else { return Ok(None) };
    let missing = || ServerError::Failed(format!("This executable lacks `{path}`, which {} needs", recipe.title));
    Ok(Some((path, bytes().ok_or_else(missing)?)))
}

/// Hash over names, kinds, modes and contents of everything below `dir`, and the bytes of all files.
pub fn contents(dir: &Path) -> Result<(String, u64), ServerError> {
    let mut hasher = Sha256::new();
    let mut bytes = 0;
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = dir.join(&folder);
        let entries = fs::read_dir(&path).map_err(doing("Cannot read", &path))?;
        let mut names: Vec<_> = entries.filter_map(|e| Some(e.ok()?.file_name())).collect();
        names.sort();
        for name in names {
            let inside = folder.join(&name);
            let path = dir.join(&inside);
            let meta = path.symlink_metadata().map_err(doing("Cannot read", &path))?;
            let what = if meta.is_dir() {
                folders.push(inside.clone());
                "folder".to_owned()
            } else if meta.is_symlink() {
                fs::read_link(&path).map_err(doing("Cannot read", &path))?.display().to_string()
            } else {
                bytes += meta.len();
                let content = hash::of_file(&path).map_err(doing("Cannot read", &path))?;
                format!("{:o} {content}", meta.mode() & 0o777)
            };
            hasher.update(format!("{} {what}\n", inside.display()));
        }
    }
    let hash = hasher.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok((hash, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RECIPE;

    #[test]
    fn what_is_kept_and_where() {
        let kept = |p: &str| place(Path::new(p), &RECIPE, "15").map(|p| p.to_str().unwrap().to_owned());
        assert_eq!(kept("lib/x86_64-linux-gnu/libc.so.6").unwrap(), "usr/lib/x86_64-linux-gnu/libc.so.6");
        assert_eq!(kept("lib64/ld-linux-x86-64.so.2").unwrap(), "usr/lib64/ld-linux-x86-64.so.2");
        assert!(kept("usr/lib/postgresql/15/bin/postgres").is_some());
        assert!(kept("usr/share/postgresql/15/extension/plpgsql.control").is_some());
        for path in [
            "usr/lib/postgresql/15/bin/pg_upgrade",
            "usr/lib/postgresql/14/bin/postgres",
            "usr/lib/postgresql/15/lib/bitcode/x/y.bc",
            "usr/lib/postgresql/15/lib/pgxs/src/a.so.mk",
            "usr/share/postgresql/15/man/man1/x.gz",
            "usr/share/zoneinfo/right/UTC",
            "usr/lib/x86_64-linux-gnu/gconv/A.so",
            "usr/share/locale/de/LC_MESSAGES/x.mo",
        ] {
            assert_eq!(kept(path), None, "{path}");
        }
    }

    #[test]
    fn links_of_links_stay_inside_too() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("usr/share/zoneinfo")).unwrap();
        let to = |target: &str| LinkEntry::Link(target.into());
        link(&tree, Path::new("usr/share/zoneinfo/top"), &to("../../..")).unwrap();
        // As it stands it would have five folders above it, and it has one.
        let at = Path::new("usr/share/zoneinfo/top/new/out");
        let said = link(&tree, at, &to("../../../../../..")).unwrap_err().to_string();
        assert!(said.contains("symbolic link"), "{said}");
        assert!(!tree.join("new").exists());
    }

    #[test]
    fn links_stay_inside() {
        let to = |at: &str, to: &str| relative(Path::new(at), Path::new(to)).map(|p| p.to_str().unwrap().to_owned());
        assert_eq!(
            to("usr/lib64/ld.so", "/lib/x86_64-linux-gnu/ld.so").unwrap(),
            "../../usr/lib/x86_64-linux-gnu/ld.so"
        );
        assert_eq!(to("usr/lib/a.so", "a.so.1").unwrap(), "a.so.1");
        assert_eq!(to("usr/lib/a.so", "../../etc/x").unwrap(), "../../etc/x");
        assert_eq!(to("usr/lib/a.so", "../../../etc/x"), None);
        assert_eq!(to("usr/lib/a.so", "x/../../../etc/x"), None);
        assert_eq!(to("usr/lib/a.so", "x/.."), None, "`x` may be a link to the top");
        assert_eq!(to("usr/share/zoneinfo/localtime", "/etc/localtime").unwrap(), "../../../etc/localtime");
    }
}
