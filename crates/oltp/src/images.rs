//! The images from which a guest's trial starts: the server's programs, and the loaded database.
//!
//! Invariant: an image is made once from its key and never changed, so that all trials of all arms with the same key start from
//! the same bytes; the checks after the load hold for each of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::config::Engine;
use super::job::Job;
use super::tpcc::{self, Tables};
use super::trial_database::{DATA, FILE, SERVER, TREE};
use super::{check, load, sqlite};
use bigiron_archive::{Store, hash};
use bigiron_service::image;
use bigiron_service::image::ImageSpec;
use bigiron_service::instance::Server;
use bigiron_service::root;
use bigiron_sql::server::Programs;
use bigiron_workload::{Image, ImageContext, ImageRole, Images};

/// Space for new rows, their old versions and the log.
const ROOM: u64 = 1 << 30;
/// The only file system that can be filled without mounting it. A guest copies the files to any other.
const FILESYSTEM: &str = "ext4";

/// The images for a job, made now if they are missing.
///
/// # Errors
/// If the server is remote, which a guest cannot reach; if programs are not available; if a load fails.
pub fn of(job: &Job, cx: &ImageContext<'_>) -> Result<Images> {
    let in_guest = cx.filesystem.is_some();
    ensure!(
        !in_guest || job.acks.is_none(),
        "`oltp.acks` sends acknowledgements out of the machine, which a guest cannot do; `bigiron oltp crash-test` has its own way"
    );
    let store = Store::open()?;
    match &job.engine {
        Engine::Url(_) | Engine::Sqlite { .. } if !in_guest => Ok(Images::default()),
        Engine::Url(_) => bail!("A guest has no network: use `--on local` with `oltp.url`"),
        Engine::Sqlite { .. } => {
            let (path, key) = sqlite_image(&store, job, cx)?;
            let mut images = Images { images: vec![data(path)], ..Images::default() };
            images.foundation.insert("image".to_owned(), key);
            Ok(images)
        }
        Engine::Postgres { version, .. } => of_server(&tpcc::POSTGRES, &version.to_string(), &store, job, cx),
        Engine::MariaDb { version, .. } => of_server(&tpcc::MARIADB, version, &store, job, cx),
    }
}

fn of_server<S: Server, P>(
    tables: &Tables<S, P>,
    series: &str,
    store: &Store,
    job: &Job,
    cx: &ImageContext<'_>,
) -> Result<Images> {
    let kind = tables.kind;
    let planned = cx.foundation.get(SERVER).map(String::as_str);
    let root = root::of(store, kind.recipe, series, planned, cx.note)?;
    let mut images = Images::default();
    let server = format!("{} from Debian {}", root.about.version, root.about.release);
    images.foundation.insert("server".to_owned(), server);
    images.foundation.insert(SERVER.to_owned(), root.about.hash.clone());
    if cx.filesystem.is_none() {
        return Ok(images);
    }
    let tree = image::of_root(store, kind.recipe, &root, cx.note)?;
    let memory = rustix::system::sysinfo();
    let programs = Programs::of(kind.recipe, &root)?;
    let place = tpcc::LoadSettings {
        programs: &programs,
        server: &root.about.hash,
        filesystem: FILESYSTEM,
        room: ROOM,
        memory_bytes: memory.totalram as u64 * u64::from(memory.mem_unit),
        jobs: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
    };
    let loaded = tpcc::ensure(tables, store, &place, job.scale, cx.note)?;
    images.foundation.insert("image".to_owned(), loaded.sha256.clone());
    images
        .foundation
        .insert("image-checked".to_owned(), format!("{} checks held right after the load", loaded.checked.len()));
    images.images.push(Image { name: TREE, path: tree, filesystem: FILESYSTEM, role: ImageRole::Tree });
    images.images.push(data(loaded.image));
    Ok(images)
}

fn data(path: PathBuf) -> Image {
    Image { name: DATA, path, filesystem: FILESYSTEM, role: ImageRole::Data }
}

/// Writes an image that appears whole or not at all.
fn make(from: &Path, to: &Path, shape: &ImageSpec<'_>) -> Result<()> {
    let dir = to.parent().context("An image is in a folder")?;
    let file =
        tempfile::NamedTempFile::new_in(dir).with_context(|| format!("Cannot create a file in {}", dir.display()))?;
    image::make(from, file.path(), shape)?;
    file.persist(to).with_context(|| format!("Cannot keep {}", to.display()))?;
    Ok(())
}

/// The names of a report's checks, if all of them hold.
fn all_hold(report: &check::CheckReport) -> Result<Vec<String>> {
    let failures: Vec<String> = report.failures().map(ToString::to_string).collect();
    ensure!(failures.is_empty(), "The data are wrong right after the load: {}", failures.join("; "));
    Ok(report.checks.iter().map(ToString::to_string).collect())
}

/// A loaded SQLite file on its own file system.
fn sqlite_image(store: &Store, job: &Job, cx: &ImageContext<'_>) -> Result<(PathBuf, String)> {
    let maker = image::maker(FILESYSTEM)?;
    let warehouses = job.scale.warehouses;
    let parts =
        [&warehouses.to_string(), rusqlite::version(), &maker, &ROOM.to_string(), include_str!("load/sqlite.rs")];
    let all: Vec<&str> = parts.into_iter().chain(tpcc::SOURCES).collect();
    let key = hash::of_bytes(all.join("\n").as_bytes())[..16].to_owned();
    let shelf = store.dir().join("sqlite");
    let kept = shelf.join(format!("{key}.img"));
    if !kept.is_file() {
        (cx.note)(&format!("Loading {warehouses} warehouse{} into SQLite", if warehouses == 1 { "" } else { "s" }));
        fs::create_dir_all(&shelf).with_context(|| format!("Cannot create {}", shelf.display()))?;
        store.needs(3 * tpcc::data_bytes(job.scale))?;
        let dir =
            tempfile::tempdir_in(&shelf).with_context(|| format!("Cannot create a folder in {}", shelf.display()))?;
        let file = dir.path().join(FILE);
        load::sqlite(&file, job.scale, true, &|_, _, _| {})?;
        let mut engine = sqlite::Engine::open(&file, bigiron_sql::sqlite::SqliteJournal::Rollback)?;
        all_hold(&check::conditions(&mut engine, true)?)?;
        drop(engine);
        make(dir.path(), &kept, &ImageSpec { filesystem: FILESYSTEM, room: ROOM, writable: true, owner: 0 })?;
    }
    Ok((kept, key))
}
