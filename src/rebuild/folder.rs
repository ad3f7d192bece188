//! The folder in which a kernel is linked again: links to what the link only reads, and copies of what it writes.
//!
//! ```text
//! CACHE/relink/KEY/tree/     stands for the folder in which make built the kernel
//! CACHE/relink/KEY/rule.mk   the goal that only links
//! CACHE/relink/KEY/log       make's output
//! CACHE/relink/KEY/lock      held by the process that links here, and by its children
//! ```
//! Invariant: make writes to no file of the user's. Everything it may write to (the top of the tree and the folders in [`WRITTEN`]) is a copy, and
//! each run begins with new ones.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;

use bigiron_archive::{Store, hash};

use super::tree::{self, BuildTree};
use crate::bisect::git::make::{self, MakeEnd, SAME};
use crate::bisect::git::workspace::{discard, take};
use crate::bisect::git::{command, step};

/// Folders of a tree of which parts are copied; everything beside them is linked to.
const PARTLY: [&str; 4] = ["arch", "arch/x86", "arch/x86/kernel", "include"];
/// Folders that are copied whole: the link's, and those of Kconfig, which make runs first if it thinks that the configuration may have changed.
const WRITTEN: [&str; 5] = ["init", "arch/x86/boot", "include/generated", "include/config", "scripts"];

/// Files beyond this are only read: images and archives of objects.
const MOST_COPIED: u64 = 16 << 20;

/// Characters of a folder's name.
const SHORT: usize = 12;

/// The goal: the kernel's own rules for the link and for the boot image, without those that compile. The flags are those that the goal `vmlinux` alone
/// passes on.
const RULE: &str = "\
.PHONY: bigiron-link\n\
bigiron-link:\n\
\tLDFLAGS_vmlinux='$(LDFLAGS_vmlinux)' $(MAKE) -f $(srctree)/scripts/Makefile.vmlinux\n\
\t$(MAKE) -f $(srctree)/scripts/Makefile.build obj=arch/x86/boot arch/x86/boot/bzImage\n";
const GOAL: &str = "bigiron-link";

/// A folder in which a tree is linked again, locked by this process and removed with this value.
pub(super) struct RelinkFolder<'a> {
    dir: PathBuf,
    lock: File,
    tree: &'a BuildTree,
    script: String,
}

impl RelinkFolder<'_> {
    /// Makes the folder of `tree`.
    ///
    /// # Errors
    /// Another process links this tree; the cache cannot be written.
    pub(super) fn open<'a>(
        store: &Store,
        tree: &'a BuildTree,
        note: &dyn Fn(&str),
    ) -> anyhow::Result<RelinkFolder<'a>> {
        let key = &hash::of_bytes(tree.dir.as_os_str().as_encoded_bytes())[..SHORT];
        let dir = store.dir().join("relink").join(key);
        let lock = take(&dir, &tree.dir, note)?;
        let script = fs::read_to_string(tree.dir.join(tree::SCRIPT))?;
        let folder = RelinkFolder { dir, lock, tree, script };
        folder.clear()?;
        let to = folder.at("tree");
        mirror(&tree.dir, Path::new(""), &to).with_context(|| format!("Cannot make `{}`", to.display()))?;
        fs::write(folder.at("rule.mk"), RULE)?;
        Ok(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The kernel's linker script.
    pub(super) fn script(&self) -> &str {
        &self.script
    }

    /// Links the kernel with `script`; its image and System.map are at the returned paths until the next link. `None` if `cancel` was set.
    ///
    /// # Errors
    /// Why make failed.
    pub(super) fn link(&self, script: &str, cancel: &AtomicBool) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
        let build = self.at("tree");
        let (image, symbols) = (build.join(tree::IMAGE), build.join("System.map"));
        for path in [&image, &symbols, &build.join("vmlinux")] {
            discard(path)?;
        }
        fs::write(build.join(tree::SCRIPT), script)?;
        let log = self.at("log");
        let file = File::create(&log)?;
        let is_apart = self.tree.source != self.tree.dir;
        let mut make = command("make");
        make.arg("--no-print-directory").arg("-C").arg(if is_apart { &self.tree.source } else { &build });
        if is_apart {
            let mut output = std::ffi::OsString::from("O=");
            output.push(&build);
            make.arg(output);
        }
        make.args(SAME).args(&self.tree.tools).arg(GOAL).env("MAKEFILES", self.at("rule.mk"));
        make.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file);
        match make::run(&mut make, &self.lock, cancel).context("make cannot be run")? {
            MakeEnd::Interrupted => Ok(None),
            MakeEnd::Done if image.is_file() && symbols.is_file() => Ok(Some((image, symbols))),
            MakeEnd::Done => anyhow::bail!("make ended without `{}`", tree::IMAGE),
            MakeEnd::Failed => anyhow::bail!("{}", step::reason(&log)?),
        }
    }

    fn clear(&self) -> io::Result<()> {
        ["tree", "rule.mk", "log"].iter().try_for_each(|name| discard(&self.at(name)))
    }
}

