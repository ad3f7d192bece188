//! File-system images of folders, made without root and without mounting, and copies of them.
//!
//! Invariant: an image appears whole (by a rename) or not at all, and never changes afterwards; trials write to copies.
//!
//! The owners of files in an image do not depend on the user who makes it: an ordinary user runs mkfs in a user namespace in which they are the wanted owner.
//! Only where user namespaces are unavailable do files keep the number of the user who made them; then a server runs under that number, and for a
//! read-only root it does not matter.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::recipe::Recipe;
use super::root::Root;
use bigiron_archive::{Store, hash};
use bigiron_image::{EPOCH, HASH_SEED, UUID, find_tool, tool};
use bigiron_sys::sandbox::{Sandbox, enclose};

/// The block size of ext4, in which sizes are counted here.
const BLOCK: u64 = 4096;

/// Properties of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSpec<'a> {
    /// Only `ext4` at present.
    pub filesystem: &'a str,
    /// Free space in addition to the files, in bytes; 0 makes the image as small as is safe.
    pub room: u64,
    /// Whether it will be written to: otherwise it has no journal.
    pub writable: bool,
    /// The user and group of all files if an ordinary user makes the image; root's files keep theirs.
    pub owner: u32,
}

/// The version that mkfs reports; part of the key of everything made with it.
///
/// # Errors
/// mkfs is not installed (names the package), or cannot make this file system.
pub fn maker(filesystem: &str) -> anyhow::Result<String> {
    if filesystem != "ext4" {
        bail!(
            "A loaded database can be put on ext4, not on `{filesystem}`, whose mkfs cannot fill a file system from a folder"
        );
    }
    let (name, package) = tool(filesystem).context("ext4 has a tool")?;
    let path =
        find_tool(name).with_context(|| format!("`{name}` is not installed; `apt-get install {package}` brings it"))?;
    let output = Command::new(&path).arg("-V").stdin(Stdio::null()).output().with_context(|| format!("`{name}`"))?;
    Ok(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned())
}

/// Makes the file `to` an image with the content of `from`.
///
/// # Errors
/// mkfs is missing or fails (with its output), or there is no room.
pub fn make(from: &Path, to: &Path, shape: &ImageSpec<'_>) -> anyhow::Result<()> {
    maker(shape.filesystem)?;
    let path = find_tool("mke2fs").context("`mke2fs` is not installed")?;
    let usage = Usage::of(from).with_context(|| format!("Cannot read {}", from.display()))?;
    let inodes = usage.files + usage.files / 4 + 1024;
    // In addition to data: inodes of 256 bytes, block maps, and a journal that grows with the file system, here up to a 64th of it.
    let mut bytes = usage.bytes + usage.bytes / 32 + inodes * 256 + shape.room + (8 << 20);
    if shape.writable {
        bytes += (bytes / 32).max(32 << 20);
    }
    // A guest may use it as persistent memory, whose unit is 2 MiB.
    let bytes = bytes.next_multiple_of(2 << 20);
    let file = File::create(to).with_context(|| format!("Cannot make {}", to.display()))?;
    file.set_len(bytes).with_context(|| format!("Cannot make {}", to.display()))?;
    let run = |owner: Option<u32>| {
        let mut command = Command::new(&path);
        // Fixes all times except those of the files.
        command.env("SOURCE_DATE_EPOCH", EPOCH).env("E2FSPROGS_FAKE_TIME", EPOCH);
        command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-U", UUID]);
        if !shape.writable {
            command.args(["-O", "^has_journal"]);
        }
        let root = owner.or(rustix::process::geteuid().is_root().then_some(shape.owner));
        let owner_of_root = root.map_or(String::new(), |o| format!(",root_owner={o}:{o}"));
        let extended = format!("hash_seed={HASH_SEED},lazy_itable_init=0,lazy_journal_init=0,nodiscard{owner_of_root}");
        command.args(["-E", &extended, "-N", &inodes.to_string()]).arg("-d").arg(from).arg(to);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(user) = owner {
            enclose(
                &mut command,
                &Sandbox { root: None, folder: (from, ""), user, sees_sys: false, mapped_only: true },
            )?;
        } else {
            bigiron_sys::child::die_with_parent(&mut command);
        }
        command.output()
    };
    let output = if rustix::process::geteuid().is_root() {
        run(None)
    } else {
        // Without user namespaces the child cannot be started.
        run(Some(shape.owner)).or_else(|_| run(None))
    };
    let output = output.with_context(|| format!("Cannot start {}", path.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed ({}): {}", path.display(), output.status, said.trim());
    }
    file.sync_all().with_context(|| format!("Cannot write {}", to.display()))
}

/// The read-only image of a server's tree, from the cache or newly made.
///
/// # Errors
/// As [`make`].
pub fn of_root(store: &Store, recipe: &Recipe, root: &Root, note: &dyn Fn(&str)) -> anyhow::Result<PathBuf> {
    let key = hash::of_bytes(format!("{} {}", root.about.hash, maker("ext4")?).as_bytes());
    let dir = store.dir().join(recipe.name).join("roots");
    let kept = dir.join(format!("{}-{}.img", root.about.version, &key[..12]));
    if kept.is_file() {
        return Ok(kept);
    }
    note(&format!("Making a file system of {} {}", recipe.title, root.about.version));
    make_kept(&root.dir, &kept, &ImageSpec { filesystem: "ext4", room: 0, writable: false, owner: 0 })?;
    Ok(kept)
}

/// As [`make`], but atomic: several processes may make or look up the image at the same time.
///
/// # Errors
/// As [`make`].
pub fn make_kept(from: &Path, to: &Path, shape: &ImageSpec<'_>) -> anyhow::Result<()> {
    let dir = to.parent().context("An image is in a folder")?;
    fs::create_dir_all(dir).with_context(|| format!("Cannot make {}", dir.display()))?;
    let new = tempfile::Builder::new().prefix(".new-").tempfile_in(dir);
    let new = new.with_context(|| format!("Cannot make an image in {}", dir.display()))?;
    make(from, new.path(), shape)?;
    new.persist(to).with_context(|| format!("Cannot keep {}", to.display()))?;
    Ok(())
}

/// The space that a folder's files need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    files: u64,
    /// Rounded up to whole blocks.
    bytes: u64,
}

