//! Files of this machine for an image, with everything needed to find and start them.
//!
//! Invariant: the folders of each entry are entries too, and each followed link is an entry together with its target.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use crate::elf;

/// The dynamic linker's default search path.
const LIBRARIES: [&str; 7] = [
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// The kernel's limit of links in a path.
const MOST_LINKS: u32 = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    Folder,
    Link(PathBuf),
    /// With its length.
    File(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedFile {
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Seconds since 1970; 0 for anything that is not a file.
    pub modified_s: i64,
}

/// By absolute path.
#[derive(Debug, Default)]
pub struct Selection {
    pub entries: BTreeMap<PathBuf, SelectedFile>,
    /// Names of libraries already searched for.
    libraries: BTreeSet<String>,
}

impl Selection {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.entries.values().map(|e| if let FileKind::File(bytes) = e.kind { bytes } else { 0 }).sum()
    }

    /// The folder at the third level with the largest content.
    pub fn largest(&self) -> String {
        let mut by_folder: BTreeMap<PathBuf, u64> = BTreeMap::new();
        for (path, entry) in &self.entries {
            if let FileKind::File(bytes) = entry.kind {
                *by_folder.entry(path.iter().take(4).collect()).or_default() += bytes;
            }
        }
        let largest = by_folder.into_iter().max_by_key(|(_, bytes)| *bytes);
        largest.map_or_else(String::new, |(path, bytes)| format!("`{}` ({} MiB)", path.display(), bytes >> 20))
    }

    /// Adds a file, or a folder with its content except what `skip` excludes.
    pub fn add(&mut self, path: &Path, skip: &dyn Fn(&Path) -> bool) {
        if let Some(real) = self.reach(path, 0).filter(|real| !skip(real)) {
            self.inside(&real, skip);
        }
    }

    /// Adds a program with its interpreter or its libraries.
    pub fn add_program(&mut self, path: &Path) {
        self.add(path, &|_| true);
    }

    /// Adds a path with its folders and the targets of its links; returns the resolved path, if it exists.
    fn reach(&mut self, path: &Path, links: u32) -> Option<PathBuf> {
        let mut at = PathBuf::from("/");
        let mut rest = path.components();
        while let Some(component) = rest.next() {
            match component {
                Component::ParentDir => {
                    at.pop();
                }
                Component::Normal(name) => {
                    let here = at.join(name);
                    let entry = self.enter(&here)?;
                    if let FileKind::Link(target) = entry {
                        let onward = at.join(target).join(rest.as_path());
                        return if links < MOST_LINKS { self.reach(&onward, links + 1) } else { None };
                    }
                    at = here;
                }
                _ => {}
            }
        }
        Some(at)
    }

    /// Adds the entry at `path` itself; `None` if it cannot be copied.
    fn enter(&mut self, path: &Path) -> Option<FileKind> {
        if let Some(entry) = self.entries.get(path) {
            return Some(entry.kind.clone());
        }
        let meta = fs::symlink_metadata(path).ok()?;
        let kind = match meta.file_type() {
            t if t.is_dir() => FileKind::Folder,
            t if t.is_symlink() => FileKind::Link(fs::read_link(path).ok()?),
            t if t.is_file() && rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok() => {
                FileKind::File(meta.len())
            }
            _ => return None,
        };
        let modified_s = if matches!(kind, FileKind::File(_)) { meta.mtime() } else { 0 };
        let entry = SelectedFile { kind: kind.clone(), mode: meta.permissions().mode() & 0o7777, modified_s };
        self.entries.insert(path.to_owned(), entry);
        if let FileKind::File(_) = kind
            && (meta.permissions().mode() & 0o111 != 0 || is_library(path))
        {
            self.needs(path);
        }
        Some(kind)
    }

    fn inside(&mut self, dir: &Path, skip: &dyn Fn(&Path) -> bool) {
        if !dir.is_dir() {
            return;
        }
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if skip(&path) {
                continue;
            }
            if let Some(FileKind::Folder) = self.enter(&path) {
                self.inside(&path, skip);
            }
        }
    }

    /// Adds what a program needs to start: an interpreter, or shared libraries.
    fn needs(&mut self, path: &Path) {
        let mut head = [0; 256];
        let read = fs::File::open(path).and_then(|mut f| f.read(&mut head)).unwrap_or(0);
        let head = &head[..read];
        if let Some(line) = head.strip_prefix(b"#!") {
            let line = String::from_utf8_lossy(line);
            let words: Vec<&str> = line.lines().next().unwrap_or_default().split_whitespace().collect();
            if let Some(interpreter) = words.first() {
                self.add_program(Path::new(interpreter));
            }
        } else if head.starts_with(b"\x7fELF") {
            self.library(path);
        }
    }

    fn library(&mut self, path: &Path) {
        let needed = fs::read(path).ok().and_then(|bytes| elf::needed(&bytes).ok()).unwrap_or_default();
        if !needed.is_empty() {
            self.reach(Path::new(LOADER), 0);
        }
        for name in needed {
            if !self.libraries.insert(name.clone()) {
                continue;
            }
            let beside = path.parent().map(Path::to_owned).into_iter();
            let found = LIBRARIES.iter().map(PathBuf::from).chain(beside).map(|d| d.join(&name)).find(|p| p.exists());
            if let Some(real) = found.and_then(|found| self.reach(&found, 0)) {
                self.library(&real);
            }
        }
    }
}