impl Drop for RelinkFolder<'_> {
    fn drop(&mut self) {
        // What stays is removed by the next run.
        let _ = self.clear().and_then(|()| fs::remove_file(self.at("lock"))).and_then(|()| fs::remove_dir(&self.dir));
    }
}

/// Makes `to` stand for the folder `below` of the tree at `top`.
fn mirror(top: &Path, below: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let is = |list: &[&str], path: &Path| list.iter().any(|name| Path::new(name) == path);
    for entry in fs::read_dir(top.join(below))? {
        let entry = entry?;
        let (name, from) = (entry.file_name(), entry.path());
        let (place, to) = (below.join(&name), to.join(&name));
        if is_made(below, &name.to_string_lossy()) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() && is(&WRITTEN, &place) {
            copy_folder(&from, &to)?;
        } else if kind.is_dir() && is(&PARTLY, &place) {
            mirror(top, &place, &to)?;
        } else if kind.is_file() && is_copied(below, &name.to_string_lossy()) && entry.metadata()?.len() <= MOST_COPIED
        {
            copy_file(&from, &to)?;
        } else {
            // Absolute, and of what a link of the tree's leads to.
            std::os::unix::fs::symlink(from.canonicalize().unwrap_or(from), &to)?;
        }
    }
    Ok(())
}

/// Whether a file of the top is made by the link, so that it has no place in a new folder. Repositories have none either.
fn is_made(below: &Path, name: &str) -> bool {
    let is_top = below.as_os_str().is_empty();
    let is_link = name.starts_with("vmlinux") && !["vmlinux.a", "vmlinux.o", "vmlinux.symvers"].contains(&name);
    is_top
        && (is_link || name == "System.map" || name == ".git" || name.starts_with(".tmp") || name.starts_with(".btf"))
}

/// Whether a file beside the copied folders is copied: those of the top, and the linker script with make's notes about it.
fn is_copied(below: &Path, name: &str) -> bool {
    below.as_os_str().is_empty() || below == Path::new("arch/x86/kernel") && name.contains("vmlinux.lds")
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type()? {
            kind if kind.is_dir() => copy_folder(&from, &to)?,
            kind if kind.is_symlink() => std::os::unix::fs::symlink(from.canonicalize().unwrap_or(from), &to)?,
            _ => copy_file(&from, &to)?,
        }
    }
    Ok(())
}

/// Copies a file with its time, by which make judges.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    let times = fs::FileTimes::new().set_modified(fs::metadata(from)?.modified()?);
    // A file that may only be read is copied as one.
    match File::options().append(true).open(to) {
        Ok(file) => file.set_times(times),
        Err(_) => File::open(to)?.set_times(times),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_make_may_write_is_a_copy_and_the_rest_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (top, to) = (dir.path().join("linux"), dir.path().join("relink"));
        for name in [
            "Makefile",
            ".config",
            ".version",
            "vmlinux",
            "vmlinux.a",
            ".git/HEAD",
            "System.map",
            ".tmp_vmlinux1",
            "init/main.o",
            "kernel/fork.o",
            "include/linux/a.h",
            "include/generated/utsrelease.h",
            "include/config/auto.conf",
            "scripts/basic/fixdep",
            "arch/arm/a.c",
            "arch/x86/lib/lib.a",
            "arch/x86/boot/compressed/misc.o",
            "arch/x86/kernel/vmlinux.lds",
            "arch/x86/kernel/.vmlinux.lds.cmd",
            "arch/x86/kernel/head_64.o",
        ] {
            let path = top.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
        }
        mirror(&top, Path::new(""), &to).unwrap();
        let is_link = |name: &str| fs::symlink_metadata(to.join(name)).unwrap().is_symlink();
        for name in ["kernel", "include/linux", "arch/arm", "arch/x86/lib", "arch/x86/kernel/head_64.o"] {
            assert!(is_link(name), "{name}");
        }
        for name in ["vmlinux", "System.map", ".git", ".tmp_vmlinux1"] {
            assert!(!to.join(name).exists(), "{name}");
        }
        let before = |name: &str| fs::metadata(top.join(name)).unwrap().modified().unwrap();
        for name in [
            "Makefile",
            ".version",
            "vmlinux.a",
            "init/main.o",
            "include/generated/utsrelease.h",
            "include/config/auto.conf",
            "scripts/basic/fixdep",
            "arch/x86/boot/compressed/misc.o",
            "arch/x86/kernel/vmlinux.lds",
            "arch/x86/kernel/.vmlinux.lds.cmd",
        ] {
            let (path, then) = (to.join(name), before(name));
            assert_eq!(fs::canonicalize(&path).unwrap(), to.canonicalize().unwrap().join(name), "{name} is a link");
            assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), then, "{name}");
            fs::write(&path, "written").unwrap();
            assert_eq!((fs::read_to_string(top.join(name)).unwrap(), before(name)), (name.to_owned(), then));
        }
    }
}
