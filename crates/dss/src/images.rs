//! The tables that trials start from, and the expected answers: made once for each scale factor and engine, and kept.
//!
//! ```text
//! CACHE/dss/KEY/            Parquet files, or SQLite's database
//! CACHE/dss/KEY.img         the same files as a file system for guests
//! CACHE/dss/KEY-WHAT        the expected answers to the queries with these parameters
//! CACHE/dss/program-KEY.img DataFusion as a file system for guests
//! ```
//! PostgreSQL's databases are kept beside `oltp`'s.
//!
//! Invariant: a folder, an image or a file of answers appears whole or not at all, and never changes afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::answers::Answers;
use crate::database::FILE;
use crate::datafusion::{self, DataFusion, Limits};
use crate::existing;
use crate::settings::{DssEngine, Settings};
use crate::{answer, load};
use bigiron_archive::{Store, hash};
use bigiron_service::image::{self, ImageSpec};
use bigiron_sql::engine::Engine;
use bigiron_sql::pg::{Connection, Url, binary_rows};
use bigiron_sql::server::cluster;
use bigiron_sql::server::images::{self as server_images, Contents, FILESYSTEM, data};
use bigiron_sql::sqlite::{self, SqliteJournal};
use bigiron_sql::sqlite_load;
use bigiron_sys::this_machine;
use bigiron_workload::{Image, ImageContext, ImageRole, Images};

/// The name of the image with DataFusion's program.
pub const PROGRAM_IMAGE: &str = "datafusion";
/// The foundation's key of the expected answers.
pub const ANSWERS: &str = "answers";

/// All sources that determine the bytes of a load. An irrelevant change only reloads the tables; a missed change would leave stale ones.
const SOURCES: [&str; 7] = [
    binary_rows::SOURCE,
    sqlite_load::SOURCE,
    include_str!("load/binary_rows.rs"),
    include_str!("load/postgres.rs"),
    include_str!("load/rows.rs"),
    include_str!("load/sqlite.rs"),
    include_str!("table.rs"),
];

/// The images for a trial with `settings`; makes missing ones.
///
/// # Errors
/// If a server or program is not available; if a load or a query fails; if space is short.
pub fn of(settings: &Settings, cx: &ImageContext<'_>) -> Result<Images> {
    match &settings.engine {
        DssEngine::DataFusion { .. } | DssEngine::Sql(Engine::Sqlite { .. }) => of_files(settings, cx),
        DssEngine::Sql(Engine::Postgres { version, .. }) => of_server(settings, *version, cx),
        DssEngine::Sql(Engine::Url(url)) => {
            let answers = existing::ensure(&Url::parse(url)?, settings, cx.note)?;
            let foundation = [(ANSWERS.to_owned(), answers.to_string())].into();
            Ok(Images { foundation, ..Images::default() })
        }
        DssEngine::Sql(Engine::MariaDb { .. }) => bail!("`dss` does not support MariaDB"),
    }
}

fn of_server(settings: &Settings, version: u32, cx: &ImageContext<'_>) -> Result<Images> {
    let name = format!("the tables of scale factor {}", settings.scale);
    let what = format!("dss {} {} {}", settings.scale, queries_key(settings), key_of(&SOURCES));
    let contents = Contents {
        what: &what,
        name: &name,
        data_bytes: settings.data_bytes(),
        room: settings.room(),
        needed_here: true,
    };
    let workers = this_machine::cpus();
    let mut load = |url: &Url| {
        load::postgres(url, settings.scale, workers, &|_, _, _| {})?;
        let mut connection = Connection::connect(url)?;
        let answers = Answers::collect(settings, &mut |sql| answer::run(&mut connection, sql))?;
        Ok(vec![answers.to_string()])
    };
    let store = Store::open()?;
    let (mut images, checked) =
        server_images::of(&cluster::KIND, &version.to_string(), &store, cx, contents, &mut load)?;
    let answers = checked.first().context("The loaded tables have no recorded answers")?;
    images.foundation.insert(ANSWERS.to_owned(), answers.clone());
    Ok(images)
}

/// Files of an engine without a server, with the expected answers.
pub struct KeptFiles {
    pub folder: PathBuf,
    pub answers: Answers,
    key: String,
}

