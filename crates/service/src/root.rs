//! A root tree with one server and nothing else, from Debian's archive by way of the machine's own apt.
//!
//! ```text
//! CACHE/NAME/SERIES[-REVISION].json      the tree that this version means now, and when the archive was last asked
//! CACHE/NAME/trees/VERSION-KEY/          root.json, tree/
//! ```
//! Invariant: a tree appears whole (by a rename) or not at all, never changes afterwards, and holds all libraries that its programs need.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize};

use super::error::{ServerError, doing};
use super::programs::Programs;
use super::recipe::Recipe;
use super::tree;
use bigiron_archive::{Closure, ClosurePackage, KernelError, Store, hash};

/// Part of a tree's key; increased when trees are made differently.
const VERSION: u32 = 1;
/// Up to this age in seconds, a version means the same tree as when the archive was last asked.
const DAY: u64 = 24 * 3600;
/// A tree with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The folder that becomes the server's `/`.
    pub dir: PathBuf,
    pub about: TreeInfo,
}

/// The description of a tree; stored as `root.json` beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeInfo {
    /// The series of its versions, such as `15` or `10.11`.
    #[serde(alias = "major", deserialize_with = "word_or_number")]
    pub series: String,
    /// Its version, e.g. `15.18-0+deb12u1`.
    pub version: String,
    /// The Debian release it comes from.
    pub release: String,
    /// All packages that contributed files, `NAME=VERSION`.
    pub packages: Vec<String>,
    /// Libraries of the server that are left out because they need a library that is left out (the JIT compiler).
    pub left_out: Vec<String>,
    /// Hash over names, kinds, modes and contents of all files but those that its own programs made of the others: the same on every machine.
    pub hash: String,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Older trees have a number.
fn word_or_number<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Series {
        Word(String),
        Number(u32),
    }
    Ok(match Series::deserialize(from)? {
        Series::Word(word) => word,
        Series::Number(number) => number.to_string(),
    })
}

/// The tree that a series means now.
#[derive(Serialize, Deserialize)]
struct Current {
    /// When the archive was last asked, seconds since 1970.
    checked: u64,
    /// The folder below `trees`.
    folder: String,
}

impl Root {
    /// Reads the description in a folder of `trees`.
    fn read(folder: &Path) -> Option<Self> {
        let about = serde_json::from_slice(&fs::read(folder.join("root.json")).ok()?).ok()?;
        Some(Self { dir: folder.join("tree"), about })
    }
}

/// The tree that a study was `planned` with, by its hash; without a plan, that of [`ensure`].
///
/// # Errors
/// As [`ensure`]; or the planned tree is no longer stored, and a newer one has replaced it.
pub fn of(
    store: &Store,
    recipe: &'static Recipe,
    series: &str,
    planned: Option<&str>,
    note: &dyn Fn(&str),
) -> Result<Root, ServerError> {
    let Some(hash) = planned else { return ensure(store, recipe, series, note) };
    let trees = fs::read_dir(store.dir().join(recipe.name).join("trees")).into_iter().flatten().flatten();
    let kept = trees.filter_map(|entry| Root::read(&entry.path())).find(|root| root.about.hash == hash);
    if let Some(root) = kept {
        return Ok(root);
    }
    let root = ensure(store, recipe, series, note)?;
    if root.about.hash == hash {
        return Ok(root);
    }
    Err(ServerError::Replaced { title: recipe.title, planned: hash.to_owned(), now: root.about.version })
}