impl Usage {
    fn of(dir: &Path) -> io::Result<Self> {
        let mut usage = Self::default();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let meta = entry.path().symlink_metadata()?;
            usage.files += 1;
            usage.bytes += meta.len().max(1).next_multiple_of(BLOCK);
            if meta.is_dir() {
                let inside = Self::of(&entry.path())?;
                usage.files += inside.files;
                usage.bytes += inside.bytes;
            }
        }
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RECIPE;

    fn debugfs(image: &Path, request: &str) -> String {
        let tool = find_tool("debugfs").expect("apt-get install e2fsprogs");
        let output = Command::new(tool).args(["-R", request]).arg(image).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn an_image_holds_the_folder_with_room_and_owner() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("data/base")).unwrap();
        fs::write(from.join("data/base/1"), vec![7; 3_000_000]).unwrap();
        fs::write(from.join("data/empty"), "").unwrap();
        for (writable, room) in [(true, 64 << 20), (false, 0)] {
            let to = dir.path().join("image");
            let shape = ImageSpec { filesystem: "ext4", room, writable, owner: 60_932 };
            make(&from, &to, &shape).unwrap();
            let check = Command::new(find_tool("e2fsck").unwrap()).args(["-fn"]).arg(&to).output().unwrap();
            assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
            assert!(debugfs(&to, "stat data/base/1").contains("Size: 3000000"));
            assert!(debugfs(&to, "stat .").contains("User: 60932"), "{}", debugfs(&to, "stat ."));
            let summary = debugfs(&to, "stats");
            assert_eq!(summary.contains("has_journal"), writable);
            let free = summary.lines().find_map(|l| l.strip_prefix("Free blocks:")).unwrap();
            assert!(free.trim().parse::<u64>().unwrap() * BLOCK >= room, "{free}");
            if !rustix::process::geteuid().is_root() {
                assert!(debugfs(&to, "stat data/base/1").contains("User: 60932"));
            }
        }
    }

    #[test]
    fn a_tree_s_image_is_made_once() {
        let root = crate::testing::tree();
        let store = Store::open().unwrap();
        let image = of_root(&store, &RECIPE, &root, &|_| {}).unwrap();
        assert_eq!(of_root(&store, &RECIPE, &root, &|line| panic!("{line}")).unwrap(), image);
        assert!(debugfs(&image, "stat bin/postgres").is_empty());
        for (path, words) in [
            (format!("/usr/lib/postgresql/{}/bin/postgres", root.about.series), "Mode:  0755"),
            ("/lib64".to_owned(), "Type: symlink"),
            ("/cluster".to_owned(), "Type: directory"),
        ] {
            let said = debugfs(&image, &format!("stat {path}"));
            assert!(said.contains(words) && said.contains("User:     0"), "{path}: {said}");
        }
    }

    #[test]
    fn other_file_systems_are_refused() {
        let said = maker("xfs").unwrap_err().to_string();
        assert!(said.contains("ext4") && said.contains("xfs"), "{said}");
    }
}