/// Whether the name is that of a shared library, which is usually not executable: a program may open it at run time.
fn is_library(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(".so") || name.contains(".so."))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A library of this machine, and the name of one that it needs besides the C library.
    pub fn library() -> (PathBuf, String) {
        let folders = LIBRARIES.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
        let mut found = folders.map(|entry| entry.path()).filter(|path| path.is_file() && is_library(path));
        let other = |path: &PathBuf| {
            let needed = elf::needed(&fs::read(path).ok()?).ok()?;
            let other = needed.into_iter().find(|name| !name.starts_with("libc.") && !name.starts_with("ld-"))?;
            LIBRARIES.iter().any(|dir| Path::new(dir).join(&other).exists()).then_some(other)
        };
        found.find_map(|path| other(&path).map(|needed| (path, needed))).expect("a library that needs another")
    }

    #[test]
    fn a_library_in_a_folder_comes_with_what_it_needs() {
        let (library, needed) = library();
        let dir = tempfile::tempdir().unwrap();
        let plugin = dir.path().join("plugin.so");
        fs::copy(library, &plugin).unwrap();
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o644)).unwrap();
        let mut selection = Selection::default();
        selection.add(dir.path(), &|_| false);
        assert!(selection.entries.keys().any(|path| path.ends_with(&needed)), "{needed}: {:?}", selection.entries);
    }

    #[test]
    fn a_program_comes_with_what_it_needs_and_the_links_on_the_way() {
        let mut selection = Selection::default();
        selection.add_program(Path::new("/bin/sh"));
        let has = |path: &str| selection.entries.contains_key(Path::new(path));
        assert!(has("/bin") && has("/usr/bin/sh") | has("/bin/sh") && has(LOADER) | has("/lib64"));
        let libc = selection.entries.keys().any(|p| p.file_name().is_some_and(|n| n == "libc.so.6"));
        assert!(libc, "{:?}", selection.entries.keys());
        for path in selection.entries.keys() {
            assert!(path.parent().is_none_or(|p| p == Path::new("/") || selection.entries.contains_key(p)));
        }
        assert!(selection.bytes() < 64 << 20, "{}", selection.largest());
    }

    #[test]
    fn a_folder_is_taken_whole_but_for_what_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir_all(dir.path().join("big")).unwrap();
        fs::write(dir.path().join("a/b/file"), "12345").unwrap();
        fs::write(dir.path().join("big/file"), "12345").unwrap();
        std::os::unix::fs::symlink("/nowhere", dir.path().join("dangling")).unwrap();
        let mut selection = Selection::default();
        selection.add(dir.path(), &|path| path.ends_with("big"));
        let kind = |path: &str| selection.entries.get(&dir.path().join(path)).map(|e| e.kind.clone());
        assert_eq!(kind("a/b/file"), Some(FileKind::File(5)));
        assert_eq!(kind("dangling"), Some(FileKind::Link("/nowhere".into())));
        assert_eq!((kind("big"), kind("big/file")), (None, None));
        assert_eq!(selection.bytes(), 5);
    }
}
