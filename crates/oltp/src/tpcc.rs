//! The loaded database of oltp: tables, keys, statistics and procedures, with the conditions of a fresh database checked.
//!
//! Invariant: a kept database satisfies all of TPC-C's consistency conditions.

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
use bigiron_sql::pg::{Url, binary_rows};
use bigiron_sql::server::images::{self, Contents};
use bigiron_sql::server::private::Kind;
use bigiron_sql::server::{cluster, mariadb};
use bigiron_sys::this_machine;
use bigiron_workload::{ImageContext, Images};

/// As [`Tables::sources`]: PostgreSQL's, and MariaDB's.
pub(crate) const SOURCES: [&str; 10] = [
    binary_rows::SOURCE,
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
/// Space for new rows, their old versions and the log.
pub(crate) const ROOM: u64 = 1 << 30;
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
        let jobs = this_machine::cpus();
        load::mariadb(place, scale, jobs, progress)?;
        Ok(maria::install_procedures(&mut Connection::connect(place)?)?)
    },
};

impl<S: Server, P> Tables<S, P> {
    /// The images of a server and its loaded tables, from the cache or made now.
    ///
    /// # Errors
    /// As [`images::of`]; also if a condition does not hold.
    pub fn images(&self, series: &str, store: &Store, scale: Scale, cx: &ImageContext<'_>) -> anyhow::Result<Images> {
        let of = |contents: Contents<'_>, load: &mut dyn FnMut(&P) -> anyhow::Result<Vec<String>>| {
            images::of(self.kind, series, store, cx, contents, load)
        };
        let (mut images, checked) = self.with_contents(scale, cx.note, of)?;
        if !checked.is_empty() {
            let checked = format!("{} checks held right after the load", checked.len());
            images.foundation.insert("image-checked".to_owned(), checked);
        }
        Ok(images)
    }

    fn with_contents<T>(
        &self,
        scale: Scale,
        note: &dyn Fn(&str),
        then: impl FnOnce(Contents<'_>, &mut dyn FnMut(&P) -> anyhow::Result<Vec<String>>) -> T,
    ) -> T {
        let mut hasher = Sha256::new();
        self.sources.iter().for_each(|s| hasher.update(s));
        let sources: String = hasher.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
        let name = match scale.warehouses {
            1 => "1 warehouse".to_owned(),
            n => format!("{n} warehouses"),
        };
        let what = format!("oltp, {name}, {sources}");
        let contents =
            Contents { what: &what, name: &name, data_bytes: data_bytes(scale), room: ROOM, needed_here: false };
        let mut load = |at: &P| {
            (self.load)(at, scale, &|_, _, _| {})?;
            let database = (self.kind.database)(at);
            checked(&mut *database.context("The server cannot be reached after the load")?, note)
        };
        then(contents, &mut load)
    }
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
    use bigiron_service::root::{self, Root};
    use bigiron_sql::server::loaded::LoadedDatabase;
    use bigiron_sql::server::{mariadb, testing};

    /// The image of loaded tables in a cache of its own, and again from there.
    fn loaded<S: Server, P>(
        tables: &Tables<S, P>,
        root: &Root,
        warehouses: u32,
    ) -> (tempfile::TempDir, LoadedDatabase) {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::at(cache.path()).unwrap();
        let started = Instant::now();
        let note = |line: &str| eprintln!("{:6.2} s  {line}", started.elapsed().as_secs_f64());
        let get = |note: &dyn Fn(&str)| {
            tables.with_contents(Scale { warehouses }, note, |contents, load| {
                images::database(tables.kind, root, &store, contents, load, note).unwrap()
            })
        };
        let loaded = get(&note);
        note(&format!("done: {loaded:?}"));
        assert_eq!(get(&|line| panic!("{line}")), loaded);
        assert_eq!(loaded.checked.len(), 12, "{:?}", loaded.checked);
        let most = data_bytes(Scale { warehouses });
        assert!((most / 3..most).contains(&loaded.data_bytes), "{}", loaded.data_bytes);
        (cache, loaded)
    }

    #[test]
    fn a_warehouse_is_loaded_and_checked() {
        loaded(&POSTGRES, &testing::tree(), 1);
    }

    #[test]
    fn a_warehouse_is_loaded_into_mariadb_and_checked() {
        let store = Store::open().unwrap();
        let root = root::ensure(&store, MARIADB.kind.recipe, mariadb::SERIES, &|_| {}).unwrap();
        loaded(&MARIADB, &root, 1);
    }

    #[test]
    #[ignore = "a measurement, not a test: how long load and restore of ten warehouses take"]
    fn ten_warehouses_measured() {
        let (cache, loaded) = loaded(&POSTGRES, &testing::tree(), 10);
        for n in 0..5 {
            let copy = cache.path().join(format!("copy{n}"));
            let started = Instant::now();
            bigiron_image::restore(&loaded.image, &copy).unwrap();
            eprintln!("restore {:.3} s", started.elapsed().as_secs_f64());
            std::fs::remove_file(copy).unwrap();
        }
    }
}
