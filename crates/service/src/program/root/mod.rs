//! The part of this machine's root file system that a program finds in a guest.
//!
//! It is an image, because sharing the host's files would make the exact clock depend on the host: reading an image takes only instructions of the
//! guest.
//! Invariant: an image is named after its content (paths, modes, sizes, times), made once and never changed.

pub mod enter;
pub mod kits;
mod named;
mod selection;

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use self::selection::{FileKind, Selection};
use crate::image;
use crate::image::ImageSpec;
use bigiron_archive::{Store, hash};
use bigiron_model::size;
use bigiron_workload::{Image, ImageContext, ImageRole, Images};

/// The name of the image and of its entry in the plan.
pub const ROOT: &str = "root";

/// Part of an image's name; increased when images are made differently.
const RECIPE: u32 = 1;
const FILESYSTEM: &str = "ext4";
/// A larger image is not a view of the tools for one program.
const MOST: u64 = 4 << 30;
/// 2023-12-31, the day before a guest's clock begins. All files are made older by the same time, so that none comes from the future and `make` still
/// sees the same order.
const NEWEST: i64 = 1_703_980_800;

/// The files that programs need of this machine.
pub struct ProgramNeeds<'a> {
    /// The owner of the programs, for messages: `the command`.
    pub whose: &'a str,
    /// Words, some of which may be program names.
    pub words: Vec<String>,
    /// A folder that is included as a whole.
    pub dir: Option<&'a Path>,
    /// Finds a program on this machine.
    pub find: &'a dyn Fn(&str) -> Result<PathBuf, String>,
    /// Further files and folders.
    pub roots: &'a [PathBuf],
    /// How to reduce the size, for messages.
    pub less: &'a str,
}

/// The requested image, made now if it is not in the cache.
///
/// # Errors
/// The content is too large, or there is no room or no mkfs.
pub fn of(wanted: &ProgramNeeds<'_>, cx: &ImageContext<'_>) -> Result<Images> {
    let foundation = named::hashes(wanted).context("Cannot read the files that the command names")?;
    if cx.filesystem.is_none() {
        return Ok(Images { foundation, images: Vec::new() });
    }
    let store = Store::open()?;
    let shelf = store.dir().join("command/roots");
    let place = |key: &str| shelf.join(format!("{key}.img"));
    if let Some(key) = cx.foundation.get(ROOT).filter(|key| place(key).is_file()) {
        return Ok(images(place(key), key, foundation));
    }
    // Arms that differ only in their kernels start from one image, even if a file changes in the meantime.
    static SEEN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let asked = format!("{} {:?} {:?} {:?}", wanted.whose, wanted.words, wanted.dir, wanted.roots);
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(key) = seen.get(&asked).filter(|key| place(key).is_file()) {
        return Ok(images(place(key), key, foundation));
    }
    let selection = kits::select(wanted);
    let bytes = selection.bytes();
    if bytes > MOST {
        bail!(
            "A guest gets a copy of the files that {} needs, which would be {} MiB, most of it in {}; the limit is {}. {}",
            wanted.whose,
            bytes >> 20,
            selection.largest(),
            size::print_bytes(MOST),
            wanted.less
        );
    }
    let key = key(&selection)?;
    let kept = place(&key);
    if !kept.is_file() {
        (cx.note)(&format!(
            "Making a file system of this machine's files for {}: {} files, {} MiB",
            wanted.whose,
            selection.entries.len(),
            (bytes >> 20).max(1)
        ));
        fs::create_dir_all(&shelf).with_context(|| format!("Cannot make {}", shelf.display()))?;
        store.needs(2 * bytes + bytes / 8 + (64 << 20))?;
        let staged = tempfile::tempdir_in(&shelf).with_context(|| format!("No room in {}", shelf.display()))?;
        stage(&selection, staged.path())?;
        let new = tempfile::Builder::new().prefix(".new-").tempfile_in(&shelf)?;
        image::make(
            staged.path(),
            new.path(),
            &ImageSpec { filesystem: FILESYSTEM, room: 0, writable: false, owner: 0 },
        )?;
        // Renamed into place: two processes may make the same image, and neither may see half of one.
        prune(&shelf);
        new.persist(&kept).with_context(|| format!("Cannot keep {}", kept.display()))?;
    }
    seen.insert(asked, key.clone());
    Ok(images(kept, &key, foundation))
}

/// Images kept in addition to the one in use; those of a working folder that changes would fill the cache.
const KEPT: usize = 8;

/// Removes all images except those used last.
fn prune(shelf: &Path) {
    let entries = fs::read_dir(shelf).into_iter().flatten().flatten();
    let mut images: Vec<_> = entries
        .filter(|e| e.path().extension().is_some_and(|e| e == "img"))
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path())))
        .collect();
    images.sort();
    for (_, path) in images.iter().rev().skip(KEPT) {
        // A guest that has it open can go on using it.
        let _ = fs::remove_file(path);
    }
}

fn images(path: PathBuf, key: &str, mut foundation: BTreeMap<String, String>) -> Images {
    // Its modification time is the time of its last use.
    let _ = File::options().append(true).open(&path).and_then(|f| f.set_modified(SystemTime::now()));
    let image = Image { name: ROOT, path, filesystem: FILESYSTEM, role: ImageRole::Tree };
    foundation.insert(ROOT.to_owned(), key.to_owned());
    Images { images: vec![image], foundation }
}

fn key(selection: &Selection) -> Result<String> {
    let mut text = format!("{RECIPE} {}\n", image::maker(FILESYSTEM)?);
    for (path, entry) in &selection.entries {
        text.push_str(&format!("{} {:?} {:o} {}\n", path.display(), entry.kind, entry.mode, entry.modified_s));
    }
    Ok(hash::of_bytes(text.as_bytes())[..16].to_owned())
}

/// Copies the selected files below `dir`.
fn stage(selection: &Selection, dir: &Path) -> Result<()> {
    let newest = selection.entries.values().map(|e| e.modified_s).max().unwrap_or(0);
    let older = (newest - NEWEST).max(0);
    for name in ["dev", "proc", "sys", "run", "tmp", "root", "var/tmp"] {
        fs::create_dir_all(dir.join(name))?;
    }
    for name in ["tmp", "var/tmp"] {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o1777))?;
    }
    for (path, entry) in &selection.entries {
        let to = dir.join(path.strip_prefix("/").unwrap_or(path));
        let failed = || format!("Cannot copy {}", path.display());
        match &entry.kind {
            FileKind::Folder => fs::create_dir_all(&to).with_context(failed)?,
            FileKind::Link(target) => symlink(target, &to).with_context(failed)?,
            FileKind::File(_) => {
                fs::copy(path, &to).with_context(failed)?;
                let modified = UNIX_EPOCH + Duration::from_secs((entry.modified_s - older).max(0) as u64);
                let times = FileTimes::new().set_modified(modified).set_accessed(modified);
                // A copy keeps its mode, and only root can open a read-only file for writing.
                fs::set_permissions(&to, fs::Permissions::from_mode(entry.mode | 0o200)).with_context(failed)?;
                File::options().write(true).open(&to).and_then(|f| f.set_times(times)).with_context(failed)?;
            }
        }
    }
    // Modes last, and folders after their content.
    for (path, entry) in selection.entries.iter().rev().filter(|(_, e)| !matches!(e.kind, FileKind::Link(_))) {
        let to = dir.join(path.strip_prefix("/").unwrap_or(path));
        // The owner must be able to read everything once more.
        let mode = entry.mode | if entry.kind == FileKind::Folder { 0o700 } else { 0o400 };
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
