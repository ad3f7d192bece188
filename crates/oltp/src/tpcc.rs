//! The loaded database of oltp: tables, keys, statistics and procedures, with the conditions of a fresh database checked.
//!
//! Invariant: a kept database satisfies all of TPC-C's consistency conditions.

use std::path::Path;

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use super::scale::Scale;
use super::trial_database::{self, Procedures};
use super::{check, load, maria};
use bigiron_archive::Store;
use bigiron_service::instance::Server;
use bigiron_service::mariadb::MariaDb;
use bigiron_service::postgres::Postgres;
use bigiron_sql::database::Database;
use bigiron_sql::maria::{Connection, Place};
use bigiron_sql::pg::Url;
use bigiron_sql::server::loaded::{self, DatabaseSpec, LoadedDatabase};
use bigiron_sql::server::private::Kind;
use bigiron_sql::server::{Programs, Sizing, cluster, mariadb};

/// As [`Tables::sources`]: PostgreSQL's, and MariaDB's.
pub(crate) const SOURCES: [&str; 9] = [
    include_str!("load/copy.rs"),
    include_str!("load/postgres.rs"),
    include_str!("population/goods.rs"),
    include_str!("population/mod.rs"),
    include_str!("population/orders.rs"),
    include_str!("population/people.rs"),
    include_str!("random.rs"),
    include_str!("sql/procedures.sql"),
    include_str!("schema.rs"),
];
const MARIADB_SOURCES: [&str; 9] = [
    include_str!("load/mariadb.rs"),
    include_str!("load/text_rows.rs"),
    include_str!("population/goods.rs"),
    include_str!("population/mod.rs"),
    include_str!("population/orders.rs"),
    include_str!("population/people.rs"),
    include_str!("random.rs"),
    include_str!("maria/procedures.sql"),
    include_str!("schema.rs"),
];
/// Size of a warehouse in PostgreSQL including indexes, rounded up; and of the rest (items, catalogue).
const WAREHOUSE_BYTES: u64 = 112 << 20;
const REST_BYTES: u64 = 64 << 20;

/// Approximate bytes of a freshly loaded database: for sizing servers and file systems.
pub fn data_bytes(scale: Scale) -> u64 {
    u64::from(scale.warehouses) * WAREHOUSE_BYTES + REST_BYTES
}

/// The tables on a kind of server.
pub struct Tables<S: Server + 'static, P: 'static> {
    pub kind: &'static Kind<S, P>,
    /// All sources that decide the bytes of a load. An irrelevant change only makes images again; a missed change would leave stale ones.
    sources: &'static [&'static str],
    /// Loads the tables and procedures into a new server.
    pub load: fn(&P, Scale, load::Progress<'_>) -> anyhow::Result<()>,
}

pub static POSTGRES: Tables<Postgres, Url> = Tables {
    kind: &cluster::KIND,
    sources: &SOURCES,
    load: |url, scale, progress| trial_database::load_marked(url, scale, Procedures::Needed, progress).map(drop),
};

pub static MARIADB: Tables<MariaDb, Place> = Tables {
    kind: &mariadb::KIND,
    sources: &MARIADB_SOURCES,
    load: |place, scale, progress| {
        let jobs = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        load::mariadb(place, scale, jobs, progress)?;
        Ok(maria::install_procedures(&mut Connection::connect(place)?)?)
    },
};

/// How a database is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadSettings<'a> {
    /// The server's programs, and their identity: a tree's hash.
    pub programs: &'a Programs,
    pub server: &'a str,
    /// Only `ext4` so far.
    pub filesystem: &'a str,
    /// Free space besides the database in the image, in bytes.
    pub room: u64,
    /// Memory of this machine.
    pub memory_bytes: u64,
    /// Connections of the load.
    pub jobs: u32,
}

