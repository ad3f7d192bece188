//! Loaded databases as file-system images: created once on this machine, and the start of every trial.
//!
//! ```text
//! CACHE/NAME/loaded/KEY/{loaded.json,image}      the image holds a server's folder: data/ run/ password
//! ```
//! Invariant: an image is kept only if its database was loaded, checked, and stopped cleanly; it is never changed afterwards.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::private::Kind;
use super::settings::Sizing;
use super::{Listen, Programs, Transport};
use crate::database::{Database, SqlValue};
use bigiron_archive::{Store, hash};
use bigiron_service::image;
use bigiron_service::image::ImageSpec;
use bigiron_service::instance::Server;
use bigiron_service::server_folder::{server_folder, short_path};
use bigiron_service::tree::UID;

/// Part of every key: raised when the way of making images changes.
const VERSION: u32 = 1;

/// The required database.
#[derive(Clone, Debug)]
pub struct DatabaseSpec<'a> {
    /// The kind of server, by its recipe's name, and the longest path of its socket below its folder.
    pub kind: &'a str,
    pub socket: &'a str,
    /// The identity of the server's programs: a tree's hash.
    pub server: &'a str,
    /// The database's contents, in words that change whenever the contents would: scale, seed, the loader's own version.
    pub contents: &'a str,
    /// For messages, e.g. `10 warehouses`.
    pub name: &'a str,
    /// Only `ext4` so far.
    pub filesystem: &'a str,
    /// Free space in the file system besides the database, for its growth and its WAL, in bytes.
    pub room: u64,
    /// Its approximate size, in bytes.
    pub data_bytes: u64,
}

/// What a load reports: the bytes of the database according to the server, and the names of the checks that held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    pub data_bytes: u64,
    pub checked: Vec<String>,
}

/// A loaded database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedDatabase {
    /// The image; must not be written to: [`bigiron_image::restore`] makes copies.
    #[serde(skip)]
    pub image: PathBuf,
    /// A key for all of its inputs.
    #[serde(skip)]
    pub key: String,
    /// Length of the image; its holes take up no space.
    pub bytes: u64,
    /// Of the whole image.
    pub sha256: String,
    /// The output of `postgres --version`.
    pub server: String,
    pub contents: String,
    pub filesystem: String,
    /// Bytes of the database according to the server.
    pub data_bytes: u64,
    /// The checks that held after the load.
    pub checked: Vec<String>,
}

impl LoadedDatabase {
    fn read(folder: &Path) -> Option<Self> {
        let known: Self = serde_json::from_slice(&fs::read(folder.join("loaded.json")).ok()?).ok()?;
        let image = folder.join("image");
        // A truncated image is made again.
        (image.metadata().ok()?.len() == known.bytes).then_some(())?;
        Some(Self { image, key: folder.file_name()?.to_str()?.to_owned(), ..known })
    }
}

