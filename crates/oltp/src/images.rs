//! The images from which a guest's trial starts: the server's programs, and the loaded database.
//!
//! Invariant: an image is made once from its key and never changed, so that all trials of all arms with the same key start from
//! the same bytes; the checks after the load hold for each of them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::config::Engine;
use super::job::Job;
use super::tpcc;
use super::trial_database::FILE;
use super::{check, load, sqlite};
use bigiron_archive::{Store, hash};
use bigiron_service::image;
use bigiron_service::image::ImageSpec;
use bigiron_sql::server::images::{FILESYSTEM, data};
use bigiron_sql::sqlite_load;
use bigiron_workload::{ImageContext, Images};

/// The images for a job, made now if they are missing.
///
/// # Errors
/// If programs are not available; if a load fails.
pub fn of(job: &Job, cx: &ImageContext<'_>) -> Result<Images> {
    let store = Store::open()?;
    match &job.engine {
        Engine::Url(_) => Ok(Images::default()),
        Engine::Sqlite { .. } if cx.filesystem.is_none() => Ok(Images::default()),
        Engine::Sqlite { .. } => {
            let (path, key) = sqlite_image(&store, job, cx)?;
            let mut images = Images { images: vec![data(path)], ..Images::default() };
            images.foundation.insert("image".to_owned(), key);
            Ok(images)
        }
        Engine::Postgres { version, .. } => tpcc::POSTGRES.images(&version.to_string(), &store, job.scale, cx),
        Engine::MariaDb { version, .. } => tpcc::MARIADB.images(version, &store, job.scale, cx),
    }
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
    let parts = [
        &warehouses.to_string(),
        rusqlite::version(),
        &maker,
        &tpcc::ROOM.to_string(),
        include_str!("load/sqlite.rs"),
        sqlite_load::SOURCE,
    ];
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
        image::make_kept(
            dir.path(),
            &kept,
            &ImageSpec { filesystem: FILESYSTEM, room: tpcc::ROOM, writable: true, owner: 0 },
        )?;
    }
    Ok((kept, key))
}