/// The image of a database, from the cache or made now.
///
/// # Errors
/// As [`loaded::ensure`]; also if a condition does not hold.
pub fn ensure<S: Server, P>(
    tables: &Tables<S, P>,
    store: &Store,
    place: &LoadSettings<'_>,
    scale: Scale,
    note: &dyn Fn(&str),
) -> anyhow::Result<LoadedDatabase> {
    let mut hasher = Sha256::new();
    let kind = tables.kind;
    tables.sources.iter().for_each(|s| hasher.update(s));
    let sources: String = hasher.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
    let name = match scale.warehouses {
        1 => "1 warehouse".to_owned(),
        n => format!("{n} warehouses"),
    };
    let wanted = DatabaseSpec {
        kind: kind.recipe.name,
        socket: kind.socket,
        server: place.server,
        contents: &format!("oltp, {name}, {sources}"),
        name: &name,
        filesystem: place.filesystem,
        room: place.room,
        data_bytes: data_bytes(scale),
    };
    let sizing = Sizing { memory_bytes: place.memory_bytes, data_bytes: data_bytes(scale), connections: place.jobs };
    let mut load = |at: &P| {
        (tables.load)(at, scale, &|_, _, _| {})?;
        checked(&mut *(kind.database)(at).context("The server cannot be reached after the load")?, note)
    };
    let mut fill = |folder: &Path| loaded::filled(kind, place.programs, folder, &sizing, &mut load);
    loaded::ensure(store, place.programs, &wanted, &mut fill, note)
}

/// The names of the conditions, all of which hold.
fn checked(database: &mut dyn Database, note: &dyn Fn(&str)) -> anyhow::Result<Vec<String>> {
    note("Checking the twelve conditions");
    let report = check::conditions(database, true)?;
    let broken: Vec<String> = report.failures().map(|c| format!("{} ({})", c.name, c.claim)).collect();
    if !broken.is_empty() {
        bail!("The freshly loaded database is wrong: {}", broken.join("; "));
    }
    Ok(report.checks.iter().map(|c| c.name.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use bigiron_service::root;
    use bigiron_sql::server::{RECIPE, testing};

    fn loaded(warehouses: u32) -> (tempfile::TempDir, LoadedDatabase) {
        let tree = testing::tree();
        let server = Programs::of(&RECIPE, &tree).unwrap();
        let cache = tempfile::tempdir().unwrap();
        let store = Store::at(cache.path()).unwrap();
        let place = LoadSettings {
            programs: &server,
            server: &tree.about.hash,
            filesystem: "ext4",
            room: 256 << 20,
            memory_bytes: 2 << 30,
            jobs: 2,
        };
        let started = Instant::now();
        let loaded = ensure(&POSTGRES, &store, &place, Scale { warehouses }, &|line| {
            eprintln!("{:6.2} s  {line}", started.elapsed().as_secs_f64());
        });
        let loaded = loaded.unwrap();
        eprintln!("{:6.2} s  done: {loaded:?}", started.elapsed().as_secs_f64());
        (cache, loaded)
    }

    #[test]
    fn a_warehouse_is_loaded_and_checked() {
        let (_cache, loaded) = loaded(1);
        assert_eq!(loaded.checked.len(), 12, "{:?}", loaded.checked);
        assert!(loaded.data_bytes < data_bytes(Scale { warehouses: 1 }), "{}", loaded.data_bytes);
        assert!(loaded.data_bytes > data_bytes(Scale { warehouses: 1 }) / 3, "{}", loaded.data_bytes);
    }

    #[test]
    fn a_warehouse_is_loaded_into_mariadb_and_checked() {
        let kind = &mariadb::KIND;
        let root = root::ensure(&Store::open().unwrap(), kind.recipe, mariadb::SERIES, &|_| {}).unwrap();
        let programs = Programs::of(kind.recipe, &root).unwrap();
        let cache = tempfile::tempdir().unwrap();
        let store = Store::at(cache.path()).unwrap();
        let server = root.about.hash.as_str();
        let place = LoadSettings {
            programs: &programs,
            server,
            filesystem: "ext4",
            room: 64 << 20,
            memory_bytes: 1 << 30,
            jobs: 2,
        };
        let scale = Scale { warehouses: 1 };
        let loaded = ensure(&MARIADB, &store, &place, scale, &|_| {}).unwrap();
        assert_eq!(loaded.checked.len(), 12, "{:?}", loaded.checked);
        assert!((data_bytes(scale) / 3..data_bytes(scale)).contains(&loaded.data_bytes), "{}", loaded.data_bytes);
        assert_eq!(ensure(&MARIADB, &store, &place, scale, &|line| panic!("{line}")).unwrap(), loaded);
    }

    #[test]
    #[ignore = "a measurement, not a test: how long load and restore of ten warehouses take"]
    fn ten_warehouses_measured() {
        let (cache, loaded) = loaded(10);
        for n in 0..5 {
            let copy = cache.path().join(format!("copy{n}"));
            let started = Instant::now();
            bigiron_image::restore(&loaded.image, &copy).unwrap();
            eprintln!("restore {:.3} s", started.elapsed().as_secs_f64());
            std::fs::remove_file(copy).unwrap();
        }
    }
}