fn of_files(settings: &Settings, cx: &ImageContext<'_>) -> Result<Images> {
    let kept = files(settings, cx.note)?;
    let mut images = Images::default();
    images.foundation.insert("data".to_owned(), kept.key.clone());
    images.foundation.insert(ANSWERS.to_owned(), kept.answers.to_string());
    let program = match settings.engine {
        DssEngine::DataFusion { .. } => Some(datafusion::program()?),
        DssEngine::Sql(_) => None,
    };
    if let Some(program) = &program {
        images.foundation.insert("program".to_owned(), hash::of_file(program)?);
    }
    if cx.filesystem.is_none() {
        return Ok(images);
    }
    let store = Store::open()?;
    let shelf = store.dir().join("dss");
    let maker = image::maker(FILESYSTEM)?;
    if let Some(program) = program {
        let key = key_of(&[&images.foundation["program"], &maker]);
        let path = shelf.join(format!("program-{key}.img"));
        if !path.is_file() {
            let dir = temporary(&shelf)?;
            fs::copy(&program, dir.path().join(datafusion::PROGRAM)).context("Cannot copy DataFusion")?;
            let spec = ImageSpec { filesystem: FILESYSTEM, room: 0, writable: false, owner: 0 };
            image::make_kept(dir.path(), &path, &spec)?;
        }
        images.images.push(Image { name: PROGRAM_IMAGE, path, filesystem: FILESYSTEM, role: ImageRole::Tree });
    }
    let path = shelf.join(format!("{}-{}.img", kept.key, key_of(&[&maker, &settings.room().to_string()])));
    if !path.is_file() {
        store.needs(settings.data_bytes() + settings.room())?;
        let spec = ImageSpec { filesystem: FILESYSTEM, room: settings.room(), writable: true, owner: 0 };
        image::make_kept(&kept.folder, &path, &spec)?;
    }
    images.images.push(data(path));
    Ok(images)
}

/// The files of DataFusion or SQLite, with the expected answers; makes missing ones.
///
/// # Errors
/// As [`of`].
pub fn files(settings: &Settings, note: &dyn Fn(&str)) -> Result<KeptFiles> {
    let store = Store::open()?;
    let shelf = store.dir().join("dss");
    fs::create_dir_all(&shelf).with_context(|| format!("Cannot create {}", shelf.display()))?;
    let scale = settings.scale.to_string();
    let (made_by, title) = match &settings.engine {
        DssEngine::DataFusion { row_group } => {
            let program = hash::of_file(&datafusion::program()?)?;
            (format!("datafusion {row_group} {program}"), "Parquet files")
        }
        DssEngine::Sql(_) => (format!("sqlite {}", rusqlite::version()), "SQLite's tables"),
    };
    let parts: Vec<&str> = [scale.as_str(), &made_by].into_iter().chain(SOURCES).collect();
    let key = key_of(&parts);
    let folder = shelf.join(&key);
    if !folder.is_dir() {
        note(&format!("Making {title} at scale factor {scale}"));
        store.needs(2 * settings.data_bytes())?;
        let dir = temporary(&shelf)?;
        fill(settings, dir.path())?;
        match fs::rename(dir.path(), &folder) {
            Ok(()) => drop(dir.keep()),
            // Another process made it first.
            Err(_) if folder.is_dir() => {}
            Err(e) => return Err(e).with_context(|| format!("Cannot keep {}", folder.display())),
        }
    }
    let asked = shelf.join(format!("{key}-{}", queries_key(settings)));
    let known = fs::read_to_string(&asked).ok().and_then(|text| Answers::parse(&text));
    let answers = match known {
        Some(answers) => answers,
        None => {
            note("Running the queries once to record the expected answers");
            let answers = ask(settings, &folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&shelf)?;
            std::io::Write::write_all(&mut file, answers.to_string().as_bytes())?;
            file.persist(&asked).with_context(|| format!("Cannot keep {}", asked.display()))?;
            answers
        }
    };
    Ok(KeptFiles { folder, answers, key })
}

fn fill(settings: &Settings, dir: &Path) -> Result<()> {
    match &settings.engine {
        DssEngine::DataFusion { row_group } => {
            datafusion::generate(&datafusion::program()?, settings.scale, *row_group, dir)
        }
        DssEngine::Sql(_) => load::sqlite(&dir.join(FILE), settings.scale, &|_, _, _| {}).map(drop),
    }
}

fn ask(settings: &Settings, folder: &Path) -> Result<Answers> {
    match &settings.engine {
        DssEngine::DataFusion { .. } => {
            let temporary = tempfile::tempdir().context("Cannot create a temporary folder")?;
            let threads = this_machine::cpus();
            let limits = Limits { memory: 4 << 30, threads, temporary: temporary.path().to_owned() };
            let mut process = DataFusion::start(&datafusion::program()?, folder, &limits)?;
            Answers::collect(settings, &mut |sql| process.query(sql))
        }
        DssEngine::Sql(_) => {
            let mut engine = sqlite::Engine::open(&folder.join(FILE), SqliteJournal::Rollback)?;
            Answers::collect(settings, &mut |sql| answer::run(&mut engine, sql))
        }
    }
}

/// A key of the queries: their texts with parameters.
fn queries_key(settings: &Settings) -> String {
    let all = Answers::queries(settings);
    let all: Vec<&str> = all.iter().map(|(.., sql)| sql.as_str()).collect();
    key_of(&all)
}

fn key_of(parts: &[&str]) -> String {
    hash::of_bytes(parts.join("\n").as_bytes())[..16].to_owned()
}

fn temporary(shelf: &Path) -> Result<tempfile::TempDir> {
    let dir = tempfile::Builder::new().prefix(".new-").tempdir_in(shelf);
    dir.with_context(|| format!("Cannot create a folder in {}", shelf.display()))
}