/// The image of a database as `wanted`, from the cache or made now: `fill` is given an empty folder, creates a server's data there, fills and checks
/// the database, and stops the server. `note` receives progress messages.
///
/// # Errors
/// If the server does not run here, `fill` fails, mkfs fails, or there is no room. Nothing is kept then.
pub fn ensure(
    store: &Store,
    server: &Programs,
    wanted: &DatabaseSpec<'_>,
    fill: &mut dyn FnMut(&Path) -> anyhow::Result<Filled>,
    note: &dyn Fn(&str),
) -> anyhow::Result<LoadedDatabase> {
    let maker = image::maker(wanted.filesystem)?;
    let all = format!(
        "{VERSION}\n{}\n{}\n{}\n{}\n{maker}\n{UID}",
        wanted.server, wanted.contents, wanted.filesystem, wanted.room
    );
    let key = hash::of_bytes(all.as_bytes())[..16].to_owned();
    let home = store.dir().join(wanted.kind);
    let shelf = home.join("loaded");
    let folder = shelf.join(&key);
    if let Some(found) = LoadedDatabase::read(&folder) {
        return Ok(found);
    }
    fs::create_dir_all(&shelf).with_context(|| format!("Cannot create {}", shelf.display()))?;
    let _lock = lock(&shelf.join(format!("{key}.lock")), wanted.name, note)?;
    if let Some(found) = LoadedDatabase::read(&folder) {
        return Ok(found);
    }
    // The database, its WAL and the image at the same time.
    store.needs(wanted.data_bytes.saturating_mul(2).saturating_add(1 << 30))?;
    let place = server_folder(&home)?;
    note(&format!("Loading {} into {}", wanted.name, server.title()));
    let cluster_folder = place.path().join("c");
    fs::create_dir(&cluster_folder)?;
    let (_way, short) = short_path(&cluster_folder, wanted.socket)?;
    let Filled { data_bytes, checked } = fill(&short)?;
    fs::remove_file(cluster_folder.join("log")).context("Cannot remove the server's log")?;
    note(&format!("Making an {} image of it", wanted.filesystem));
    let staged = place.path().join("image");
    fs::create_dir(&staged)?;
    let path = staged.join("image");
    let shape = ImageSpec { filesystem: wanted.filesystem, room: wanted.room, writable: true, owner: UID };
    image::make(&cluster_folder, &path, &shape)?;
    let known = LoadedDatabase {
        image: folder.join("image"),
        key,
        bytes: path.metadata()?.len(),
        sha256: hash::of_file(&path).with_context(|| format!("Cannot read {}", path.display()))?,
        server: server.version()?,
        contents: wanted.contents.to_owned(),
        filesystem: wanted.filesystem.to_owned(),
        data_bytes,
        checked,
    };
    bigiron_service::root::replace(&staged.join("loaded.json"), &serde_json::to_vec_pretty(&known)?)?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("Cannot remove {}", folder.display()))?;
    }
    fs::rename(&staged, &folder).with_context(|| format!("Cannot keep {}", folder.display()))?;
    Ok(known)
}

