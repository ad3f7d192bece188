//! A live private server for tests: the tree from the user's own cache, a cluster in a temporary folder.

use std::path::Path;

pub use bigiron_service::testing::{SERIES, tree};

use super::{Cluster, Listen, OwnedFolder, Programs, RECIPE, Settings, Sizing, cluster};
use bigiron_service::postgres;
use bigiron_service::server_folder::server_folder;

/// A running cluster and its folder, in drop order.
pub struct Running {
    pub cluster: Cluster,
    pub place: OwnedFolder,
    pub server: Programs,
}

/// A folder for a server, in memory if possible: creating and removing a cluster's thousand files on a disk takes a good part of most tests.
pub fn folder() -> OwnedFolder {
    let memory = Path::new("/dev/shm");
    server_folder(memory).or_else(|_| server_folder(&std::env::temp_dir())).unwrap()
}

pub fn sizing() -> Sizing {
    Sizing { memory_bytes: 512 << 20, data_bytes: 64 << 20, connections: 20 }
}

/// Starts a server with bigiron's settings, and `user`'s over them.
pub fn start(listen: Listen, user: &[(&str, &str)]) -> Running {
    let server = Programs::of(&RECIPE, &tree()).unwrap();
    let place = folder();
    postgres::init(&server, place.path(), false).unwrap();
    let user: Vec<_> = user.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let settings = Settings::new(&sizing(), &user).unwrap();
    let cluster = cluster::start(&server, place.path(), &settings, listen).unwrap();
    Running { cluster, place, server }
}
