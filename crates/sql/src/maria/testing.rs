//! A live private server for tests.

use super::{Connection, Place};
use crate::server::testing::folder;
use crate::server::{Listen, OwnedFolder};
use bigiron_archive::Store;
use bigiron_service::instance::Instance;
use bigiron_service::mariadb::{self, MariaDb, RECIPE, SOCKET};
use bigiron_service::programs::Programs;
use bigiron_service::root;

/// The series that tests use: Debian 12's.
const SERIES: &str = "10.11";
/// Small, and nothing is synced.
const SETTINGS: &str = "innodb_buffer_pool_size = 128M\ninnodb_flush_log_at_trx_commit = 0\ninnodb_flush_method = nosync\n\
                        innodb_doublewrite = 0\nlocal_infile = 1\nmax_connections = 20\n";

/// A running server and its folder, in drop order.
pub struct Running {
    pub server: Instance<MariaDb>,
    pub place: OwnedFolder,
}

impl Running {
    pub fn start(listen: Listen) -> Self {
        let store = Store::open().unwrap();
        let root = root::ensure(&store, &RECIPE, SERIES, &|line| eprintln!("{line}")).unwrap();
        let programs = Programs::of(&RECIPE, &root).unwrap();
        let place = folder();
        mariadb::init(&programs, place.path(), false).unwrap();
        let server = mariadb::start(&programs, place.path(), SETTINGS.to_owned(), listen).unwrap();
        Self { server, place }
    }

    pub fn socket(&self) -> Place {
        Place::Socket(self.place.path().join(SOCKET))
    }

    pub fn session(&self) -> Connection {
        Connection::connect(&self.socket()).unwrap()
    }
}