/// Fills a folder with the data of a server whose database `load` fills and checks.
///
/// # Errors
/// The server does not run here, or `load` fails.
pub fn filled<S: Server, P>(
    kind: &Kind<S, P>,
    server: &Programs,
    folder: &Path,
    sizing: &Sizing,
    load: &mut dyn FnMut(&P) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<Filled> {
    (kind.init)(server, folder, false)?;
    let instance = (kind.start)(server, folder, &(kind.loading)(sizing), Listen::Socket)?;
    let place = (kind.place)(&instance, Transport::Unix)?.expect("every server has a socket");
    let checked = load(&place)?;
    let mut database = (kind.database)(&place).context("The server cannot be reached after the load")?;
    database.execute(kind.settle)?;
    let data_bytes = bytes(&mut *database, kind.size)?;
    drop(database);
    instance.stop()?;
    Ok(Filled { data_bytes, checked })
}

fn bytes(database: &mut dyn Database, sql: &str) -> anyhow::Result<u64> {
    let size = database.rows(sql)?;
    let size = size.first().and_then(|r| r.first()).cloned();
    let Some(SqlValue::Integer(bytes)) = size else {
        anyhow::bail!("The server does not report the size of its database: {size:?}");
    };
    Ok(bytes.unsigned_abs())
}

fn lock(path: &Path, name: &str, note: &dyn Fn(&str)) -> anyhow::Result<File> {
    let file = File::options().create(true).append(true).open(path);
    let file = file.with_context(|| format!("Cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            note(&format!("Waiting for another bigiron that is loading {name}"));
            file.lock().with_context(|| format!("Cannot lock {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("Cannot lock {}", path.display()));
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::pg::{Connection, Url};
    use crate::server::{RECIPE, Settings, cluster, testing};
    use bigiron_image::find_tool;
    use bigiron_service::postgres::SOCKET;

    #[test]
    fn loaded_once_and_good_for_another_start() {
        let tree = testing::tree();
        let server = Programs::of(&RECIPE, &tree).unwrap();
        let cache = tempfile::tempdir().unwrap();
        let store = Store::at(cache.path()).unwrap();
        let wanted = DatabaseSpec {
            kind: RECIPE.name,
            socket: SOCKET,
            server: &tree.about.hash,
            contents: "a thousand rows",
            name: "a thousand rows",
            filesystem: "ext4",
            room: 64 << 20,
            data_bytes: testing::sizing().data_bytes,
        };
        let mut loads = 0;
        let mut load = |url: &Url| {
            loads += 1;
            let mut connection = Connection::connect(url)?;
            connection.execute("CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 1000)")?;
            Ok(vec!["rows are there".to_owned()])
        };
        let mut fill = |folder: &Path| filled(&cluster::KIND, &server, folder, &testing::sizing(), &mut load);
        let loaded = ensure(&store, &server, &wanted, &mut fill, &|_| {}).unwrap();
        assert_eq!(ensure(&store, &server, &wanted, &mut fill, &|_| {}).unwrap(), loaded);
        assert_eq!(loads, 1);
        assert_eq!(hash::of_file(&loaded.image).unwrap(), loaded.sha256);
        assert_eq!(loaded.checked, ["rows are there"]);
        let left = fs::read_dir(cache.path().join("postgres")).unwrap().count();
        assert_eq!(left, 1, "only the shelf");
        // Extracted from the image again, and started from there: nothing to recover, all rows present.
        let copy = cache.path().join("copy");
        bigiron_image::restore(&loaded.image, &copy).unwrap();
        let place = server_folder(cache.path()).unwrap();
        let debugfs = find_tool("debugfs").expect("apt-get install e2fsprogs");
        for folder in ["data", "run", "password"] {
            let request = format!("rdump {folder} {}", place.path().display());
            assert!(Command::new(&debugfs).args(["-R", &request]).arg(&copy).output().unwrap().status.success());
        }
        let settings = Settings::new(&testing::sizing(), &[]).unwrap();
        let cluster = cluster::start(&server, place.path(), &settings, Listen::Socket).unwrap();
        let mut connection = Connection::connect(&cluster::url(&cluster, Transport::Unix).unwrap()).unwrap();
        let rows = connection.rows("SELECT count(*), sum(a)::bigint FROM t").unwrap();
        assert_eq!(format!("{rows:?}"), "[[Integer(1000), Integer(500500)]]");
        let log = fs::read_to_string(cluster.log()).unwrap();
        assert!(!log.contains("recover"), "{log}");
    }

    #[test]
    fn a_failed_load_keeps_nothing() {
        let tree = testing::tree();
        let server = Programs::of(&RECIPE, &tree).unwrap();
        let cache = tempfile::tempdir().unwrap();
        let store = Store::at(cache.path()).unwrap();
        let wanted = DatabaseSpec {
            kind: RECIPE.name,
            socket: SOCKET,
            server: "s",
            contents: "c",
            name: "nothing",
            filesystem: "ext4",
            room: 0,
            data_bytes: testing::sizing().data_bytes,
        };
        let mut load = |_: &Url| Err(anyhow::anyhow!("Condition 3 does not hold"));
        let mut fill = |folder: &Path| filled(&cluster::KIND, &server, folder, &testing::sizing(), &mut load);
        let said = ensure(&store, &server, &wanted, &mut fill, &|_| {}).unwrap_err().to_string();
        assert!(said.contains("Condition 3"), "{said}");
        let kept = fs::read_dir(cache.path().join("postgres/loaded")).unwrap();
        assert!(kept.filter_map(Result::ok).all(|e| e.path().extension().is_some_and(|x| x == "lock")));
        assert_eq!(fs::read_dir(cache.path().join("postgres")).unwrap().count(), 1);
    }
}