/// The tree with a server of this series: the newest in Debian, checked once a day; without the archive, the stored one. `note` gets lines
/// about the progress.
///
/// # Errors
/// Debian does not have the version (the message lists those that it has), or there is no apt, no network or no room.
pub fn ensure(store: &Store, recipe: &'static Recipe, series: &str, note: &dyn Fn(&str)) -> Result<Root, ServerError> {
    let title = recipe.title;
    let place = store.dir().join(recipe.name);
    let named = match recipe.revision {
        1 => series.to_owned(),
        n => format!("{series}-{n}"),
    };
    let own = tree::own_file(recipe)?.map(|(path, bytes)| format!("{path}={}", &hash::of_bytes(bytes)[..12]));
    // A tree with another executable's file is not that of this one.
    let has_own = |root: &Root| own.as_ref().is_none_or(|own| root.about.packages.contains(own));
    let kept = |max_age| current(&place, &named, max_age).filter(has_own);
    if let Some(root) = kept(DAY) {
        return Ok(root);
    }
    let guard = store.lock(note)?;
    // Another process may have completed it in the meantime.
    if let Some(root) = kept(DAY) {
        return Ok(root);
    }
    let fall_back = |error: KernelError| match kept(u64::MAX) {
        Some(root) => {
            note(&format!("Using {title} {} as last fetched: {error}", root.about.version));
            Ok(root)
        }
        None => Err(ServerError::of_archive(recipe, error)),
    };
    let closure = match Closure::find(&store.dir().join("apt"), recipe.package, series, recipe.beside, note) {
        Ok(Ok(closure)) => closure,
        Ok(Err(available)) => {
            return Err(ServerError::UnknownVersion { title, wanted: series.to_owned(), available });
        }
        Err(error) => return fall_back(error),
    };
    let server = recipe.package.name(series);
    let parts = libraries_and(&closure, recipe, &server);
    let of_version = recipe.version_of.unwrap_or(&server);
    let version = parts.iter().find(|p| p.name == of_version).map(|p| p.version.clone()).unwrap_or_default();
    let mut packages: Vec<String> = parts.iter().map(|p| format!("{}={}", p.name, p.version)).collect();
    packages.sort();
    packages.extend(own.clone());
    let key = hash::of_bytes(format!("{} {}", VERSION + recipe.revision - 1, packages.join(" ")).as_bytes());
    let folder = format!("{version}-{}", &key[..12]);
    let target = place.join("trees").join(&folder);
    let root = match Root::read(&target) {
        Some(root) => root,
        None => {
            let size: u64 = parts.iter().map(|p| p.size).sum();
            store.needs(size + parts.iter().map(|p| p.installed).sum::<u64>())?;
            note(&format!(
                "Downloading {title} {version} and its libraries ({} MB) from Debian {}",
                size.div_ceil(1_000_000),
                closure.release
            ));
            let downloads = store.stage(&guard)?;
            let files = match closure.download(&parts, downloads.path()) {
                Ok(files) => files,
                Err(error @ KernelError::Download { .. }) => return fall_back(error),
                Err(error) => return Err(error.into()),
            };
            note(&format!("Unpacking {title} {version}"));
            let staged = store.stage(&guard)?;
            let dir = staged.path().join("tree");
            let unusable = |reason| ServerError::Packages {
                title,
                version: version.clone(),
                release: closure.release.clone(),
                reason,
            };
            let left_out = tree::build(&files, &dir, recipe, series, &unusable)?;
            let (hash, bytes) = tree::contents(&dir)?;
            if let Some(finish) = recipe.finish {
                note(&format!("Completing {title} {version} with its own programs"));
                finish(&Programs::in_tree(recipe, &dir, series), &dir)?;
            }
            let about = TreeInfo {
                series: series.to_owned(),
                version: version.clone(),
                release: closure.release.clone(),
                packages,
                left_out,
                hash,
                bytes,
            };
            keep(staged, &target, &about)?
        }
    };
    let current = Current { checked: now(), folder };
    replace(&place.join(format!("{named}.json")), &serde_json::to_vec(&current).expect("plain data"))?;
    Ok(root)
}

fn current(place: &Path, named: &str, max_age: u64) -> Option<Root> {
    let current: Current = serde_json::from_slice(&fs::read(place.join(format!("{named}.json"))).ok()?).ok()?;
    now().checked_sub(current.checked).filter(|age| *age <= max_age)?;
    Root::read(&place.join("trees").join(current.folder))
}

/// The server's package first, then its libraries.
fn libraries_and<'a>(closure: &'a Closure, recipe: &Recipe, server: &str) -> Vec<&'a ClosurePackage> {
    let first = [server].iter().chain(recipe.beside).filter_map(|n| closure.part(n)).collect();
    closure.libraries_of(first, recipe.without)
}

/// Renames the staged tree to `target`.
fn keep(staged: tempfile::TempDir, target: &Path, about: &TreeInfo) -> Result<Root, ServerError> {
    let path = staged.path().join("root.json");
    let text = serde_json::to_vec_pretty(about).expect("plain data");
    fs::write(&path, text).map_err(doing("Cannot write", &path))?;
    let parent = target.parent().expect("a folder of the cache");
    fs::create_dir_all(parent).map_err(doing("Cannot create", parent))?;
    let flushed = fs::File::open(&path).and_then(|f| Ok(rustix::fs::syncfs(&f)?));
    flushed.map_err(doing("Cannot write", &path))?;
    if target.exists() {
        fs::remove_dir_all(target).map_err(doing("Cannot remove", target))?;
    }
    // Temporary folders are accessible only to their owner; a tree must also be entered by servers that run as another user.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(staged.path(), mode).map_err(doing("Cannot change", staged.path()))?;
    let staged = staged.keep();
    fs::rename(&staged, target).map_err(doing("Cannot store", target))?;
    Ok(Root { dir: target.join("tree"), about: about.clone() })
}

/// Writes a file so that it is either old or new, never partial.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), ServerError> {
    let dir = path.parent().expect("a file of the cache");
    let written = fs::create_dir_all(dir).and_then(|()| {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.persist(path)?;
        Ok(())
    });
    written.map_err(doing("Cannot write", path))
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RECIPE;

    #[test]
    fn a_tree_is_built_once_whole_and_closed() {
        let store = Store::open().unwrap();
        let say = |line: &str| eprintln!("{line}");
        let root = ensure(&store, &RECIPE, "15", &say).unwrap();
        assert_eq!(root.about.series, "15");
        assert!(root.about.version.starts_with("15."), "{:?}", root.about);
        eprintln!("{} {} bytes {:?}", root.dir.display(), root.about.bytes, root.about.left_out);
        assert!(root.about.bytes < 120 << 20, "{} bytes", root.about.bytes);
        assert_eq!(tree::contents(&root.dir).unwrap().0, root.about.hash);
        assert_eq!(ensure(&store, &RECIPE, "15", &|line| panic!("{line}")).unwrap(), root);
        assert_eq!(of(&store, &RECIPE, "15", Some(&root.about.hash), &|line| panic!("{line}")).unwrap(), root);
        let gone = of(&store, &RECIPE, "15", Some("0123456789abcdef"), &say).unwrap_err().to_string();
        assert!(gone.contains("0123456789ab") && gone.contains(&root.about.version), "{gone}");
    }
}
